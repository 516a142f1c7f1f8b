#include "engine/bind_next.h"

#include <gmock/gmock.h>

#include "engine/fake_operation.h"

namespace tilewright {
namespace {

using test::BlurDesc;
using test::BlurOp;
using test::Info;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// What reaches the log while it lives.
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

/// A kernel that takes `us` and is prepared, or fails to be with `error`.
class Blur final : public OpKernel<BlurOp> {
 public:
  Blur(std::string name, double us, std::optional<Error> error)
      : OpKernel<BlurOp>(Info(std::move(name))), us_(us), error_(std::move(error)) {}
  std::optional<Rejection> IsFeasible(const BlurDesc& desc) const override {
    if (desc.width <= 100) return std::nullopt;
    return Rejection{Reason::kShape, "width = " + std::to_string(desc.width), "width <= 100"};
  }
  double EstimateUs(const BlurDesc&, const Spec&, const DeviceSpec&) const override { return us_; }
  Result<std::shared_ptr<const BoundLaunch<BlurOp>>> BindLaunch(const BlurDesc&, const Spec&,
                                                                Device&) const override {
    ++binds;
    if (error_) return Fail(*error_);
    return std::shared_ptr<const BoundLaunch<BlurOp>>();
  }
  Status Launch(const Args&, const Spec&, Workspace&, Stream) override { return {}; }

  mutable int binds = 0;

 private:
  double us_;
  std::optional<Error> error_;
};

class BindNextTest : public testing::Test {
 protected:
  Blur* Add(const std::string& name, double us, std::optional<Error> error = std::nullopt) {
    auto kernel = std::make_unique<Blur>(name, us, std::move(error));
    Blur* const added = kernel.get();
    EXPECT_TRUE(registry_.Add(std::move(kernel)));
    return added;
  }
  Result<Plan<BlurOp>> Get(const BlurDesc& desc, const Pins* pins = nullptr) {
    return BindNext(Stages<BlurOp>::MarkValidated(desc), registry_, HostDevice(),
                    BindTerms<BlurOp>{.feasible = {}, .pins = pins}, failures_,
                    [](const Choice<BlurOp>&) { return Status(); });
  }

  OpRegistry<BlurOp> registry_;
  BindFailures failures_;
};

const Error kRefused{ErrorCode::kInvalidArgument, "the compiler: error: x\nand much more"};

TEST_F(BindNextTest, TheNextOneByPredictionRunsAndIsNamedOnce) {
  const Logged log;
  const Blur* best = Add("blur.best", 1, kRefused);
  const Blur* second = Add("blur.second", 2, kRefused);
  Add("blur.slow", 9);
  Add("blur.third", 3);
  EXPECT_EQ(Get({1, 8})->kernel().name(), "blur.third");
  EXPECT_THAT(log.lines, ElementsAre("fake: blur.best and blur.second cannot be prepared (the "
                                     "compiler: error: x); blur.third is used instead"));
  // The same problem: known. Another one: tried, since it may be the problem that was refused.
  EXPECT_EQ(Get({1, 8})->kernel().name(), "blur.third");
  EXPECT_EQ(best->binds + second->binds, 2);
  EXPECT_EQ(Get({1, 9})->kernel().name(), "blur.third");
  EXPECT_EQ(best->binds + second->binds, 4);
  EXPECT_EQ(log.lines.size(), 1u);
}

TEST_F(BindNextTest, WhereNoneIsLeftOneLineNamesThemAll) {
  const Logged log;
  Add("blur.a", 1, kRefused);
  Add("blur.b", 2, Error{ErrorCode::kUnavailable, "no library"});
  Add("blur.c", 3, kRefused);
  Add("blur.d", 4, kRefused);
  const auto plan = Get({1, 8});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(plan.error().message,
            "no kernel is left for fake rows=1 width=8 guarantee=fastest: blur.a, blur.c and 1 "
            "more cannot be prepared (the compiler: error: x); blur.b cannot be prepared (no "
            "library); 0 others do not apply");
  EXPECT_THAT(log.lines, IsEmpty());
  // What no kernel can run has every kernel's reason, as ever.
  EXPECT_THAT(Get({1, 500}).error().message,
              testing::StartsWith("none of 4 kernels can run this problem"));
}

TEST_F(BindNextTest, APinnedKernelIsNotReplaced) {
  Add("blur.best", 1, kRefused);
  Add("blur.slow", 9);
  Pins pins;
  pins.by_problem[{"fake", KeyOf(BlurDesc{1, 8})}] = {"blur.best", "swizzle=0 splits=1"};
  const auto plan = Get({1, 8}, &pins);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "blur.best: " + kRefused.message);
}

TEST_F(BindNextTest, FullMemoryAndAnInterruptEndTheSearch) {
  Add("blur.slow", 9);
  for (const ErrorCode code : {ErrorCode::kOutOfMemory, ErrorCode::kCancelled}) {
    const Blur* best = Add(code == ErrorCode::kCancelled ? "blur.stopped" : "blur.large",
                           code == ErrorCode::kCancelled ? 0.5 : 1, Error{code, "no"});
    const auto plan = Get({1, 8});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, code);
    EXPECT_EQ(best->binds, 1);
  }
}

TEST_F(BindNextTest, WhatTheCallerDoesNotAcceptIsNotBound) {
  const Blur* best = Add("blur.best", 1);
  const auto plan =
      BindNext(Stages<BlurOp>::MarkValidated({1, 8}), registry_, HostDevice(), BindTerms<BlurOp>{},
               failures_, [](const Choice<BlurOp>& choice) -> Status {
                 return Fail(ErrorCode::kNotFound, std::string(choice.kernel().name()));
               });
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error(), (Error{ErrorCode::kNotFound, "blur.best"}));
  EXPECT_EQ(best->binds, 0);
}

}  // namespace
}  // namespace tilewright
