// The facade over bundles: they can be used without a compiler, and entries that do not fit are
// refused by field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "tilewright/bundle.h"

namespace tilewright::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto kBundle = static_cast<std::size_t>(ArtifactLayer::kBundle);
constexpr auto kUser = static_cast<std::size_t>(ArtifactLayer::kUser);
std::size_t At(MissReason reason) { return static_cast<std::size_t>(reason); }

class StoreBundles : public ::testing::Test {
 protected:
  /// A bundle of `specs`, made by `compiler`.
  std::string MakeBundle(const std::string& name, const std::vector<KernelSpec>& specs,
                         std::shared_ptr<const KernelCompiler> compiler) {
    const TemporaryFolder own;
    const auto store = OpenFake(FakeOptions(own / "root", std::move(compiler)));
    std::vector<ArtifactData> artifacts;
    for (const auto& handle : store->CompileAll(specs)) {
      if (!handle) std::abort();
      artifacts.push_back(**handle);
    }
    const auto bytes = EncodeBundle(artifacts);
    if (!bytes) std::abort();
    WriteWhole(folder / name, *bytes);
    return folder / name;
  }
  /// No compiler anywhere.
  ArtifactStoreOptions Bare(CacheMode mode, const std::string& bundle) {
    auto options = FakeOptions(root, nullptr);
    options.nvrtc.path = folder / "no-nvrtc";
    options.mode = mode;
    options.bundles = {bundle};
    return options;
  }

  const TemporaryFolder folder;
  const std::string root = folder / "root";
  std::shared_ptr<FakeCompiler> compiler = MakeFakeCompiler();
};

TEST_F(StoreBundles, ABundleServesStrictModeWithoutAnyCompiler) {
  const std::string bundle = MakeBundle("a.twb", LayoutSpecs(), compiler);
  const auto store = OpenFake(Bare(CacheMode::kStrict, bundle));
  for (const auto& handle : store->CompileAll(LayoutSpecs())) {
    ASSERT_TRUE(handle) << handle.error().message;
  }
  for (const KernelSpec& spec : LayoutSpecs()) {
    const KernelHandle handle = store->Find(spec);
    ASSERT_TRUE(handle);
    EXPECT_EQ(handle->spec, spec);
    EXPECT_FALSE(handle->cubin.empty());
    EXPECT_EQ(handle->launch.threads, 128u);
  }
  EXPECT_EQ(store->process_counters().hits[kBundle], 4u);
  EXPECT_THAT(store->warnings(), IsEmpty());
  EXPECT_THAT(EntryFilesUnder(root), IsEmpty());
}

TEST_F(StoreBundles, ABundleServesAProcessWithAnotherCompiler) {
  const std::string bundle = MakeBundle("a.twb", {GemmSpec()}, compiler);
  for (const CacheMode mode : {CacheMode::kNormal, CacheMode::kStrict, CacheMode::kVerify,
                               CacheMode::kReadonly, CacheMode::kOffline}) {
    const auto other = MakeFakeCompiler({.version = "12.9"});
    auto options = FakeOptions(root, other);
    options.mode = mode;
    options.bundles = {bundle};
    const auto handle = OpenFake(options)->Compile(GemmSpec());
    ASSERT_TRUE(handle) << handle.error().message;
    EXPECT_EQ((*handle)->compiler.version, "13.0");
    EXPECT_EQ(other->compiles(), 0);
  }
}

TEST_F(StoreBundles, TheFirstOfTwoBundlesIsTakenAndRefreshTakesNone) {
  const std::string newer =
      MakeBundle("new.twb", {GemmSpec(0)}, MakeFakeCompiler({.salt = "newer"}));
  const std::string older = MakeBundle("old.twb", {GemmSpec(0), GemmSpec(1)}, compiler);
  auto options = FakeOptions(root, MakeFakeCompiler({.salt = "own"}));
  options.bundles = {newer, older};
  const auto store = OpenFake(options);
  const auto first = store->Compile(GemmSpec(0));
  const auto second = store->Compile(GemmSpec(1));
  ASSERT_TRUE(first && second);
  const auto old_store = OpenFake(Bare(CacheMode::kStrict, older));
  EXPECT_NE((*first)->cubin, (*old_store->Compile(GemmSpec(0)))->cubin);
  EXPECT_EQ((*second)->cubin, (*old_store->Compile(GemmSpec(1)))->cubin);
  options.mode = CacheMode::kRefresh;
  const auto refresh = OpenFake(options);
  const auto made = refresh->Compile(GemmSpec(0));
  ASSERT_TRUE(made);
  EXPECT_NE((*made)->cubin, (*first)->cubin);
  EXPECT_EQ(refresh->process_counters().misses[kBundle][At(MissReason::kIgnored)], 1u);
}

