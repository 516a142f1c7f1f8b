// The facade of the artifact store within one process: layers, modes, refusals, bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/counters.h"
#include "artifact/store/fake_compiler.h"
#include "artifact/store/store_fixture.h"
#include "tilewright/artifact_key.h"
#include "tilewright/artifact_store.h"

namespace tilewright::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- compiling and finding again

TEST_F(StoreTest, CompilesOnceAndServesFromMemory) {
  const auto store = Open();
  EXPECT_FALSE(store->Find(GemmSpec()));
  const auto first = store->Compile(GemmSpec());
  ASSERT_TRUE(first) << first.error().message;
  const auto second = store->Compile(GemmSpec());
  ASSERT_TRUE(second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(store->Find(GemmSpec()), *first);
  EXPECT_EQ(compiler->compiles(), 1);

  const ArtifactData& data = **first;
  EXPECT_EQ(data.spec, GemmSpec());
  EXPECT_EQ(data.symbol, KernelSymbol(GemmSpec(), data.request));
  EXPECT_EQ(data.launch.threads, 128u);
  EXPECT_EQ(data.resources.registers, 32u);
  EXPECT_THAT(std::string(data.source), HasSubstr("kernel gemm"));
  EXPECT_THAT(std::string(data.source), HasSubstr("namespace tw::spec"));
  EXPECT_THAT(std::string(data.ptx), HasSubstr(data.symbol));
  EXPECT_FALSE(data.cubin.empty());

  const ArtifactCounters counters = store->process_counters();
  EXPECT_EQ(counters.compiles, 1u);
  EXPECT_EQ(counters.requests_missed, 1u);
  EXPECT_EQ(counters.hits[kMemory], 1u);
  EXPECT_EQ(counters.misses[kMemory][At(MissReason::kAbsent)], 1u);
  EXPECT_EQ(counters.misses[kUser][At(MissReason::kAbsent)], 1u);
  EXPECT_EQ(counters.publishes, 1u);
  EXPECT_THAT(store->warnings(), IsEmpty());
}

TEST_F(StoreTest, ALaterStoreCompilesNothingHoweverItIsAsked) {
  constexpr std::uint64_t kHourUs = 3'600'000'000;
  compiler = MakeFakeCompiler({.reported_ms = kHourUs / 1e3});
  for (const KernelSpec& spec : LayoutSpecs()) ASSERT_TRUE(Open()->Compile(spec));
  ASSERT_EQ(compiler->compiles(), 4);
  {
    const auto store = Open();
    for (const KernelSpec& spec : LayoutSpecs()) EXPECT_FALSE(store->Find(spec));
    for (const KernelSpec& spec : LayoutSpecs()) EXPECT_TRUE(store->Compile(spec));
    for (const KernelSpec& spec : LayoutSpecs()) EXPECT_TRUE(store->Find(spec));
    EXPECT_EQ(store->process_counters().hits[kUser], 4u);
    EXPECT_GT(store->process_counters().saved_us, 4 * kHourUs / 2) << "each said an hour";
    EXPECT_LE(store->process_counters().saved_us, 4 * kHourUs);
  }
  for (const auto& handle : Open()->CompileAll(LayoutSpecs())) EXPECT_TRUE(handle);
  EXPECT_EQ(compiler->compiles(), 4);
}

TEST_F(StoreTest, LayoutsAreKernelsOfTheirOwn) {
  const auto store = Open();
  std::set<std::string> cubins;
  for (const auto& handle : store->CompileAll(LayoutSpecs())) {
    ASSERT_TRUE(handle);
    cubins.insert(std::string((*handle)->cubin));
  }
  EXPECT_THAT(cubins, SizeIs(4));
}

TEST_F(StoreTest, RefusesWhatNoFamilyMakesBeforeAnyWork) {
  const auto store = Open();
  KernelSpec spec = GemmSpec();
  spec.tile_m = 0;
  const auto rejected = store->Compile(spec);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(rejected.error().message, HasSubstr("tile_m = 0"));
  spec.family = "nobody";
  const auto unknown = store->Compile(spec);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, HasSubstr("nobody"));
  EXPECT_EQ(compiler->compiles(), 0);
}

