#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "core/env.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/paths.h"
#include "core/random.h"
#include "core/sha256.h"
#include "core/test_util.h"
#include "core/text.h"

namespace tilewright {
namespace {

TEST(TextTest, SizesKeepThreeDigits) {
  EXPECT_EQ(Printable("a b\x1b[1m\xff"), "a b\\x1b[1m\\xff");
  EXPECT_EQ(Printable("12345", 3), "123...");
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(1024 * 1024 - 1), "1.00 MiB");
  EXPECT_EQ(HumanBytes(std::uint64_t{105} << 20), "105 MiB");
}

TEST(TypesTest, NamesRoundTripAndSizesFollowTheBlocks) {
  std::set<std::string_view> names;
  for (int i = 1; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(ParseDataType(DataTypeName(type)), type);
    names.insert(DataTypeName(type));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kDataTypeCount - 1));
  EXPECT_FALSE(ParseDataType("none"));
  EXPECT_FALSE(ParseDataType("q4_7"));
  EXPECT_EQ(BytesOf(DataType::kQ4_1, 64), 40u);
  EXPECT_EQ(BytesOf(DataType::kU4, 64), 32u);
  EXPECT_EQ(BytesOf(DataType::kI8X32, 64), 72u);
  EXPECT_EQ(GetTypeInfo(static_cast<DataType>(200)).name, "none");
}