TEST_F(StoreBundles, WhatDoesNotFitIsRefusedByFieldCountedAndToldOnce) {
  const std::string bundle = MakeBundle("a.twb", GemmSpecs(3), compiler);
  auto options = Bare(CacheMode::kNormal, bundle);
  options.device = {.launch_abi = 0, .compute_capability = 80, .driver = 0};
  const auto arch = OpenFake(options);
  for (int i = 0; i < 3; ++i) {
    const auto handle = arch->Compile(GemmSpec(i));
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(handle.error().message, HasSubstr("no-nvrtc"));
    EXPECT_THAT(handle.error().message, HasSubstr("arch: "));
  }
  EXPECT_EQ(arch->process_counters().misses[kBundle][At(MissReason::kIncompatible)], 3u);
  EXPECT_THAT(arch->warnings(), SizeIs(1));

  options.mode = CacheMode::kStrict;
  options.device = {.launch_abi = 0, .compute_capability = 90, .driver = 12080};
  const auto strict = OpenFake(options)->Compile(GemmSpec());
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(strict.error().message, HasSubstr("min_driver: "));

  options.device.driver = 13000;
  EXPECT_TRUE(OpenFake(options)->Compile(GemmSpec()));
}

TEST_F(StoreBundles, ADamagedEntryIsAMissAndTheOthersServe) {
  const std::string file = MakeBundle("a.twb", GemmSpecs(3), compiler);
  std::string cubin;
  {
    const auto store = OpenFake(Bare(CacheMode::kStrict, file));
    cubin = (*store->Compile(GemmSpec(1)))->cubin;
  }
  std::string bytes = ReadWhole(file);
  const std::size_t at = bytes.find(cubin);
  ASSERT_NE(at, std::string::npos);
  bytes[at + cubin.size() / 2] ^= 4;
  WriteWhole(file, bytes);

  auto options = FakeOptions(root, MakeFakeCompiler());
  options.bundles = {file};
  const auto store = OpenFake(options);
  for (int i = 0; i < 3; ++i) {
    const auto handle = store->Compile(GemmSpec(i));
    ASSERT_TRUE(handle) << handle.error().message;
    if (i == 1) {
      EXPECT_EQ((*handle)->cubin, cubin);  // compiled, by the same compiler
    }
  }
  EXPECT_EQ(store->process_counters().compiles, 1u);
  EXPECT_EQ(store->process_counters().misses[kBundle][At(MissReason::kCorrupt)], 1u);
  EXPECT_EQ(store->process_counters().hits[kBundle], 2u);
  EXPECT_THAT(store->warnings(), SizeIs(1));
  const auto report = store->Verify(false);
  EXPECT_THAT(report.troubles, testing::Not(IsEmpty()));
}

TEST_F(StoreBundles, VerifyModeComparesWhatTheSameCompilerMade) {
  const std::string good = MakeBundle("good.twb", {GemmSpec()}, compiler);
  const std::string planted =
      MakeBundle("planted.twb", {GemmSpec()}, MakeFakeCompiler({.salt = "planted"}));
  auto options = FakeOptions(root, compiler);
  options.mode = CacheMode::kVerify;
  options.bundles = {good};
  EXPECT_TRUE(OpenFake(options)->Compile(GemmSpec()));
  options.bundles = {planted};
  const auto handle = OpenFake(options)->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(handle.error().message, HasSubstr("planted.twb"));
  EXPECT_EQ(OpenFake(Bare(CacheMode::kVerify, good))->Compile(GemmSpec()).error().code,
            ErrorCode::kUnavailable);
}

TEST_F(StoreBundles, TheListOfAStrictRunMakesABundleThatMakesTheNextRunClean) {
  auto options = Bare(CacheMode::kStrict, "");
  options.bundles.clear();
  options.missing_list = folder / "list.txt";
  {
    const auto store = OpenFake(options);
    for (const auto& handle : store->CompileAll(GemmSpecs(6))) EXPECT_FALSE(handle);
  }
  const auto specs = ParseSpecList(ReadWhole(options.missing_list), "list.txt");
  ASSERT_TRUE(specs);
  ASSERT_THAT(*specs, SizeIs(6));
  options.bundles = {MakeBundle("list.twb", *specs, compiler)};
  const std::string before = ReadWhole(options.missing_list);
  const auto store = OpenFake(options);
  for (const auto& handle : store->CompileAll(GemmSpecs(6))) ASSERT_TRUE(handle);
  EXPECT_EQ(ReadWhole(options.missing_list), before);
}

TEST_F(StoreBundles, ABundleIsAskedBeforeTheUsersFolder) {
  const std::string bundle = MakeBundle("a.twb", {GemmSpec()}, MakeFakeCompiler({.salt = "b"}));
  ASSERT_TRUE(OpenFake(FakeOptions(root, compiler))->Compile(GemmSpec()));
  auto options = FakeOptions(root, compiler);
  options.bundles = {bundle};
  const auto store = OpenFake(options);
  const auto handle = store->Compile(GemmSpec());
  ASSERT_TRUE(handle);
  EXPECT_EQ(store->process_counters().hits[kBundle], 1u);
  EXPECT_EQ(store->process_counters().hits[kUser], 0u);
  // A kernel of a bundle can be carried on.
  const auto bytes = store->Serialize(*handle);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto adopted = OpenFake(Bare(CacheMode::kNormal, bundle))->Deserialize(*bytes);
  EXPECT_TRUE(adopted);
}