TEST_F(StoreTest, AnEditedHeaderRecompilesExactlyItsDependants) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  ASSERT_TRUE(Open()->Compile(NormSpec()));
  ASSERT_EQ(compiler->compiles(), 2);
  FakeSources edited;
  edited.tile += "// edited\n";
  const auto newer = OpenFake(Options(), FakeFamilies(edited));
  ASSERT_TRUE(newer->Compile(GemmSpec()));
  ASSERT_TRUE(newer->Compile(NormSpec()));
  EXPECT_EQ(newer->process_counters().compiles, 1u);
  // Both versions live on one root.
  const auto older = Open();
  ASSERT_TRUE(older->Compile(GemmSpec()));
  EXPECT_EQ(older->process_counters().compiles, 0u);
}

TEST_F(StoreTest, AnotherCompilerMakesItsOwnEntries) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  auto options = Options();
  options.compiler = MakeFakeCompiler({.build_id = "ffff112233445566778899aabbccddeeff001122"});
  const auto store = OpenFake(options);
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->process_counters().compiles, 1u);
  EXPECT_EQ(store->GetTotals().entries, 2u);
}

TEST_F(StoreTest, ARootThatMovedStillServes) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  std::filesystem::rename(root, folder / "elsewhere");
  auto options = Options();
  options.root = folder / "elsewhere";
  const auto store = OpenFake(options);
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->process_counters().compiles, 0u);
}

TEST_F(StoreTest, ARelativeRootIsTheFolderItWasWhenTheStoreWasOpened) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  auto options = Options();
  options.root = "relative";
  const auto store = OpenFake(options);
  std::filesystem::current_path(before);
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_THAT(EntryFilesUnder(folder / "relative"), SizeIs(1));
}

TEST_F(StoreTest, ADamagedEntryIsQuarantinedRebuiltAndCounted) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  const auto files = EntryFilesUnder(root);
  ASSERT_THAT(files, SizeIs(1));
  std::string bytes = ReadWhole(files[0]);
  bytes[bytes.size() / 2] ^= 1;
  WriteWhole(files[0], bytes);

  const auto store = Open();
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 2);
  EXPECT_EQ(store->process_counters().misses[kUser][At(MissReason::kCorrupt)], 1u);
  EXPECT_EQ(store->process_counters().quarantined, 1u);
  EXPECT_EQ(store->GetTotals().quarantined, 1u);
  EXPECT_THAT(store->warnings(), SizeIs(1));
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 2);
}

TEST_F(StoreTest, CountersOutliveTheProcess) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  const auto store = Open();
  EXPECT_EQ(store->counters().compiles, 1u);
  EXPECT_EQ(store->counters().hits[kUser], 1u);
  EXPECT_EQ(store->counters().requests_missed, 1u);
  EXPECT_EQ(store->process_counters().compiles, 0u);
  // Who may only read the folder sees them too.
  const auto reader = Open(CacheMode::kReadonly);
  EXPECT_EQ(reader->counters().compiles, 1u);
  ASSERT_TRUE(reader->Compile(GemmSpec()));
  EXPECT_EQ(reader->counters().hits[kUser], 2u);  // its own are added
  EXPECT_EQ(store->counters().hits[kUser], 1u);   // and not kept
}

TEST_F(StoreTest, CompilesNoMoreAtOnceThanItMay) {
  compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(10)});
  const auto store = Open();  // two
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] { EXPECT_TRUE(store->Compile(GemmSpec(i))); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(compiler->most_at_once(), 2);
  EXPECT_EQ(compiler->compiles(), 6);
}

// ---- CompileAll