TEST(HashTest, EveryBitOfTheInputAndTheLengthMatter) {
  for (std::size_t bytes = 0; bytes <= 40; ++bytes) {
    std::set<std::uint64_t> seen;
    std::string data(bytes, '\0');
    seen.insert(Hash64(data));
    for (std::size_t bit = 0; bit < 8 * bytes; ++bit) {
      data[bit / 8] ^= static_cast<char>(1 << bit % 8);
      seen.insert(Hash64(data));
      data[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
    EXPECT_EQ(seen.size(), 8 * bytes + 1);
    EXPECT_NE(Hash64(data), Hash64(data + '\0'));
    EXPECT_NE(Hash64(data, 1), Hash64(data, 2));
  }
}

TEST(HashTest, BucketsOfSmallKeysFillEvenly) {
  constexpr int kBuckets = 256, kKeys = 256 * 64;
  int count[kBuckets] = {};
  for (std::int32_t key = 0; key < kKeys; ++key) ++count[HashValue(key) % kBuckets];
  double chi2 = 0;
  for (const int c : count) chi2 += (c - 64.0) * (c - 64.0) / 64.0;
  // 255 degrees of freedom: mean 255, deviation 22.6.
  EXPECT_LT(chi2, 255 + 6 * 22.6);
}

TEST(HashTest, CombiningDependsOnTheOrder) {
  EXPECT_NE(HashCombine(HashCombine(0, 1), 2), HashCombine(HashCombine(0, 2), 1));
}

TEST(Sha256Test, MatchesThePublishedVectors) {
  EXPECT_EQ(Sha256Hex("").value(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc").value(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf(Sha256({"a", "", "bc"}).value()), Sha256Hex("abc").value());
}

TEST(RandomTest, NumbersAreTheSameOnEveryMachine) {
  std::uint64_t state = 0;
  EXPECT_EQ(SplitMix64(state),
            0xe220a8397b1dcdafu);  // first output of the reference implementation for seed 0
  Random a(7), b(7), c(8);
  EXPECT_EQ(a.Next(), b.Next());
  EXPECT_NE(a.Next(), c.Next());
}

TEST(RandomTest, DistributionsHaveTheirMoments) {
  Random random(1);
  double sum = 0, squares = 0;
  int below[10] = {};
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
    ++below[random.Below(10)];
    const std::int64_t between = random.Between(-3, 3);
    ASSERT_TRUE(between >= -3 && between <= 3);
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.03);
  for (const int count : below) EXPECT_NEAR(count, kCount / 10, 600);
}

struct Seen {
  int count = 0;
  std::string last;
  static void Write(void* context, LogLevel level, std::string_view message) {
    auto& seen = *static_cast<Seen*>(context);
    ++seen.count;
    seen.last = std::string(LogLevelName(level)) + ": " + std::string(message);
  }
};

TEST(LogTest, MessagesBelowTheLevelAreDroppedAndTheRestReachTheSink) {
  LogError("nobody listens");
  Seen seen;
  const LogSink before = SetLogSink({&Seen::Write, &seen, LogLevel::kWarning});
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  LogInfo("quiet");
  LogWarning("loud");
  SetLogSink(before);
  LogError("gone");
  EXPECT_EQ(seen.count, 1);
  EXPECT_EQ(seen.last, "warning: loud");
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_FALSE(ParseLogLevel("loud"));
}

/// Stays inside a message until it is told to leave.
struct Slow {
  std::atomic<bool> inside{false}, leave{false};
  static void Write(void* context, LogLevel, std::string_view) {
    auto& slow = *static_cast<Slow*>(context);
    slow.inside = true;
    while (!slow.leave) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST(LogTest, AChildForkedWhileAThreadLogsCanLog) {
  Slow slow;
  const LogSink before = SetLogSink({&Slow::Write, &slow, LogLevel::kWarning});
  std::thread logging([] { LogWarning("slow"); });
  while (!slow.inside) std::this_thread::yield();
  // The fork waits for the message to end: somebody has to end it.
  std::thread ending([&slow] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    slow.leave = true;
  });
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a child that waits for a lock whose holder it does not have
    slow.leave = true;
    LogWarning("from the child");
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  logging.join();
  ending.join();
  SetLogSink(before);
}

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name), before_(GetEnv(name)) {
    if (value != nullptr) {
      setenv(name, value, 1);
    } else {
      unsetenv(name);
    }
  }
  ~ScopedEnv() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(PathsTest, TheCacheFolderFollowsTheEnvironmentInOrder) {
  const ScopedEnv home("HOME", "/home/u");
  const ScopedEnv xdg("XDG_CACHE_HOME", "/xdg");
  {
    const ScopedEnv own("TILEWRIGHT_CACHE_DIR", "/own");
    EXPECT_EQ(CacheDir().value(), "/own");
  }
  const ScopedEnv no_own("TILEWRIGHT_CACHE_DIR", nullptr);
  EXPECT_EQ(CacheDir().value(), "/xdg/tilewright");
  const ScopedEnv relative("XDG_CACHE_HOME", "not/absolute");
  EXPECT_EQ(CacheDir().value(), "/home/u/.cache/tilewright");
  const ScopedEnv relative_home("HOME", "u");
  EXPECT_EQ(CacheDir().error().code, ErrorCode::kUnavailable);
  const ScopedEnv no_home("HOME", "");
  EXPECT_EQ(CacheDir().error().code, ErrorCode::kUnavailable);
}

TEST(PathsTest, FoldersAreMadeWithTheirParentsAndAFileInTheWayIsNamed) {
  namespace fs = std::filesystem;
  const std::string root =
      (fs::temp_directory_path() / ("tilewright_paths_" + std::to_string(getpid()))).string();
  ASSERT_TRUE(MakeDirs(root + "/a/b/"));
  EXPECT_TRUE(fs::is_directory(root + "/a/b"));
  ASSERT_TRUE(MakeDirs(root + "/a/b")) << "twice is fine";
  fclose(fopen((root + "/file").c_str(), "w"));
  const Status blocked = MakeDirs(root + "/file/c");
  ASSERT_FALSE(blocked);
  EXPECT_NE(blocked.error().message.find(root + "/file"), std::string::npos);
  fs::remove_all(root);
}

TEST(TestUtilTest, GuardsSeeAWriteOneByteOutside) {
  test::Guarded<float> buffer(5, 4);
  EXPECT_TRUE(std::isnan(buffer[0]) && std::isnan(buffer.data()[-1]) &&
              std::isnan(buffer.data()[5]));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 4u);
  for (float& value : buffer) value = 1;
  EXPECT_EQ(buffer.Damage(), "");
  buffer.data()[5] = 1;
  EXPECT_NE(buffer.Damage(), "");
}

TEST(TestUtilTest, ErrorsAreMeasuredInTheirUnits) {
  EXPECT_EQ(test::UlpError(1.0f, 1.0), 0);
  EXPECT_EQ(test::UlpError(std::nextafterf(1.0f, 2.0f), 1.0), 1);
  EXPECT_EQ(test::RelativeL2(std::vector<float>{3, 4}, std::vector<double>{3, 4}), 0);
  EXPECT_DOUBLE_EQ(test::RelativeL2(std::vector<float>{3, 5}, std::vector<double>{3, 4}), 0.2);
  EXPECT_EQ(test::RelativeL2(std::vector<float>{NAN}, std::vector<double>{1}), HUGE_VAL);
  const test::RandomMatrix matrix(DataType::kQ8_0, 3, 64, 1, 1.0, 96);
  EXPECT_EQ(matrix.bytes.size(), 3u * 102);
  EXPECT_NEAR(matrix.values[64], 0, 5);
}

}  // namespace
}  // namespace tilewright