TEST_F(StoreBundles, ReportsCoverBundles) {
  const std::string bundle = MakeBundle("a.twb", GemmSpecs(2), compiler);
  const auto store = OpenFake(Bare(CacheMode::kNormal, bundle));
  const auto entries = store->List();
  ASSERT_THAT(entries, SizeIs(2));
  for (const auto& entry : entries) {
    EXPECT_EQ(entry.layer, ArtifactLayer::kBundle);
    EXPECT_EQ(entry.place, bundle);
    EXPECT_THAT(entry.spec, HasSubstr("fake_gemm."));
    const auto bytes = store->ReadEntry(entry);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const auto data = DecodeArtifact(*bytes);
    ASSERT_TRUE(data);
    EXPECT_EQ(data->request, entry.request);
  }
  const auto hit = store->Explain(GemmSpec(1));
  ASSERT_TRUE(hit);
  EXPECT_TRUE(std::any_of(hit->layers.begin(), hit->layers.end(), [](const auto& layer) {
    return layer.layer == ArtifactLayer::kBundle && layer.hit;
  }));
  const auto miss = store->Explain(GemmSpec(2));
  ASSERT_TRUE(miss);
  EXPECT_EQ(miss->action, ArtifactKey());
  ASSERT_THAT(miss->differences, SizeIs(1));
  EXPECT_EQ(miss->differences[0].field, "param0");
  EXPECT_THAT(miss->nearest, HasSubstr("a.twb"));
  // A bundle serves whatever compiler is here, so none is named.
  auto options = Bare(CacheMode::kNormal, bundle);
  options.compiler = MakeFakeCompiler({.version = "13.1"});
  const auto other = OpenFake(options)->Explain(GemmSpec(2));
  ASSERT_TRUE(other);
  ASSERT_THAT(other->differences, SizeIs(1));
  EXPECT_EQ(other->differences[0].field, "param0");
  EXPECT_EQ(store->Verify(false).good, 2u);
}

TEST_F(StoreBundles, ADamagedHeaderIsAnErrorOfTheName) {
  const std::string file = MakeBundle("a.twb", GemmSpecs(1), compiler);
  WriteWhole(file, ReadWhole(file).substr(0, 40));
  const auto store = ArtifactStore::Open(FakeFamilies(), Bare(CacheMode::kNormal, file));
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(store.error().message, HasSubstr("a.twb"));
}

TEST_F(StoreBundles, AStrippedArtifactServesUnlessWholeOnesAreAskedFor) {
  std::string stripped;
  {
    const TemporaryFolder own;
    const auto store = OpenFake(FakeOptions(own / "root", compiler));
    ArtifactData data = **store->Compile(GemmSpec());
    data.ptx = {};
    data.source = {};
    stripped = *EncodeArtifact(data);
    WriteWhole(folder / "stripped.twb",
               *EncodeBundle(std::vector{data}, {.with_ptx = false, .with_source = false}));
  }
  auto options = FakeOptions(root, compiler);
  ASSERT_TRUE(OpenFake(options)->Import(stripped).value());
  {
    const int before = compiler->compiles();
    const auto handle = OpenFake(options)->Compile(GemmSpec());
    ASSERT_TRUE(handle);
    EXPECT_THAT((*handle)->ptx, IsEmpty());
    EXPECT_EQ(compiler->compiles(), before);
  }
  options.whole_artifacts = true;
  {
    auto strict = options;
    strict.mode = CacheMode::kStrict;
    const auto handle = OpenFake(strict)->Compile(GemmSpec());
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(handle.error().message, HasSubstr("ptx: omitted"));
  }
  options.bundles = {folder / "stripped.twb"};
  {
    const auto store = OpenFake(options);
    EXPECT_EQ(store->Deserialize(stripped).error().code, ErrorCode::kUnsupported);
    const auto explained = store->Explain(GemmSpec());
    ASSERT_TRUE(explained);
    for (const auto& layer : explained->layers) EXPECT_FALSE(layer.hit) << layer.place;
    const auto handle = store->Compile(GemmSpec());
    ASSERT_TRUE(handle) << handle.error().message;
    EXPECT_FALSE((*handle)->ptx.empty());
    EXPECT_FALSE((*handle)->source.empty());
    EXPECT_EQ(store->process_counters().compiles, 1u);
    EXPECT_EQ(store->process_counters().publishes, 1u);
    EXPECT_EQ(store->process_counters().misses[kBundle][At(MissReason::kIncompatible)], 1u);
    EXPECT_EQ(store->process_counters().misses[kUser][At(MissReason::kIncompatible)], 1u);
  }
  // It is stored: nothing is compiled the next time, and it is whole for everybody.
  const auto again = OpenFake(options);
  const auto handle = again->Compile(GemmSpec());
  ASSERT_TRUE(handle);
  EXPECT_FALSE((*handle)->source.empty());
  EXPECT_EQ(again->process_counters().compiles, 0u);
  EXPECT_EQ(again->process_counters().hits[kUser], 1u);
}

}  // namespace
}  // namespace tilewright::test