TEST_F(StoreTest, CompileAllAnswersInOrderAlsoForSpecsThatStandTwice) {
  const auto store = Open();
  std::vector<KernelSpec> specs = GemmSpecs(10);
  specs.push_back(specs[3]);
  specs[5].tile_m = 0;
  const auto handles = store->CompileAll(specs);
  ASSERT_THAT(handles, SizeIs(11));
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (i == 5) {
      ASSERT_FALSE(handles[i]);
      EXPECT_EQ(handles[i].error().code, ErrorCode::kInvalidArgument);
    } else {
      ASSERT_TRUE(handles[i]);
      EXPECT_EQ((*handles[i])->spec, specs[i]);
    }
  }
  EXPECT_EQ(compiler->compiles(), 9);
  EXPECT_THAT(store->CompileAll({}), IsEmpty());
}

TEST_F(StoreTest, MemoryThatRunsOutOnAWorkerIsTheFailureOfThatKernelAlone) {
  std::vector<KernelSpec> specs = GemmSpecs(4);
  specs[2].tile_m = kTileOfNoMemory;
  const auto handles = Open()->CompileAll(specs);
  for (std::size_t i = 0; i < handles.size(); ++i) {
    ASSERT_EQ(handles[i].has_value(), i != 2);
    if (i == 2) {
      EXPECT_EQ(handles[i].error().code, ErrorCode::kOutOfMemory);
    }
  }
}

TEST_F(StoreTest, CompileAllTellsProgressOnTheCallersThread) {
  ASSERT_TRUE(Open()->Compile(GemmSpec(0)));
  const auto store = Open();
  const auto caller = std::this_thread::get_id();
  std::vector<CompileProgress> told;
  CompileControl control;
  control.progress = [&](const CompileProgress& progress) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    told.push_back(progress);
  };
  for (const auto& handle : store->CompileAll(GemmSpecs(5), control)) ASSERT_TRUE(handle);
  ASSERT_THAT(told, SizeIs(5));
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].done, i + 1);
    EXPECT_EQ(told[i].total, 5u);
  }
  EXPECT_EQ(told.back().compiled, 4u);
}

TEST_F(StoreTest, CompileAllCanBeCancelled) {
  compiler = MakeFakeCompiler({.hangs = true});
  const auto store = Open();
  CompileControl control;
  control.cancelled = [&] { return compiler->compiles() > 0; };
  for (const auto& handle : store->CompileAll(GemmSpecs(20), control)) {
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kCancelled);
  }
  EXPECT_LE(compiler->compiles(), 2);
  EXPECT_THAT(EntryFilesUnder(root), IsEmpty());
}

// ---- failures

TEST_F(StoreTest, ARefusalOfTheCompilerIsRememberedAcrossProcesses) {
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) { return Refusal(); }});
  const auto store = Open();
  for (int i = 0; i < 3; ++i) {
    const auto handle = store->Compile(GemmSpec());
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(handle.error().message, HasSubstr("error: no such"));
  }
  EXPECT_EQ(store->process_counters().misses[kMemory][At(MissReason::kNegative)], 2u);
  const auto later = Open();
  const auto handle = later->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(handle.error().message, HasSubstr("error: no such"));
  EXPECT_EQ(compiler->compiles(), 1);
  // Refresh asks again, once a process.
  const auto refresh = Open(CacheMode::kRefresh);
  for (int i = 0; i < 3; ++i) ASSERT_FALSE(refresh->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 2);
  EXPECT_EQ(later->process_counters().misses[kUser][At(MissReason::kNegative)], 1u);
  EXPECT_EQ(later->GetTotals().negative, 1u);
}

TEST_F(StoreTest, ARefusalEndsWithItsTimeOrItsCompiler) {
  auto fails = MakeFakeCompiler({.fails = [](const CompileJob&) { return Refusal(); }});
  compiler = fails;
  ASSERT_FALSE(Open()->Compile(GemmSpec()));
  auto options = Options();
  options.negative_ttl_s = 0;
  ASSERT_FALSE(OpenFake(options)->Compile(GemmSpec()));
  EXPECT_EQ(fails->compiles(), 2);
  options = Options();
  options.compiler = MakeFakeCompiler({.version = "13.1"});
  EXPECT_TRUE(OpenFake(options)->Compile(GemmSpec()));
}

