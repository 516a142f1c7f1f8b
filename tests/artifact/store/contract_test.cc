// What holds for every call of the facade: paths, messages, warnings, rejected arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "artifact/store/store_fixture.h"
#include "tilewright/artifact_store.h"

namespace tilewright::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class StoreContract : public StoreTest {};

TEST_F(StoreContract, PathsAreOfTheWorkingDirectoryAtOpen) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string here = folder / "here";
  const std::string there = folder / "there";
  std::filesystem::create_directories(here);
  std::filesystem::create_directories(there);
  std::filesystem::current_path(here);
  ASSERT_EQ(setenv("TILEWRIGHT_CACHE_DIR", "cache", 1), 0);
  auto options = Options();
  options.root.clear();
  const auto store = OpenFake(options);
  options.root = "no-compiler";
  options.compiler = nullptr;
  options.nvrtc.path = "nvrtc";
  const auto bare = OpenFake(options);
  ASSERT_EQ(unsetenv("TILEWRIGHT_CACHE_DIR"), 0);
  std::filesystem::current_path(there);
  EXPECT_TRUE(store->Compile(GemmSpec()));
  const auto failed = bare->Compile(GemmSpec());
  std::filesystem::current_path(before);
  EXPECT_EQ(store->root(), here + "/cache/artifacts");
  EXPECT_THAT(EntryFilesUnder(store->root()), SizeIs(1));
  EXPECT_THAT(FilesUnder(there), IsEmpty());
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr(here + "/nvrtc"));
}

TEST_F(StoreContract, AFolderThatWasNamedAndIsNotThereIsToldOnce) {
  auto options = Options(CacheMode::kReadonly);
  options.site_dirs = {folder / "no-site"};
  options.shared_dir = folder / "no-shared";
  const auto store = OpenFake(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  EXPECT_THAT(store->warnings(),
              UnorderedElementsAre(HasSubstr(folder / "no-site"), HasSubstr(folder / "no-shared")));
}

TEST_F(StoreContract, ASharedFolderThatIsTheUsersIsUsedOnce) {
  // Opened twice, it would be waited for: each has locks of its own.
  std::filesystem::create_symlink(folder.path(), folder / "alias");
  auto options = Options();
  options.shared_dir = folder / "alias/root";
  options.lock_wait_ms = 3'600'000;
  const auto store = OpenFake(options);
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->process_counters().lock_waits, 0u);
  EXPECT_EQ(store->process_counters().publishes, 1u);
  EXPECT_THAT(store->warnings(), ElementsAre(HasSubstr("is the user's folder")));
}

TEST_F(StoreContract, TheLongestWaitIsLong) {
  std::atomic<bool> begun{false}, finish{false};
  compiler = MakeFakeCompiler({.begins = [&](const CompileJob&) {
    begun = true;
    while (!finish) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }});
  auto options = Options();
  options.lock_wait_ms = std::numeric_limits<std::int64_t>::max();
  const auto one = OpenFake(options), other = OpenFake(options);
  std::thread holder([&] { EXPECT_TRUE(one->Compile(GemmSpec())); });
  while (!begun) std::this_thread::yield();
  // Asked before its first look at the lock and after every one: at the third it has waited twice.
  int asked = 0;
  CompileControl control;
  control.cancelled = [&] { return ++asked > 2; };
  const auto waited = other->Compile(GemmSpec(), control);
  EXPECT_EQ(waited.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(other->process_counters().lock_timeouts, 0u);
  finish = true;
  holder.join();
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreContract, AskingWithinACancelFnIsAnErrorNotAWaitForOneself) {
  compiler = MakeFakeCompiler({.hangs = true});
  auto options = Options();
  options.compile_threads = 1;
  const auto store = OpenFake(options);
  std::vector<Result<KernelHandle>> answers;
  // Asked while the compiler, which holds the only place, is at work.
  CompileControl control;
  control.cancelled = [&] {
    if (compiler->compiles() == 0) return false;
    answers.push_back(store->Compile(GemmSpec()));
    answers.push_back(store->Compile(GemmSpec(1)));
    answers.push_back(store->CompileAll(LayoutSpecs())[0]);
    return true;
  };
  const auto handle = store->Compile(GemmSpec(), control);
  EXPECT_EQ(handle.error().code, ErrorCode::kCancelled);
  ASSERT_THAT(answers, SizeIs(3));
  for (const auto& answer : answers) {
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(answer.error().message, HasSubstr("wait for itself"));
  }
  // The thread is as good as before.
  compiler = MakeFakeCompiler();
  EXPECT_TRUE(Open()->Compile(GemmSpec()));
}

TEST_F(StoreContract, AModeThatIsNoneIsRefused) {
  const auto store = ArtifactStore::Open(FakeFamilies(), Options(static_cast<CacheMode>(77)));
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(store.error().message, HasSubstr("77"));
}

TEST_F(StoreContract, EveryErrorIsOneLineThatNamesTheKernelOnce) {
  const auto check = [](const KernelSpec& spec, const Error& error) {
    const std::string name = SpecName(spec);
    EXPECT_THAT(error.message, StartsWith(name));
    EXPECT_THAT(error.message.substr(name.size()), Not(HasSubstr(name)));
    EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  };
  const auto both = [&](ArtifactStore& store, const KernelSpec& spec) {
    const auto one = store.Compile(spec);
    ASSERT_FALSE(one);
    check(spec, one.error());
    const auto all = store.CompileAll({&spec, 1});
    ASSERT_FALSE(all[0]);
    check(spec, all[0].error());
  };
  KernelSpec unknown = GemmSpec();
  unknown.family = "no_such_family";
  KernelSpec refused = GemmSpec();
  refused.tile_m = 0;
  const auto store = Open();
  both(*store, unknown);
  both(*store, refused);
  auto options = Options();
  options.compiler = nullptr;
  options.nvrtc.path = folder / "no-nvrtc";
  both(*OpenFake(options), GemmSpec());
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) {
    return CompileFailure{true,
                          {ErrorCode::kUnsupported, "does not compile:\n  x.cu(3): error: no such"},
                          "x.cu(1): warning: odd\nx.cu(3): error: no such\n1 error detected\n"};
  }});
  both(*Open(), GemmSpec(1));
  // Another process has only what was remembered.
  const auto later = Open();
  both(*later, GemmSpec(1));
  EXPECT_EQ(compiler->compiles(), 1);
  const auto remembered = later->Compile(GemmSpec(1));
  EXPECT_THAT(remembered.error().message, HasSubstr("before: x.cu(3): error: no such ("));
  const auto files = FilesUnder(root + "/v1/neg");
  ASSERT_THAT(files, SizeIs(1));
  EXPECT_THAT(remembered.error().message, HasSubstr(files[0]));
  EXPECT_THAT(ReadWhole(files[0]), HasSubstr("1 error detected"));
  both(*Open(CacheMode::kStrict), GemmSpec(2));
}

TEST(KernelFamilyNames, ANameThatWasCutIsNone) {
  const KernelFamily sound = FakeFamilies().all()[0];
  KernelFamily longest = sound;
  longest.name = "abcdefghijklmnopqrstuvw";  // 23
  KernelFamily longer = sound;
  longer.name = "abcdefghijklmnopqrstuvwx";
  KernelFamily much_longer = sound;
  much_longer.name = "abcdefghijklmnopqrstuvwxyz";
  KernelFamilies families;
  EXPECT_TRUE(families.Add(longest));
  EXPECT_EQ(families.Add(longer).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(families.Add(much_longer).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(families.Find("abcdefghijklmnopqrstuvwx"), nullptr);
}

}  // namespace
}  // namespace tilewright::test
