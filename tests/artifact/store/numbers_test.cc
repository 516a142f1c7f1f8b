// What the store costs, counted: AllocationProbe::Count(), calls of the file system, bytes read, compilations.
// The times are recorded by bench/artifact (docs/artifact_store.md, "Times").
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "artifact/store/store_impl.h"
#include "core/allocation_probe.h"
#include "core/faulty_filesystem.h"
#include "tilewright/artifact_key.h"
#include "tilewright/bundle.h"

namespace tilewright::test {
namespace {

std::int64_t AllocationsOf(const std::function<void()>& work) {
  const std::int64_t before = AllocationProbe::Count();
  work();
  return AllocationProbe::Count() - before;
}

TEST(StoreCosts, AKeyIsMadeWithoutReadingTheSourcesAgain) {
  FakeSources large;
  for (int i = 0; i < 20000; ++i) large.tile += "// another line of a header that is large\n";
  std::int64_t counts[2] = {};
  for (int i = 0; i < 2; ++i) {
    const KernelFamilies families = FakeFamilies(i == 0 ? FakeSources() : large);
    const auto sources = KernelSources::Make(families);
    ASSERT_TRUE(sources);
    const KernelFamily& family = *families.Find("fake_gemm");
    counts[i] = AllocationsOf([&] {
      for (int n = 0; n < 100; ++n) ASSERT_TRUE(MakeRequestRecord(GemmSpec(n), family, *sources));
    });
  }
  EXPECT_EQ(counts[0], counts[1]) << "the size of a header does not matter";
  EXPECT_LE(counts[0], 100 * 40);
}

TEST(StoreCosts, AHandleIsFoundWithoutAllocationOrSystemCallHoweverManyThereAre) {
  const TemporaryFolder folder;
  FaultyFilesystem files;
  const auto store = *OpenArtifactStore(
      FakeFamilies(), FakeOptions(folder / "root", MakeFakeCompiler()), {.files = &files});
  const std::vector<KernelSpec> specs = GemmSpecs(500);
  for (const auto& handle : store->CompileAll(specs)) ASSERT_TRUE(handle);
  const std::int64_t calls = files.calls();
  int found = 0;
  EXPECT_EQ(AllocationsOf([&] {
              for (const KernelSpec& spec : specs) found += static_cast<bool>(store->Find(spec));
              for (int i = 0; i < 500; ++i) found += static_cast<bool>(store->Find(NormSpec(i)));
            }),
            0);
  EXPECT_EQ(found, 500);
  EXPECT_EQ(files.calls(), calls);
}

TEST(StoreCosts, AFileHitReadsItsFileOnceAndAMemoryHitNothing) {
  const TemporaryFolder folder;
  for (const std::size_t cubin_bytes : {std::size_t{1} << 10, std::size_t{150} << 10}) {
    const std::string root = folder / std::to_string(cubin_bytes);
    const auto compiler = MakeFakeCompiler({.cubin_bytes = cubin_bytes});
    const std::vector<KernelSpec> specs = GemmSpecs(8);
    for (const auto& handle : OpenFake(FakeOptions(root, compiler))->CompileAll(specs)) {
      ASSERT_TRUE(handle);
    }
    std::int64_t stored = 0;
    for (const std::string& file : EntryFilesUnder(root)) {
      stored += static_cast<std::int64_t>(ReadWhole(file).size());
    }
    FaultyFilesystem files;
    const auto store =
        *OpenArtifactStore(FakeFamilies(), FakeOptions(root, compiler), {.files = &files});
    const auto compile_all = [&] {
      for (const KernelSpec& spec : specs) ASSERT_TRUE(store->Compile(spec));
    };
    std::int64_t calls = files.calls(), read = files.bytes_read();
    compile_all();
    EXPECT_EQ(files.bytes_read() - read, stored);
    EXPECT_LE(files.calls() - calls, 8 * 20);
    calls = files.calls(), read = files.bytes_read();
    compile_all();
    EXPECT_EQ(files.bytes_read(), read);
    EXPECT_LE(files.calls() - calls, 8) << "one look at the file of counters a hit";
    EXPECT_EQ(compiler->compiles(), 8);
  }
}

TEST(StoreCosts, OpeningLooksAtNoEntry) {
  const TemporaryFolder folder;
  const auto compiler = MakeFakeCompiler();
  std::int64_t calls[2] = {}, read[2] = {};
  int i = 0;
  for (const int entries : {1, 1000}) {
    for (const auto& handle :
         OpenFake(FakeOptions(folder / "root", compiler))->CompileAll(GemmSpecs(entries))) {
      ASSERT_TRUE(handle);
    }
    FaultyFilesystem files;
    ASSERT_TRUE(OpenArtifactStore(FakeFamilies(), FakeOptions(folder / "root", compiler),
                                  {.files = &files}));
    calls[i] = files.calls();
    read[i++] = files.bytes_read();
  }
  EXPECT_LE(calls[1], calls[0] + 256) << "a look at each shard";
  EXPECT_EQ(read[1], read[0]);
}

TEST(StoreCosts, ABundleHitTouchesNoFolderButForCounting) {
  const TemporaryFolder folder;
  const auto compiler = MakeFakeCompiler({.cubin_bytes = 150 << 10});
  const std::vector<KernelSpec> specs = GemmSpecs(8);
  std::vector<ArtifactData> artifacts;
  const auto maker = OpenFake(FakeOptions(folder / "maker", compiler));
  for (const auto& handle : maker->CompileAll(specs)) artifacts.push_back(**handle);
  WriteWhole(folder / "b.twb", *EncodeBundle(artifacts));
  auto options = FakeOptions(folder / "root", compiler);
  options.bundles = {folder / "b.twb"};
  FaultyFilesystem files;
  const auto store = *OpenArtifactStore(FakeFamilies(), options, {.files = &files});
  const std::int64_t calls = files.calls(), read = files.bytes_read();
  for (const KernelSpec& spec : specs) ASSERT_TRUE(store->Compile(spec));
  EXPECT_EQ(files.bytes_read(), read);
  EXPECT_LE(files.calls() - calls, 8 * 4) << "a hit, a miss in memory, what was saved";
  EXPECT_EQ(compiler->compiles(), 8);
}

}  // namespace
}  // namespace tilewright::test