TEST_F(StoreTest, WhatMayPassIsNeverRemembered) {
  for (const ErrorCode code :
       {ErrorCode::kOutOfMemory, ErrorCode::kCancelled, ErrorCode::kInternal, ErrorCode::kIo}) {
    auto fails = MakeFakeCompiler({.fails = [&](const CompileJob&) {
      return CompileFailure{false, {code, "passing"}, ""};
    }});
    compiler = fails;
    const auto store = Open();
    for (int i = 0; i < 2; ++i) {
      const auto handle = store->Compile(GemmSpec());
      ASSERT_FALSE(handle);
      EXPECT_EQ(handle.error().code, code);
    }
    EXPECT_EQ(fails->compiles(), 2);
    EXPECT_EQ(store->GetTotals().negative, 0u);
  }
  compiler = MakeFakeCompiler();
  EXPECT_TRUE(Open()->Compile(GemmSpec()));
}

TEST_F(StoreTest, ACompilerThatThrowsPoisonsNothing) {
  bool throws = true;
  compiler = MakeFakeCompiler({.fails = [&](const CompileJob&) -> std::optional<CompileFailure> {
    if (throws) throw std::runtime_error("thrown");
    return std::nullopt;
  }});
  const auto store = Open();
  const auto handle = store->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_THAT(handle.error().message, HasSubstr("thrown"));
  const auto all = store->CompileAll(GemmSpecs(3));
  for (const auto& one : all) EXPECT_FALSE(one);
  throws = false;
  EXPECT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->GetTotals().negative, 0u);
}

// ---- modes

TEST_F(StoreTest, ReadonlyCompilesIntoMemoryAndWritesNothing) {
  ASSERT_TRUE(Open()->Compile(GemmSpec(0)));
  const auto before = FilesUnder(root);
  std::vector<std::string> bytes;
  for (const std::string& file : before) bytes.push_back(ReadWhole(file));
  {
    const auto store = Open(CacheMode::kReadonly);
    ASSERT_TRUE(store->Compile(GemmSpec(0)));
    ASSERT_TRUE(store->Compile(GemmSpec(1)));
    EXPECT_TRUE(store->Find(GemmSpec(1)));
    EXPECT_EQ(store->process_counters().hits[kUser], 1u);
    EXPECT_THAT(store->warnings(), IsEmpty());
  }
  EXPECT_EQ(FilesUnder(root), before);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(ReadWhole(before[i]), bytes[i]);
}

TEST_F(StoreTest, ReadonlyMakesNoFolder) {
  ASSERT_TRUE(Open(CacheMode::kReadonly)->Compile(GemmSpec()));
  EXPECT_FALSE(std::filesystem::exists(root));
}

TEST_F(StoreTest, StrictNamesWhatIsMissingOnceAndTheListMakesTheNextRunClean) {
  {
    const auto store = Open(CacheMode::kStrict);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 4; ++i) {
        const auto handle = store->Compile(GemmSpec(i));
        ASSERT_FALSE(handle);
        EXPECT_EQ(handle.error().code, ErrorCode::kNotFound);
        EXPECT_THAT(handle.error().message, HasSubstr(SpecName(GemmSpec(i))));
        EXPECT_THAT(handle.error().message, HasSubstr("missing.txt"));
      }
    }
    EXPECT_THAT(Open(CacheMode::kStrict)->CompileAll(GemmSpecs(5)), SizeIs(5));
    EXPECT_EQ(compiler->compiles(), 0);
  }
  const std::string list = ReadWhole(root + "/missing.txt");
  const auto specs = ParseSpecList(list, "missing.txt");
  ASSERT_TRUE(specs) << specs.error().message;
  std::set<KernelSpec> distinct(specs->begin(), specs->end());
  EXPECT_THAT(*specs, SizeIs(5));
  EXPECT_THAT(distinct, SizeIs(5));
  for (const auto& handle : Open()->CompileAll(*specs)) ASSERT_TRUE(handle);
  const auto clean = Open(CacheMode::kStrict);
  for (const auto& handle : clean->CompileAll(GemmSpecs(5))) ASSERT_TRUE(handle);
  EXPECT_EQ(ReadWhole(root + "/missing.txt"), list);
}

