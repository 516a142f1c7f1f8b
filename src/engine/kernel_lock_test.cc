#include "tilewright/kernel_lock.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "engine/fake_operation.h"

namespace tilewright {
namespace {

using test::Blur;
using test::BlurDesc;
using test::BlurOp;
using test::Configurable;
using test::Info;

constexpr const char* kHeader = "{\"format\":\"tilewright.lock\",\"schema\":1}\n";
constexpr const char* kLine =
    "{\"device\":\"cpu/a\",\"op\":\"norm\",\"problem\":\"rows=8 cols=576\",\"kernel\":\"norm.x\","
    "\"spec\":\"swizzle=0 splits=1\"}\n";

/// kLine with one word replaced.
std::string LineWith(const std::string& word, const std::string& by) {
  std::string line = kLine;
  return line.replace(line.find(word), word.size(), by);
}

KernelLock SomeLock() {
  KernelLock lock;
  lock.by_device["cpu/b"].by_problem[{"norm", "rows=8"}] = {"norm.x", "swizzle=0 splits=1"};
  lock.by_device["cpu/a"].by_problem[{"norm", "rows=8"}] = {"norm.y", "swizzle=0 splits=1"};
  lock.by_device["cpu/a"].by_problem[{"gemm", "m=16 n=8"}] = {"gemm.z", "swizzle=1 splits=2"};
  lock.by_device["cpu/a"].by_problem[{"gemm", "m=1 n=8"}] = {"gemm.\"q\"", "swizzle=0 splits=1"};
  return lock;
}

/// The message of the error that `text` is; "" where it is a lock.
std::string ErrorOf(const std::string& text, ErrorCode code = ErrorCode::kCorrupt) {
  const Result<KernelLock> lock = KernelLock::Parse(text, "x.lock");
  if (lock) return "";
  EXPECT_EQ(lock.error().code, code) << lock.error().message;
  return lock.error().message;
}

TEST(KernelLockFile, IsOneSortedLineForEachProblemOfEachDevice) {
  EXPECT_EQ(
      SomeLock().Text(),
      std::string(kHeader) +
          R"({"device":"cpu/a","op":"gemm","problem":"m=1 n=8","kernel":"gemm.\"q\"","spec":"swizzle=0 splits=1"})"
          "\n"
          R"({"device":"cpu/a","op":"gemm","problem":"m=16 n=8","kernel":"gemm.z","spec":"swizzle=1 splits=2"})"
          "\n"
          R"({"device":"cpu/a","op":"norm","problem":"rows=8","kernel":"norm.y","spec":"swizzle=0 splits=1"})"
          "\n"
          R"({"device":"cpu/b","op":"norm","problem":"rows=8","kernel":"norm.x","spec":"swizzle=0 splits=1"})"
          "\n");
}

TEST(KernelLockFile, WhatIsWrittenIsReadAndWrittenAgainAsTheSameBytes) {
  const std::string text = SomeLock().Text();
  const Result<KernelLock> again = KernelLock::Parse(text, "x.lock");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->Text(), text);
  ASSERT_NE(again->Find("cpu/a"), nullptr);
  EXPECT_EQ(again->Find("cpu/a")->by_problem.size(), 3u);
  EXPECT_EQ(again->Find("cpu/a")->by_problem.at({"gemm", "m=1 n=8"}).kernel, "gemm.\"q\"");
  EXPECT_EQ(again->Find("cpu/c"), nullptr);
}

TEST(KernelLockFile, LinesMayComeInAnyOrderTwiceAndFromTwoFiles) {
  const std::string other = LineWith("cpu/a", "cpu/0");
  const Result<KernelLock> lock = KernelLock::Parse(
      std::string(kHeader) + "\n" + kLine + "\r\n" + kHeader + other + kLine, "x.lock");
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_EQ(lock->Text(), kHeader + other + kLine);
  // The last line's end may be missing.
  std::string cut = std::string(kHeader) + kLine;
  cut.pop_back();
  EXPECT_EQ(KernelLock::Parse(cut, "x.lock")->Text(), std::string(kHeader) + kLine);
}

TEST(KernelLockFile, EveryTextThatIsNoLockIsAnErrorWithItsLineAndAdvice) {
  const std::string head = std::string(kHeader) + kLine;
  const std::pair<std::string, std::string> cases[] = {
      {"", "x.lock:1: this is no lock"},
      {"\n\n", "x.lock:1: this is no lock"},
      {kLine, "x.lock:1: this is no lock"},
      {"GGUF\x03" + head, "x.lock:1: this is no lock"},
      {head + "kernel = 3\n", "x.lock:3: not a JSON object"},
      {head + "[1]\n", "x.lock:3: not a JSON object"},
      {head + "\n{\"device\":\"cpu/a\",\"op\"", "x.lock:4: not a JSON object"},
      {head + "<<<<<<< HEAD\n", "x.lock:3: an unresolved merge conflict"},
      {head + "=======\n", "x.lock:3: an unresolved merge conflict"},
      {head + LineWith(",\"spec\":\"swizzle=0 splits=1\"", ""), "x.lock:3: member 'spec'"},
      {head + LineWith("\"norm.x\"", "\"\""), "x.lock:3: member 'kernel'"},
      {head + LineWith("\"norm.x\"", "7"), "x.lock:3: member 'kernel'"},
      {head + LineWith("\"op\"", "\"pin\":1,\"op\""), "x.lock:3: member 'pin' is unknown"},
      {head + LineWith("norm.x", "norm.y"), "x.lock:3: locks what line 2 locks otherwise"},
      {head + LineWith("splits=1", "splits=2"), "x.lock:3: locks what line 2 locks otherwise"},
      {"{\"format\":\"tilewright.records\",\"schema\":1}\n", "x.lock:1: this is no lock"},
      {"{\"format\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
       "x.lock:1: this is no lock"},
      {"{\"format\":\"tilewright.lock\"}\n", "x.lock:1: member 'schema'"},
  };
  for (const auto& [text, message] : cases) {
    const std::string said = ErrorOf(text);
    EXPECT_TRUE(said.starts_with(message)) << "'" << said << "' for " << text.substr(0, 300);
    EXPECT_TRUE(said.find("--write-lock") != std::string::npos || said.ends_with(R"("schema":1})"))
        << said;
  }
}

