// What a store tells of itself: lists, totals, verification, collection, explanations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "artifact/store/store_fixture.h"
#include "tilewright/artifact_key.h"

namespace tilewright::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

auto Differs(const std::string& field, const std::string& wanted, const std::string& stored) {
  return AllOf(Field(&KeyDifference::field, field), Field(&KeyDifference::wanted, wanted),
               Field(&KeyDifference::stored, stored));
}

class StoreReports : public StoreTest {};

TEST_F(StoreReports, ListShowsEveryEntryAndEveryRefusal) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Compile(GemmSpec()));
    ASSERT_TRUE(store->Compile(NormSpec()));
  }
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) { return Refusal(); }});
  const auto store = Open();
  ASSERT_FALSE(store->Compile(GemmSpec(7)));
  const auto entries = store->List();
  ASSERT_THAT(entries, SizeIs(3));
  EXPECT_THAT(entries, Contains(Field(&ArtifactStore::EntryInfo::spec, SpecName(GemmSpec()))));
  EXPECT_THAT(entries, Contains(Field(&ArtifactStore::EntryInfo::spec, SpecName(NormSpec()))));
  const auto refused = std::find_if(entries.begin(), entries.end(),
                                    [](const auto& entry) { return entry.negative; });
  ASSERT_NE(refused, entries.end());
  EXPECT_EQ(refused->spec, SpecName(GemmSpec(7)));
  EXPECT_EQ(refused->trouble, "x.cu(3): error: no such");
  EXPECT_EQ(refused->request, store->Explain(GemmSpec(7))->request);
  EXPECT_EQ(refused->action, store->Explain(GemmSpec(7))->action);
  for (const auto& entry : entries) {
    EXPECT_EQ(entry.layer, ArtifactLayer::kUser);
    EXPECT_THAT(entry.compiler, HasSubstr("nvrtc 13.0"));
    if (entry.negative) continue;
    EXPECT_EQ(entry.compile_ms, 25);
    EXPECT_EQ(entry.bytes, std::filesystem::file_size(entry.place));
    EXPECT_THAT(entry.trouble, IsEmpty());
  }
  const auto totals = store->GetTotals();
  EXPECT_EQ(totals.entries, 2u);
  EXPECT_EQ(totals.negative, 1u);
}

TEST_F(StoreReports, LookingNeitherFollowsNorWaitsForWhatIsNoEntry) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->CompileAll(GemmSpecs(4)).back());
  }
  const auto files = EntryFilesUnder(root);
  ASSERT_THAT(files, SizeIs(4));
  // A pipe that nobody writes to, a link to a sound entry, an entry that everybody may write.
  ASSERT_EQ(unlink(files[0].c_str()), 0);
  ASSERT_EQ(mkfifo(files[0].c_str(), 0600), 0);
  const std::string outside = folder / "outside.twk";
  ASSERT_EQ(rename(files[1].c_str(), outside.c_str()), 0);
  ASSERT_EQ(symlink(outside.c_str(), files[1].c_str()), 0);
  ASSERT_EQ(chmod(files[2].c_str(), 0666), 0);

  const auto store = Open();
  int sound = 0;
  for (const auto& entry : store->List()) {
    const auto bytes = store->ReadEntry(entry);
    if (entry.place == files[3]) {
      EXPECT_THAT(entry.trouble, IsEmpty());
      ASSERT_TRUE(bytes) << bytes.error().message;
      EXPECT_EQ(*bytes, ReadWhole(files[3]));
      ++sound;
    } else {
      EXPECT_THAT(entry.trouble, Not(IsEmpty())) << entry.place;
      ASSERT_FALSE(bytes) << entry.place;
      EXPECT_EQ(bytes.error().code, ErrorCode::kCorrupt);
    }
  }
  EXPECT_EQ(sound, 1);
  for (const KernelSpec& spec : GemmSpecs(4)) EXPECT_TRUE(store->Explain(spec));
  EXPECT_TRUE(store->Explain(GemmSpec(77)));
  EXPECT_EQ(store->Gc(true, true).removed_entries, 0u);
  // Looking moved nothing; verifying does, and counts it.
  EXPECT_EQ(store->GetTotals().quarantined, 0u);
  const auto report = store->Verify(false);
  EXPECT_EQ(report.good, 1u);
  EXPECT_THAT(report.troubles, SizeIs(3));
  EXPECT_EQ(store->GetTotals().quarantined, 3u);
  EXPECT_EQ(store->process_counters().quarantined, 3u);
}