TEST_F(StoreTest, AListWithHalfALineKeepsWhatComesAfter) {
  auto options = Options(CacheMode::kStrict);
  options.missing_list = folder / "list.txt";
  WriteWhole(options.missing_list, "# comment\n\n" + SpecName(GemmSpec(1)).substr(0, 9));
  ASSERT_FALSE(OpenFake(options)->Compile(GemmSpec(2)));
  const std::string text = ReadWhole(options.missing_list);
  EXPECT_TRUE(text.ends_with("\n" + SpecName(GemmSpec(2)) + "\n")) << text;
}

TEST_F(StoreTest, StrictTellsWhatTheCompilerRefusedRatherThanListingIt) {
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) { return Refusal(); }});
  ASSERT_FALSE(Open()->Compile(GemmSpec()));
  const auto handle = Open(CacheMode::kStrict)->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(std::filesystem::exists(root + "/missing.txt"));
}

TEST_F(StoreTest, WithoutACompilerTheErrorSaysWhereItWasLookedFor) {
  auto options = Options();
  options.compiler = nullptr;
  options.nvrtc.path = folder / "no-nvrtc-here";
  const auto store = OpenFake(options);
  const auto handle = store->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(handle.error().message, HasSubstr("no-nvrtc-here"));
  options.mode = CacheMode::kStrict;
  const auto strict = OpenFake(options)->Compile(GemmSpec());
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, ErrorCode::kNotFound);
}

TEST_F(StoreTest, VerifyComparesOnceAProcessAndFindsAPlantedDifference) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  {
    const auto store = Open(CacheMode::kVerify);
    ASSERT_TRUE(store->Compile(GemmSpec()));
    ASSERT_TRUE(store->Compile(GemmSpec()));
    EXPECT_EQ(compiler->compiles(), 2);
    EXPECT_EQ(store->process_counters().verify_mismatches, 0u);
  }
  compiler = MakeFakeCompiler({.salt = "another day"});
  const auto store = Open(CacheMode::kVerify);
  const auto handle = store->Compile(GemmSpec());
  ASSERT_FALSE(handle);
  EXPECT_EQ(handle.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(handle.error().message, HasSubstr(SpecName(GemmSpec())));
  EXPECT_THAT(handle.error().message, HasSubstr("cubin"));
  EXPECT_EQ(store->process_counters().verify_mismatches, 1u);
  EXPECT_TRUE(store->Compile(GemmSpec(1)));  // what is not stored is compiled as ever
}

TEST_F(StoreTest, RefreshCompilesOnceAProcessAndReplaces) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  compiler = MakeFakeCompiler({.salt = "another day"});
  std::string refreshed;
  {
    const auto store = Open(CacheMode::kRefresh);
    const auto handle = store->Compile(GemmSpec());
    ASSERT_TRUE(handle);
    ASSERT_TRUE(store->Compile(GemmSpec()));
    EXPECT_EQ(compiler->compiles(), 1);
    refreshed = (*handle)->cubin;
    EXPECT_EQ(store->process_counters().misses[kUser][At(MissReason::kIgnored)], 1u);
  }
  const auto later = Open();
  const auto handle = later->Compile(GemmSpec());
  ASSERT_TRUE(handle);
  EXPECT_EQ((*handle)->cubin, refreshed);
  EXPECT_EQ(later->process_counters().compiles, 0u);
  EXPECT_EQ(later->GetTotals().entries, 1u);
}