TEST(KernelLockFile, ALaterVersionIsNamedAndNotRead) {
  const std::string said =
      ErrorOf(std::string("{\"format\":\"tilewright.lock\",\"schema\":2}\n") + kLine,
              ErrorCode::kUnsupported);
  EXPECT_TRUE(said.starts_with("x.lock:1: schema 2 is of a later version")) << said;
}

TEST(KernelLockFile, AWriteThatFailsLeavesTheOldFile) {
  std::string folder = testing::TempDir() + "lock.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/a.lock";
  const Result<KernelLock> missing = KernelLock::Read(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find(path), std::string::npos);
  ASSERT_TRUE(SomeLock().Write(path));
  EXPECT_EQ(KernelLock::Read(path)->Text(), SomeLock().Text());
  EXPECT_FALSE(SomeLock().Write(folder + "/none/a.lock"));
  EXPECT_FALSE(SomeLock().Write(folder));
  int files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 1) << "no temporary file stays";
  std::filesystem::remove_all(folder);
}

class CheckLockTest : public testing::Test {
 protected:
  /// The answer where `kernel` and `spec` are locked for a problem for which Configurable() chooses
  /// blur.tiled on eight threads.
  LockAnswer Ask(const std::string& kernel, const std::string& spec,
                 const BlurDesc& locked = {1, 8}) {
    Pins pins;
    pins.by_problem[{"fake", KeyOf(locked)}] = {kernel, spec};
    return Ask(&pins);
  }
  LockAnswer Ask(const Pins* pins) {
    const auto candidates = Feasible(*test::Validate(BlurDesc{1, 8}), registry_, DeviceSpec{});
    const auto choice = Choose(candidates, nullptr);
    EXPECT_EQ(choice->kernel().name(), "blur.tiled");
    EXPECT_EQ(SpecText(choice->spec()), kChosen);
    return CheckLock(pins, candidates, *choice);
  }

  static constexpr const char* kChosen = "swizzle=0 splits=1 rows=16 threads=8";
  OpRegistry<BlurOp> registry_ = Configurable();
};

TEST_F(CheckLockTest, TheSameKernelAndLaunchAgree) {
  const LockAnswer answer = Ask("blur.tiled", kChosen);
  EXPECT_EQ(answer.verdict, LockVerdict::kAgrees);
  EXPECT_EQ(answer.locked.kernel, "blur.tiled");
  EXPECT_EQ(answer.hindrance, "");
}

TEST_F(CheckLockTest, TheSameKernelWithAnotherLaunchIsADrift) {
  const LockAnswer answer = Ask("blur.tiled", "swizzle=0 splits=1 rows=16 threads=2");
  EXPECT_EQ(answer.verdict, LockVerdict::kOtherLaunch);
  EXPECT_EQ(answer.locked.spec, "swizzle=0 splits=1 rows=16 threads=2");
  EXPECT_EQ(answer.hindrance, "") << "it could run";
  EXPECT_EQ(Ask("blur.tiled", "swizzle=0 splits=1 rows=16 threads=3").hindrance,
            "the locked kernel does not offer that launch here");
}

TEST_F(CheckLockTest, AnotherKernelIsADriftWithWhyItCannotRun) {
  const LockAnswer plain = Ask("blur.plain", "swizzle=0 splits=1");
  EXPECT_EQ(plain.verdict, LockVerdict::kOtherKernel);
  EXPECT_EQ(plain.hindrance, "") << "it could run";
  const LockAnswer gone = Ask("blur.gone", "swizzle=0 splits=1");
  EXPECT_EQ(gone.verdict, LockVerdict::kOtherKernel);
  EXPECT_EQ(gone.hindrance, "the locked kernel is not in this build");
  ASSERT_TRUE(registry_.Add(std::make_unique<Blur>(Info("blur.narrow"), 1.0, 4)));
  EXPECT_EQ(Ask("blur.narrow", "swizzle=0 splits=1").hindrance,
            "the locked kernel cannot run it here: shape: width = 8, needs width <= 4");
}

TEST_F(CheckLockTest, AProblemThatIsNotInTheLockIsMissing) {
  EXPECT_EQ(Ask("blur.tiled", kChosen, {2, 8}).verdict, LockVerdict::kMissing);
  EXPECT_EQ(Ask(nullptr).verdict, LockVerdict::kMissing);
}

TEST_F(CheckLockTest, WhatALockHoldsIsWhatChoosePins) {
  KernelLock lock;
  lock.by_device["cpu/a"].by_problem[{"fake", KeyOf(BlurDesc{1, 8})}] = {
      "blur.tiled", "swizzle=0 splits=1 rows=16 threads=2"};
  const Result<KernelLock> read = KernelLock::Parse(lock.Text(), "x.lock");
  ASSERT_TRUE(read);
  const auto candidates = Feasible(*test::Validate(BlurDesc{1, 8}), registry_, DeviceSpec{});
  const auto choice = Choose(candidates, nullptr, read->Find("cpu/a"));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->provenance(), Provenance::kPinned);
  EXPECT_EQ(CheckLock(read->Find("cpu/a"), candidates, *choice).verdict, LockVerdict::kAgrees);
}

}  // namespace
}  // namespace tilewright