TEST_F(StoreReports, AnEntryThatWasListedIsReadCheckedOrSaysWhyNot) {
  const auto store = Open();
  const auto handle = store->Compile(GemmSpec());
  ASSERT_TRUE(handle);
  auto entry = store->List().at(0);
  const auto bytes = store->ReadEntry(entry);
  ASSERT_TRUE(bytes);
  EXPECT_TRUE(DecodeArtifact(*bytes));
  auto elsewhere = entry;
  elsewhere.place = folder / "elsewhere";
  EXPECT_EQ(store->ReadEntry(elsewhere).error().code, ErrorCode::kInvalidArgument);
  auto refusal = entry;
  refusal.negative = true;
  EXPECT_EQ(store->ReadEntry(refusal).error().code, ErrorCode::kInvalidArgument);
  std::string damaged = *bytes;
  damaged[damaged.size() / 2] ^= 1;
  WriteWhole(entry.place, damaged);
  EXPECT_EQ(store->ReadEntry(entry).error().code, ErrorCode::kCorrupt);
  ASSERT_TRUE(std::filesystem::remove(entry.place));
  EXPECT_EQ(store->ReadEntry(entry).error().code, ErrorCode::kNotFound);
}

TEST_F(StoreReports, VerifyFindsDamageAndDifferences) {
  {
    const auto store = Open();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  const auto files = EntryFilesUnder(root);
  WriteWhole(files[0], ReadWhole(files[0]).substr(0, 100));
  const auto store = Open();
  const auto first = store->Verify(false);
  EXPECT_EQ(first.good, 3u);
  EXPECT_THAT(first.troubles, ElementsAre(HasSubstr(files[0])));
  EXPECT_EQ(store->GetTotals().quarantined, 1u);
  const auto second = store->Verify(true);
  EXPECT_EQ(second.good, 3u);
  EXPECT_EQ(second.recompiled, 3u);
  EXPECT_EQ(second.differ, 0u);
  EXPECT_THAT(second.troubles, IsEmpty());
  compiler = MakeFakeCompiler({.salt = "another day"});
  const auto third = Open()->Verify(true);
  EXPECT_EQ(third.differ, 3u);
  EXPECT_THAT(third.troubles, SizeIs(3));
}

TEST_F(StoreReports, GcRemovesWhatNobodyCanAskForAnyMore) {
  {
    const auto store = Open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
    ASSERT_TRUE(store->Compile(NormSpec()));
  }
  FakeSources edited;
  edited.tile += "// edited\n";
  const auto newer = OpenFake(Options(), FakeFamilies(edited));
  ASSERT_TRUE(newer->Compile(GemmSpec(0)));
  EXPECT_EQ(newer->Gc(false, false).removed_entries, 0u);
  const auto dry = newer->Gc(true, true);
  EXPECT_EQ(dry.removed_entries, 3u);
  EXPECT_EQ(newer->GetTotals().entries, 5u);
  const auto wet = newer->Gc(false, true);
  EXPECT_EQ(wet.removed_entries, 3u);
  EXPECT_EQ(wet.removed_bytes, dry.removed_bytes);
  EXPECT_EQ(newer->GetTotals().entries, 2u);
  // Another compiler's entries go as well.
  auto options = Options();
  options.compiler = MakeFakeCompiler({.version = "13.1"});
  EXPECT_EQ(OpenFake(options, FakeFamilies(edited))->Gc(false, true).removed_entries, 2u);
}

TEST_F(StoreReports, CapsHoldAndWhatTheyCostIsCounted) {
  auto options = Options();
  {
    const auto store = OpenFake(options);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  options.max_entries = 10;
  const auto store = OpenFake(options);
  const auto report = store->Gc(false, false);
  EXPECT_EQ(report.removed_entries, 12u);
  EXPECT_EQ(store->GetTotals().entries, 8u);
  EXPECT_EQ(store->process_counters().evictions, 12u);
  EXPECT_EQ(store->counters().evictions, 12u);
}

TEST_F(StoreReports, WhatAnImportPushesOutIsCounted) {
  {
    const auto store = Open();
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  // Used long ago.
  for (const std::string& file : EntryFilesUnder(root)) {
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  auto options = Options();
  options.max_entries = 10;
  const auto store = OpenFake(options);
  const auto another = MakeFakeCompiler({.version = "13.1"});
  const auto maker = OpenFake(FakeOptions(folder / "other", another));
  const auto imported = store->Import(*maker->Serialize(*maker->Compile(GemmSpec())));
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_TRUE(*imported);
  EXPECT_EQ(store->GetTotals().entries, 9u);
  EXPECT_EQ(store->process_counters().evictions, 4u);
  EXPECT_EQ(store->counters().evictions, 4u);
}

TEST_F(StoreReports, ExplainNamesTheNearestEntryFieldByField) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Compile(GemmSpec()));
    ASSERT_TRUE(store->Compile(NormSpec()));
  }
  const auto store = Open();
  const auto hit = store->Explain(GemmSpec());
  ASSERT_TRUE(hit);
  EXPECT_TRUE(std::any_of(hit->layers.begin(), hit->layers.end(), [](const auto& layer) {
    return layer.layer == ArtifactLayer::kUser && layer.hit;
  }));
  EXPECT_THAT(hit->differences, IsEmpty());

  KernelSpec other = GemmSpec();
  other.tile_n = 256;
  const auto miss = store->Explain(other);
  ASSERT_TRUE(miss);
  EXPECT_THAT(miss->nearest, HasSubstr(SpecName(GemmSpec())));
  EXPECT_THAT(miss->differences, ElementsAre(Differs("tile_n", "256", "128")));

  FakeSources edited;
  edited.tile += "// edited\n";
  const auto stale = OpenFake(Options(), FakeFamilies(edited))->Explain(GemmSpec());
  ASSERT_TRUE(stale);
  EXPECT_THAT(stale->differences,
              ElementsAre(Field(&KeyDifference::field, "header fake/tile.cuh")));

  auto options = Options();
  options.compiler = MakeFakeCompiler({.version = "13.1"});
  const auto compiler_changed = OpenFake(options)->Explain(GemmSpec());
  ASSERT_TRUE(compiler_changed);
  EXPECT_THAT(compiler_changed->differences,
              ElementsAre(Differs("compiler version", "13.1", "13.0"),
                          Differs("compiler builtins_version", "13.1", "13.0")));
  options.compiler = nullptr;
  options.nvrtc.path = folder / "none";
  const auto no_compiler = OpenFake(options)->Explain(GemmSpec());
  ASSERT_TRUE(no_compiler);
  EXPECT_EQ(no_compiler->layers.back().reason, MissReason::kIgnored);
  EXPECT_THAT(no_compiler->layers.back().detail, HasSubstr("none"));
  ASSERT_THAT(no_compiler->differences, SizeIs(1));
  EXPECT_EQ(no_compiler->differences[0].field, "compiler");
  EXPECT_EQ(no_compiler->differences[0].wanted, "none");
  EXPECT_THAT(no_compiler->differences[0].stored, HasSubstr("13.0"));
  // Asking counts nothing and compiles nothing.
  EXPECT_EQ(store->process_counters().requests_missed, 0u);
  EXPECT_EQ(compiler->compiles(), 2);
}

TEST_F(StoreReports, AnEntryThatAnotherProcessTrimsMeanwhileIsNoDamage) {
  const auto store = Open();
  for (const KernelSpec& spec : GemmSpecs(3)) ASSERT_TRUE(store->Compile(spec));
  CompileControl control;
  // Asked for the first time between listing the entries and reading them.
  control.cancelled = [&] {
    const auto files = EntryFilesUnder(root);
    if (files.size() == 3) std::filesystem::remove(files[1]);
    return false;
  };
  const auto report = store->Verify(false, control);
  EXPECT_EQ(report.good, 2u);
  EXPECT_THAT(report.troubles, IsEmpty());
}

TEST_F(StoreReports, VerificationCompilesSideBySideAndReportsInTheOrderOfKeys) {
  constexpr int kKernels = 6;
  {
    const auto store = Open();
    for (int i = 0; i < kKernels; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  // The first to begin ends only when a third has begun: after the second has ended.
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  compiler = MakeFakeCompiler({.salt = "another day", .begins = [&](const CompileJob&) {
                                 std::unique_lock lock(mutex);
                                 const bool first = ++begun == 1;
                                 changed.notify_all();
                                 if (first) {
                                   changed.wait_for(lock, std::chrono::seconds(60),
                                                    [&] { return begun >= 3; });
                                 }
                               }});
  std::vector<CompileProgress> told;
  const auto here = std::this_thread::get_id();
  const auto report =
      Open()->Verify(true, {.cancelled = {}, .progress = [&](const CompileProgress& progress) {
                              EXPECT_EQ(std::this_thread::get_id(), here);
                              told.push_back(progress);
                            }});
  EXPECT_EQ(compiler->most_at_once(), 2);
  EXPECT_EQ(compiler->compiles(), kKernels);
  EXPECT_EQ(report.good, 6u);
  EXPECT_EQ(report.recompiled, 6u);
  EXPECT_EQ(report.differ, 6u);
  EXPECT_FALSE(report.cancelled);
  std::vector<std::string> files = EntryFilesUnder(root);
  std::sort(files.begin(), files.end());
  ASSERT_THAT(report.troubles, SizeIs(kKernels));
  for (std::size_t i = 0; i < files.size(); ++i) {
    EXPECT_THAT(report.troubles[i], StartsWith(files[i] + ": ")) << i;
  }
  ASSERT_THAT(told, SizeIs(kKernels));
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].done, i + 1);
    EXPECT_EQ(told[i].compiled, i + 1);
    EXPECT_EQ(told[i].total, 6u);
    EXPECT_EQ(told[i].last.family.view(), "fake_gemm");
  }
}