TEST_F(StoreTest, OfflineDoesNotTouchTheSharedFolder) {
  auto options = Options(CacheMode::kOffline);
  options.shared_dir = folder / "shared";
  ASSERT_TRUE(OpenFake(options)->Compile(GemmSpec()));
  EXPECT_FALSE(std::filesystem::exists(options.shared_dir));
  EXPECT_THAT(EntryFilesUnder(root), SizeIs(1));
}

// ---- layers

TEST_F(StoreTest, TheSharedFolderServesAnotherMachineAndIsPromoted) {
  auto options = Options();
  options.shared_dir = folder / "shared";
  ASSERT_TRUE(OpenFake(options)->Compile(GemmSpec()));
  options.root = folder / "other";
  {
    const auto store = OpenFake(options);
    ASSERT_TRUE(store->Compile(GemmSpec()));
    EXPECT_EQ(store->process_counters().hits[kShared], 1u);
    EXPECT_EQ(store->process_counters().misses[kUser][At(MissReason::kAbsent)], 1u);
  }
  const auto store = OpenFake(options);
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->process_counters().hits[kUser], 1u);
  EXPECT_EQ(compiler->compiles(), 1);
}

TEST_F(StoreTest, ASharedFolderThatAGroupMayWriteIsUsedOnlyWhenAsked) {
  auto options = Options();
  options.shared_dir = folder / "shared";
  ASSERT_TRUE(std::filesystem::create_directory(options.shared_dir));
  ASSERT_EQ(chmod(options.shared_dir.c_str(), 0770), 0);
  {
    const auto store = OpenFake(options);
    EXPECT_THAT(store->warnings(), Contains(HasSubstr("mode is 0770: others can write it")));
    ASSERT_TRUE(store->Compile(GemmSpec(0)));
    EXPECT_THAT(FilesUnder(options.shared_dir), IsEmpty());
  }
  options.shared_by_group = true;
  {
    const auto store = OpenFake(options);
    EXPECT_THAT(store->warnings(), IsEmpty());
    ASSERT_TRUE(store->Compile(GemmSpec(1)));
    EXPECT_THAT(EntryFilesUnder(options.shared_dir), SizeIs(1));
  }
  options.root = folder / "colleague";
  const auto store = OpenFake(options);
  ASSERT_TRUE(store->Compile(GemmSpec(1)));
  EXPECT_EQ(store->process_counters().hits[kShared], 1u);
  EXPECT_EQ(compiler->compiles(), 2);
}

TEST_F(StoreTest, ASiteFolderServesIsPromotedAndStaysAsItWas) {
  auto site = Options();
  site.root = folder / "site";
  ASSERT_TRUE(OpenFake(site)->Compile(GemmSpec()));
  const auto before = FilesUnder(site.root);
  auto options = Options();
  options.site_dirs = {site.root};
  {
    const auto store = OpenFake(options);
    ASSERT_TRUE(store->Compile(GemmSpec(0)));
    ASSERT_TRUE(store->Compile(GemmSpec(1)));
    EXPECT_EQ(store->process_counters().hits[kSite], 1u);
  }
  EXPECT_EQ(FilesUnder(site.root), before);
  EXPECT_THAT(EntryFilesUnder(root), SizeIs(2));
  EXPECT_EQ(compiler->compiles(), 2);
}

