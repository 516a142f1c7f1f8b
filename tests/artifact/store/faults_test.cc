// The facade on a file system that fails, with a clock that jumps, and over many operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "artifact/store/store_impl.h"
#include "core/faulty_filesystem.h"

namespace tilewright::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StoreFaults : public ::testing::Test {
 protected:
  std::unique_ptr<ArtifactStore> Open(const ArtifactStoreOptions& options) {
    auto store = OpenArtifactStore(FakeFamilies(), options, {&files, std::nullopt});
    if (!store) std::abort();
    return std::move(*store);
  }
  std::unique_ptr<ArtifactStore> Open() { return Open(FakeOptions(root, compiler)); }

  const TemporaryFolder folder;
  const std::string root = folder / "root";
  FaultyFilesystem files;
  std::shared_ptr<FakeCompiler> compiler = MakeFakeCompiler();
};

TEST_F(StoreFaults, AFullDiskCostsTheEntryAndOneWarningNotTheKernel) {
  const auto store = Open();
  files.Arm({.kind = Fault::kError,
             .error = ENOSPC,
             .lasting = true,
             .only = FaultyFilesystem::Call::kWrite});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Find(GemmSpec(i)));
  files.Disarm();
  EXPECT_GT(files.fired(), 0);
  EXPECT_EQ(compiler->compiles(), 4);
  ASSERT_THAT(store->warnings(), SizeIs(1));
  EXPECT_THAT(store->warnings()[0], HasSubstr("No space left"));
  EXPECT_THAT(EntryFilesUnder(root), IsEmpty());
}

TEST_F(StoreFaults, OneFailingCallAnywhereNeverCostsTheKernel) {
  for (const int error : {ENOSPC, EACCES, EMFILE, EIO}) {
    bool fired = true;
    for (int step = 1; fired; ++step) {
      ASSERT_LT(step, 500);
      const TemporaryFolder own;
      auto options = FakeOptions(own / "root", compiler);
      const auto store = Open(options);
      files.Arm({.kind = Fault::kError, .step = step, .error = error});
      const auto handle = store->Compile(GemmSpec());
      fired = files.fired() > 0;
      files.Disarm();
      ASSERT_TRUE(handle) << "errno " << error << " at step " << step << ": "
                          << handle.error().message;
      const auto later = Open(options)->Compile(GemmSpec());
      ASSERT_TRUE(later) << "errno " << error << " at step " << step;
      ASSERT_EQ((*later)->cubin, (*handle)->cubin);
    }
  }
}

TEST_F(StoreFaults, ShortReadsAndWritesAreCompleted) {
  const auto writer = Open();
  files.Arm({.kind = Fault::kShort, .lasting = true, .only = FaultyFilesystem::Call::kWrite});
  const auto written = writer->Compile(GemmSpec());
  files.Disarm();
  ASSERT_TRUE(written);
  const auto reader = Open();
  files.Arm({.kind = Fault::kShort, .lasting = true, .only = FaultyFilesystem::Call::kRead});
  const auto read = reader->Compile(GemmSpec());
  files.Disarm();
  ASSERT_TRUE(read);
  EXPECT_GT(files.fired(), 1000);
  EXPECT_EQ((*read)->cubin, (*written)->cubin);
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreFaults, WithoutWorkingLocksItCompilesAndStoresAllTheSame) {
  files.Arm({.kind = Fault::kError,
             .error = ENOLCK,
             .lasting = true,
             .only = FaultyFilesystem::Call::kTryLock});
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  EXPECT_GT(files.fired(), 0);
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreFaults, ARefusalIsForgottenWhenItsTimeIsOver) {
  std::int64_t now = 1'800'000'000;
  files.SetNow(now);
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) {
    return CompileFailure{true, {ErrorCode::kUnsupported, "refused"}, "log"};
  }});
  const auto store = Open();
  ASSERT_FALSE(store->Compile(GemmSpec()));
  files.SetNow(now + 24 * 3600 - 2);
  ASSERT_FALSE(store->Compile(GemmSpec()));
  ASSERT_FALSE(Open()->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 1);
  files.SetNow(now + 24 * 3600 + 2);
  ASSERT_FALSE(store->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 2);
  // A clock that went back: the refusal is from the future.
  files.SetNow(now - 3600);
  ASSERT_FALSE(Open()->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 3);
}

TEST_F(StoreFaults, ACompilerThatWasNotThereIsLookedForAgain) {
  files.SetNow(1'800'000'000);
  auto options = FakeOptions(root, nullptr);
  options.nvrtc.path = folder / "libnvrtc.so";
  WriteWhole(options.nvrtc.path, "no library");
  const auto store = Open(options);
  const auto why = [&] { return store->Compile(GemmSpec()).error().message; };
  const std::string no_library = why();
  std::filesystem::remove(options.nvrtc.path);
  EXPECT_EQ(why(), no_library) << "kept for a while";
  files.SetNow(1'800'000'010);
  EXPECT_NE(why(), no_library);
  EXPECT_THAT(why(), HasSubstr("No such file"));
}

TEST_F(StoreFaults, AListThatCannotBeWrittenIsSaidInTheError) {
  auto options = FakeOptions(root, compiler);
  options.mode = CacheMode::kStrict;
  const auto store = Open(options);
  files.Arm({.kind = Fault::kError, .error = EACCES, .lasting = true, .path_part = "missing.txt"});
  for (int i = 0; i < 2; ++i) {
    const auto handle = store->Compile(GemmSpec(i));
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(handle.error().message, HasSubstr("Permission denied"));
  }
  files.Disarm();
  EXPECT_THAT(store->warnings(), SizeIs(1));
  // Once it can be written, what was missing is noted.
  ASSERT_FALSE(store->Compile(GemmSpec(0)));
  EXPECT_THAT(ReadWhole(root + "/missing.txt"), HasSubstr(SpecName(GemmSpec(0))));
}

TEST_F(StoreFaults, TenThousandOperationsLeaveNothingBehind) {
  const auto go = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      auto options = FakeOptions(root, compiler);
      options.mode = round % 2 == 0 ? CacheMode::kNormal : CacheMode::kRefresh;
      const auto store = OpenFake(options);
      for (int i = 0; i < 100; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
    }
  };
  go(2);
  const std::size_t descriptors = OpenDescriptors();
  const auto names = FilesUnder(root);
  go(100);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(FilesUnder(root), names);
}

}  // namespace
}  // namespace tilewright::test