TEST_F(StoreReports, VerificationStartsNoSecondCompilerWhereMemoryHoldsOne) {
  {
    const auto store = Open();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  compiler = MakeFakeCompiler({.takes = std::chrono::milliseconds(5)});
  auto options = Options();
  options.compile_memory_bytes = std::uint64_t{1} << 62;
  EXPECT_EQ(OpenFake(options)->Verify(true).recompiled, 4u);
  EXPECT_EQ(compiler->most_at_once(), 1);
}

TEST_F(StoreReports, ACancelledVerificationSaysSoAndBlamesNoEntry) {
  {
    const auto store = Open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  std::atomic<bool> began{false};
  compiler = MakeFakeCompiler({.hangs = true, .begins = [&](const CompileJob&) { began = true; }});
  const auto store = Open();
  const auto report =
      store->Verify(true, {.cancelled = [&] { return began.load(); }, .progress = {}});
  EXPECT_TRUE(report.cancelled);
  EXPECT_EQ(report.differ, 0u);
  EXPECT_EQ(report.recompiled, 0u);
  EXPECT_EQ(report.not_recompiled, 0u);
  EXPECT_THAT(report.troubles, IsEmpty());
  EXPECT_LE(compiler->compiles(), 2);  // those under way, one a thread
  EXPECT_TRUE(store->Verify(false, {.cancelled = [] { return true; }, .progress = {}}).cancelled);
  EXPECT_FALSE(store->Verify(false).cancelled);
}

TEST_F(StoreReports, WhatCouldNotBeCompiledAgainIsToldAndIsNoDifference) {
  {
    const auto store = Open();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Compile(GemmSpec(i)));
  }
  compiler = MakeFakeCompiler({.fails = [](const CompileJob&) {
    return CompileFailure{false, {ErrorCode::kOutOfMemory, "no memory\nleft"}, {}};
  }});
  const auto poor = Open()->Verify(true);
  EXPECT_EQ(poor.good, 3u);
  EXPECT_EQ(poor.recompiled, 0u);
  EXPECT_EQ(poor.differ, 0u);
  EXPECT_EQ(poor.not_recompiled, 3u);
  EXPECT_THAT(poor.why_not, HasSubstr("no memory; left"));
  EXPECT_THAT(poor.troubles, IsEmpty());

  compiler = MakeFakeCompiler(
      {.fails = [](const CompileJob&) -> std::optional<CompileFailure> { throw 7; }});
  EXPECT_EQ(Open()->Verify(true).not_recompiled, 3u);

  auto options = Options();
  options.compiler = nullptr;
  options.nvrtc.path = folder / "no-nvrtc";
  const auto none = OpenFake(options)->Verify(true);
  EXPECT_EQ(none.not_recompiled, 3u);
  EXPECT_THAT(none.why_not, HasSubstr("no-nvrtc"));
  EXPECT_THAT(none.troubles, IsEmpty());
  EXPECT_EQ(OpenFake(options)->Verify(false).not_recompiled, 0u);

  options.compiler = MakeFakeCompiler({.version = "13.1"});
  const auto other = OpenFake(options)->Verify(true);
  EXPECT_EQ(other.not_ours, 3u);
  EXPECT_EQ(other.not_recompiled, 0u);
}

TEST_F(StoreReports, CollectingWithoutACompilerSaysWhatItCouldNotCompare) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  EXPECT_THAT(Open()->Gc(true, true).note, IsEmpty());
  auto options = Options();
  options.compiler = nullptr;
  options.nvrtc.path = folder / "no-nvrtc";
  const auto store = OpenFake(options);
  const auto report = store->Gc(true, true);
  EXPECT_EQ(report.removed_entries, 0u);
  EXPECT_THAT(report.note, HasSubstr("no-nvrtc"));
  EXPECT_THAT(report.note, Not(HasSubstr("\n")));
  EXPECT_THAT(store->Gc(true, false).note, IsEmpty());
}

}  // namespace
}  // namespace tilewright::test