TEST_F(StoreTest, TheUsersFolderIsAskedBeforeSiteAndShared) {
  auto site = Options();
  site.root = folder / "site";
  site.compiler = MakeFakeCompiler({.salt = "site"});
  ASSERT_TRUE(OpenFake(site)->Compile(GemmSpec(0)));
  ASSERT_TRUE(OpenFake(site)->Compile(GemmSpec(1)));
  auto shared = Options();
  shared.root = folder / "shared";
  shared.compiler = MakeFakeCompiler({.salt = "shared"});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(OpenFake(shared)->Compile(GemmSpec(i)));
  ASSERT_TRUE(Open()->Compile(GemmSpec(0)));

  auto options = Options();
  options.site_dirs = {site.root};
  options.shared_dir = shared.root;
  const auto store = OpenFake(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  const ArtifactCounters counters = store->process_counters();
  EXPECT_EQ(counters.hits[kUser], 1u);
  EXPECT_EQ(counters.hits[kSite], 1u);
  EXPECT_EQ(counters.hits[kShared], 1u);
  EXPECT_EQ(counters.compiles, 0u);
}

TEST_F(StoreTest, ARootThatCannotBeUsedCostsOneWarningAndTheMemoryOfIt) {
  WriteWhole(root, "a file");
  const auto store = Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  EXPECT_EQ(compiler->compiles(), 3);
  ASSERT_THAT(store->warnings(), SizeIs(1));
  EXPECT_THAT(store->warnings()[0], HasSubstr(root));
  EXPECT_EQ(store->counters().compiles, 3u);
  EXPECT_EQ(store->GetTotals().entries, 0u);
  EXPECT_THAT(store->List(), IsEmpty());
}

TEST_F(StoreTest, NamesThatCannotBeMeantAreErrors) {
  auto options = Options();
  options.bundles = {folder / "absent.twb"};
  const auto bundle = ArtifactStore::Open(FakeFamilies(), options);
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bundle.error().message, HasSubstr("absent.twb"));

  options = Options(CacheMode::kStrict);
  options.missing_list = folder / "absent/list.txt";
  const auto list = ArtifactStore::Open(FakeFamilies(), options);
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::kInvalidArgument);

  FakeSources broken;
  broken.gemm += "#include \"nowhere.cuh\"\n";
  const auto sources = ArtifactStore::Open(FakeFamilies(broken), Options());
  ASSERT_FALSE(sources);
  EXPECT_EQ(sources.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(sources.error().message, HasSubstr("nowhere.cuh"));
}

TEST_F(StoreTest, CodeForAnotherDeviceIsRefusedByNameAndNotCompiled) {
  auto options = Options();
  options.device.compute_capability = 80;
  const auto store = OpenFake(options);
  const auto arch = store->Compile(GemmSpec());
  ASSERT_FALSE(arch);
  EXPECT_EQ(arch.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(arch.error().message, HasSubstr("arch"));
  options.device.compute_capability = 90;
  options.device.driver = 12080;
  const auto driver = OpenFake(options)->Compile(GemmSpec());
  ASSERT_FALSE(driver);
  EXPECT_THAT(driver.error().message, HasSubstr("min_driver"));
  EXPECT_EQ(compiler->compiles(), 0);
}

// ---- bytes

TEST_F(StoreTest, SerializedBytesMakeTheKernelElsewhere) {
  const auto here = Open();
  const auto handle = here->Compile(GemmSpec());
  ASSERT_TRUE(handle);
  const auto bytes = here->Serialize(*handle);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, ReadWhole(EntryFilesUnder(root)[0]));
  EXPECT_FALSE(here->Serialize(KernelHandle()));

  auto options = Options();
  options.root = folder / "other";
  options.compiler = nullptr;
  options.nvrtc.path = folder / "none";  // needs no compiler
  const auto there = OpenFake(options);
  const auto adopted = there->Deserialize(*bytes);
  ASSERT_TRUE(adopted) << adopted.error().message;
  EXPECT_EQ((*adopted)->cubin, (*handle)->cubin);
  EXPECT_EQ(there->Find(GemmSpec()), *adopted);
  EXPECT_EQ(*there->Compile(GemmSpec()), *adopted);
  EXPECT_EQ(*there->Serialize(*adopted), *bytes);
  EXPECT_EQ(*there->Deserialize(*bytes), *adopted);
}

