// A kernel that cannot be prepared, or not for the arguments of a node, is replaced while a graph is
// prepared; its answers are those of the kernel that runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/argument_binder.h"
#include "one_node.h"
#include "tilewright/log.h"

namespace tilewright {
namespace {

using test::OneNode;
using ::testing::HasSubstr;

class Logged {
 public:
  Logged() : old_(SetLogSink({&Logged::Write, this, LogLevel::kWarning})) {}
  ~Logged() { SetLogSink(old_); }
  std::vector<std::string> lines;

 private:
  static void Write(void* self, LogLevel, std::string_view line) {
    static_cast<Logged*>(self)->lines.emplace_back(line);
  }
  LogSink old_;
};

enum class Fails : std::uint8_t { kToBind, kToTakeArguments };

/// The fastest of all norms, if it could be prepared.
class Unready final : public OpKernel<norm::Op> {
 public:
  Unready(Fails fails, std::size_t partials)
      : OpKernel<norm::Op>(Info()), fails_(fails), partials_(partials) {}
  std::optional<Rejection> IsFeasible(const norm::Desc&) const override { return std::nullopt; }
  double EstimateUs(const norm::Desc&, const Spec&, const DeviceSpec&) const override { return 0; }
  WorkspaceSize WorkspaceFor(const norm::Desc&, const Spec&, const DeviceSpec&) const override {
    return {.partials = partials_};
  }
  Result<std::shared_ptr<const BoundLaunch<norm::Op>>> BindLaunch(const norm::Desc&, const Spec&,
                                                                  Device&) const override {
    if (fails_ == Fails::kToBind) return Fail(ErrorCode::kInvalidArgument, "its module is broken");
    return std::shared_ptr<const BoundLaunch<norm::Op>>(std::make_shared<Bound>());
  }
  Status Launch(const Args&, const Spec&, Workspace&, Stream) override {
    return Fail(ErrorCode::kInternal, "must not be launched");
  }

 private:
  struct Bound final : BoundLaunch<norm::Op>, ArgumentBinder<norm::Op> {
    Status Launch(const norm::Args&, Workspace&, Stream) const override {
      return Fail(ErrorCode::kInternal, "must not be launched");
    }
    Result<std::unique_ptr<ReadyLaunch>> Ready(const norm::Args&, Workspace&) const override {
      return Fail(ErrorCode::kInvalidArgument, "the tensor map was refused");
    }
  };
  static KernelInfo Info() {
    KernelInfo info;
    info.name = "norm.unready";
    return info;
  }

  Fails fails_;
  std::size_t partials_;
};

class Fallback : public testing::Test {
 protected:
  Fallback() : kernels_(MakeCpuKernels()) {}
  void Add(Fails fails, std::size_t partials = 0) {
    ASSERT_TRUE(kernels_->of<norm::Op>().Add(std::make_unique<Unready>(fails, partials)));
  }
  Status Prepare(const Pins* pins = nullptr) {
    DispatchOptions options;
    options.pins = pins;
    dispatch_ = std::make_unique<DeviceDispatch>(*kernels_, HostDevice(), options);
    Result<BoundSteps> steps = dispatch_->BindSteps(node_.graph());
    if (!steps) return Fail(steps.error());
    steps_ = std::move(steps->steps);
    return {};
  }

  OneNode node_{TensorOp::kRmsNorm, {}, 1};
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<DeviceDispatch> dispatch_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
};

TEST_F(Fallback, TheNextKernelComputesWhatTheFirstCannotBePreparedFor) {
  ASSERT_TRUE(Prepare());
  ASSERT_EQ(steps_.size(), 1u);
  const std::string usual = steps_[0]->kernel;
  ASSERT_TRUE(steps_[0]->Run({}));
  const std::vector<std::byte> want = node_.ResultBytes();
  struct Case {
    Fails fails;
    const char* log;
  };
  for (const Case& c :
       {Case{Fails::kToBind, "norm: norm.unready cannot be prepared (its module is broken); "},
        {Fails::kToTakeArguments,
         "norm: norm.unready cannot be prepared (the tensor map was "
         "refused); another kernel is tried"}}) {
    kernels_ = MakeCpuKernels();
    // A workspace of its own moves that of the dispatch once more, after steps were bound to it.
    Add(c.fails, 1 << 20);
    node_.Reset();
    const Logged log;
    const auto prepared = Prepare();
    ASSERT_TRUE(prepared) << prepared.error().message;
    ASSERT_EQ(steps_.size(), 1u);
    EXPECT_EQ(steps_[0]->kernel, usual);
    ASSERT_TRUE(steps_[0]->Run({}));
    EXPECT_EQ(node_.ResultBytes(), want);
    ASSERT_EQ(log.lines.size(), 1u);
    EXPECT_THAT(log.lines[0], HasSubstr(c.log));
    // Prepared again, it is neither tried nor told again.
    EXPECT_TRUE(dispatch_->BindSteps(node_.graph()));
    EXPECT_EQ(log.lines.size(), 1u);
  }
}

TEST_F(Fallback, APinnedKernelFailsWithItsOwnReason) {
  for (const Fails fails : {Fails::kToBind, Fails::kToTakeArguments}) {
    kernels_ = MakeCpuKernels();
    Add(fails);
    dispatch_ = std::make_unique<DeviceDispatch>(*kernels_, HostDevice(), DispatchOptions{});
    const auto desc = dispatch_->ProblemOf<norm::Op>(node_.graph(), node_.node());
    ASSERT_TRUE(desc);
    Pins pins;
    pins.by_problem[{"norm", KeyOf(*desc)}] = {"norm.unready", "swizzle=0 splits=1"};
    const Logged log;
    const auto prepared = Prepare(&pins);
    ASSERT_FALSE(prepared);
    EXPECT_THAT(prepared.error().message,
                HasSubstr(fails == Fails::kToBind ? "norm.unready: its module is broken"
                                                  : "the tensor map was refused"));
    EXPECT_TRUE(log.lines.empty());
  }
}

}  // namespace
}  // namespace tilewright