TEST_F(StoreTest, ForeignBytesAreRefusedByTheFieldThatDiffers) {
  const auto here = Open();
  const std::string bytes = *here->Serialize(*here->Compile(GemmSpec()));
  const auto refuse = [&](const KernelFamilies& families, const BundleNeeds& device = {}) {
    auto options = Options();
    options.root = folder / "other";
    options.device = device;
    const auto store = OpenFake(options, families);
    const auto handle = store->Deserialize(bytes);
    EXPECT_FALSE(handle);
    EXPECT_FALSE(store->Find(GemmSpec()));
    return handle ? Error() : handle.error();
  };
  FakeSources edited;
  edited.tile += "// edited\n";
  const Error header = refuse(FakeFamilies(edited));
  EXPECT_EQ(header.code, ErrorCode::kUnsupported);
  EXPECT_THAT(header.message, HasSubstr("header fake/tile.cuh"));
  const Error abi = refuse(FakeFamilies({}, 2));
  EXPECT_EQ(abi.code, ErrorCode::kUnsupported);
  EXPECT_THAT(abi.message, HasSubstr("launch_abi: stored 1, expected 2"));
  const Error family = refuse(KernelFamilies());
  EXPECT_EQ(family.code, ErrorCode::kUnsupported);
  EXPECT_THAT(family.message, HasSubstr("fake_gemm"));
  EXPECT_THAT(refuse(FakeFamilies(), {.compute_capability = 80}).message, HasSubstr("arch"));
  EXPECT_THAT(refuse(FakeFamilies(), {.driver = 12000}).message, HasSubstr("min_driver"));

  const auto damaged = here->Deserialize(std::string_view(bytes).substr(0, bytes.size() - 1));
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(here->Deserialize(""));
}

TEST_F(StoreTest, ImportedEntriesServeTheNextProcess) {
  const auto here = Open();
  const std::string bytes = *here->Serialize(*here->Compile(GemmSpec()));
  auto options = Options();
  options.root = folder / "other";
  {
    const auto there = OpenFake(options);
    EXPECT_TRUE(*there->Import(bytes));
    EXPECT_FALSE(*there->Import(bytes));
    EXPECT_EQ(there->Import("nonsense").error().code, ErrorCode::kCorrupt);
  }
  ASSERT_TRUE(OpenFake(options)->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), 1);
  options.mode = CacheMode::kReadonly;
  EXPECT_EQ(OpenFake(options)->Import(bytes).error().code, ErrorCode::kUnavailable);
}

// The numbers are in files of older versions: none may move.
TEST(StoreCounters, KeepTheirPlacesInTheFile) {
  EXPECT_EQ(HitIndex(ArtifactLayer::kMemory), 0u);
  EXPECT_EQ(HitIndex(ArtifactLayer::kShared), 4u);
  EXPECT_EQ(MissIndex(ArtifactLayer::kMemory, MissReason::kAbsent), 5u);
  EXPECT_EQ(MissIndex(ArtifactLayer::kUser, MissReason::kNegative), 18u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::requests_missed), 35u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::compiles), 36u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::compile_failures), 37u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::compile_us), 38u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::saved_us), 39u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::lock_waits), 40u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::lock_wait_us), 41u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::lock_timeouts), 42u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::publishes), 43u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::publishes_lost), 44u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::evictions), 45u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::quarantined), 46u);
  EXPECT_EQ(CounterIndex(&ArtifactCounters::verify_mismatches), 47u);
  EXPECT_EQ(kCounterCount, 48u) << "a new counter goes to the end, and into this list";
}

TEST(SpecList, ReadsNamesAndSkipsCommentsAndBlankLines) {
  const std::string text = "# head\n\n  # more\r\n  " + SpecName(GemmSpec(1)) +
                           "  # of the decoder\r\n" +
                           SpecName(NormSpec(2));  // without a last newline
  const auto specs = ParseSpecList(text, "f");
  ASSERT_TRUE(specs);
  EXPECT_THAT(*specs, ElementsAre(GemmSpec(1), NormSpec(2)));
  const auto wrong = ParseSpecList("# head\nnonsense\n", "list.txt");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(wrong.error().message, HasSubstr("list.txt:2"));
  EXPECT_THAT(*ParseSpecList("", "f"), IsEmpty());
}

}  // namespace
}  // namespace tilewright::test
