// The dispatch cache of an operation that the engine has never heard of; what is common to all is
// tried with GEMM (ops/gemm/base/dispatch_cache_test.cc).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/cache/dispatch_cache_template.h"
#include "engine/fake_operation.h"
#include "engine/sealed_json.h"

namespace tilewright {
namespace {

using test::BlurDesc;
using test::BlurOp;
using test::Configurable;
using test::Tiles;
using Cache = DispatchCacheOf<BlurOp>;

class CacheOfAnyOperation : public testing::Test {
 protected:
  Cache Make(const char* device = "cpu/test") const {
    return Cache({registry_.kernels().begin(), registry_.kernels().end()}, device);
  }
  BlurOp::Spec Tiled(std::int64_t threads, float us) const {
    BlurOp::Spec spec;
    spec.kernel = registry_.Find("blur.tiled");
    spec.config = TypedConfig<Tiles>::Pack({.rows = 16, .threads = threads});
    spec.measured_us = us;
    return spec;
  }
  BlurOp::Spec Plain(float us) const {
    BlurOp::Spec spec;
    spec.kernel = registry_.Find("blur.plain");
    spec.measured_us = us;
    return spec;
  }
  static std::string Export(const Cache& cache) {
    std::ostringstream out;
    EXPECT_GE(cache.Export(out), 0);
    return out.str();
  }
  static int Import(Cache& cache, const std::string& text) {
    std::istringstream in(text);
    return cache.Import(in);
  }
  static std::string EntryOf(const std::string& text) {
    std::istringstream lines(text);
    std::string header, entry;
    std::getline(lines, header), std::getline(lines, entry);
    return entry;
  }

  const OpRegistry<BlurOp> registry_ = Configurable();
};

TEST_F(CacheOfAnyOperation, FindIsExactAndBoundsBracket) {
  auto cache = Make();
  for (const int rows : {8, 64, 16})
    ASSERT_TRUE(cache.Insert({rows, 50}, Plain(static_cast<float>(rows))));
  EXPECT_EQ(cache.Find({16, 50})->measured_us, 16);
  EXPECT_FALSE(cache.Find({17, 50}));
  EXPECT_FALSE(cache.Find({16, 51}));
  EXPECT_FALSE(cache.Find({16, 50, Guarantee::kDeterministic}));
  EXPECT_EQ(cache.LowerBoundHit({17, 50})->batch, 64);
  EXPECT_EQ(cache.FloorBoundHit({17, 50})->batch, 16);
  EXPECT_FALSE(cache.LowerBound({65, 50}));
  EXPECT_FALSE(cache.FloorBound({7, 50}));
}

TEST_F(CacheOfAnyOperation, AConfigurationIsExportedAndImported) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert({8, 50}, Tiled(2, 1.5f)));
  ASSERT_TRUE(cache.Insert({9, 50}, Tiled(8, 2)));
  ASSERT_TRUE(cache.Insert({10, 50}, Plain(3)));
  const std::string text = Export(cache);
  EXPECT_NE(text.find("\"op\":\"fake\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"spec\":\"swizzle=0 splits=1 rows=16 threads=2\""), std::string::npos)
      << text;
  auto copy = Make();
  EXPECT_EQ(Import(copy, text), 3);
  EXPECT_EQ(*copy.Find({8, 50}), Tiled(2, 0));
  EXPECT_EQ(*copy.Find({9, 50}), Tiled(8, 0));
  EXPECT_EQ(*copy.Find({10, 50}), Plain(0));
  EXPECT_EQ(Export(copy), text);
}

TEST_F(CacheOfAnyOperation, WhatASessionDidNotFinishStaysProvisional) {
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  std::vector<Record> rows;
  for (const bool finished : {false, true}) {
    Record row;
    row.op = "fake", row.scope = scope;
    row.problem = KeyOf(BlurDesc{8, finished ? 50 : 51});
    row.kernel = "blur.plain", row.spec = "swizzle=0 splits=1";
    row.samples = 9, row.median_us = 5, row.low_us = 4, row.high_us = 6;
    row.chosen = true, row.finished = finished;
    rows.push_back(row);
  }
  const Cache cache = BuildCache<BlurOp>(rows, registry_, scope);
  const std::string text = Export(cache);
  auto copy = Make();
  EXPECT_EQ(Import(copy, text), 2);
  for (const Cache* one : {&cache, static_cast<const Cache*>(&copy)}) {
    EXPECT_FALSE(one->Find({8, 50})->provisional);
    EXPECT_TRUE(one->Find({8, 51})->provisional);
    EXPECT_TRUE(one->LowerBoundHit({7, 51})->spec.provisional);
  }
  EXPECT_EQ(Export(copy), text);
  auto entry = *Unseal(EntryOf(text));
  entry["provisional"] = "yes";
  auto victim = Make();
  EXPECT_EQ(Import(victim, Seal(entry) + "\n"), 0);
  EXPECT_EQ(victim.last_import().corrupt, 1);
}

TEST_F(CacheOfAnyOperation, OnlyWhatTheKernelsTextCarriesIsTaken) {
  auto cache = Make();
  EXPECT_FALSE(cache.Insert({8, 50}, Tiled(9, 1)));  // beyond the limit of its words
  EXPECT_FALSE(cache.Insert({8, 50}, Tiled(0, 1)));
  auto odd = Plain(1);
  odd.config.words[0] = 3;  // which blur.plain does not print
  EXPECT_FALSE(cache.Insert({8, 50}, odd));
  EXPECT_EQ(cache.size(), 0u);
}

TEST_F(CacheOfAnyOperation, EqualTimesFallToTheFirstConfigurationWhateverTheOrder) {
  auto one = Make(), two = Make();
  ASSERT_TRUE(one.Insert({8, 50}, Tiled(2, 5)));
  ASSERT_TRUE(two.Insert({8, 50}, Tiled(8, 5)));
  auto forwards = Make(), backwards = Make();
  Import(forwards, Export(one) + Export(two));
  Import(backwards, Export(two) + Export(one));
  EXPECT_EQ(*forwards.Find({8, 50}), Tiled(2, 0));
  EXPECT_EQ(Export(forwards), Export(backwards));
}

TEST_F(CacheOfAnyOperation, LaunchParametersThatTheKernelDoesNotTakeAreKeptAside) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert({8, 50}, Tiled(2, 1)));
  auto entry = *Unseal(EntryOf(Export(cache)));
  entry["spec"] = "swizzle=0 splits=1 rows=16 warps=2";
  auto other = Make();
  EXPECT_EQ(Import(other, Seal(entry) + "\n"), 0);
  EXPECT_EQ(other.last_import().stale, 1);
  EXPECT_EQ(other.last_import().messages.at(0),
            "1 entries have launch parameters that the kernel does not take: kept aside (first: "
            "line 1)");
  EXPECT_EQ(EntryOf(Export(other)), Seal(entry));
}

TEST_F(CacheOfAnyOperation, ALineOfTheFirstSchemaIsReadAndWrittenAsOneOfThis) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert({8, 50}, Plain(4)));
  auto entry = *Unseal(EntryOf(Export(cache)));
  nlohmann::json first = entry;
  first.erase("spec");
  first["schema"] = 1, first["swizzle"] = 0, first["splits"] = 1;
  auto other = Make();
  EXPECT_EQ(Import(other, Seal(first) + "\n"), 1);
  EXPECT_EQ(Export(other), Export(cache));
  for (const auto& [member, value] :
       {std::pair{"swizzle", 31}, std::pair{"swizzle", -1}, std::pair{"splits", 0}}) {
    nlohmann::json bad = first;
    bad[member] = value;
    auto victim = Make();
    EXPECT_EQ(Import(victim, Seal(bad) + "\n"), 0);
    EXPECT_EQ(victim.last_import().corrupt, 1) << member << " " << value;
  }
  // Lines that do not say so are of GEMM.
  first.erase("op");
  EXPECT_EQ(Import(other, Seal(first) + "\n"), 0);
  EXPECT_EQ(other.last_import().foreign, 1);
}

TEST_F(CacheOfAnyOperation, OverRecordsAnswersAsACacheOfAllOfThemDoes) {
  const RecordScope scope{"cpu/test", "", MeasurePolicy::kCold};
  Records records = Records::Open("");
  std::vector<Record> rows;
  for (int i = 0; i < 60; ++i) {
    Record row;
    row.op = i % 7 == 0 ? "other" : "fake";
    row.scope = scope;
    row.problem = KeyOf(BlurDesc{1 + i % 5, 40 + i % 3});
    if (i % 4 == 0)
      row.problem = "width=" + std::to_string(40 + i % 3) + " rows=" + std::to_string(1 + i % 5);
    row.kernel = i % 2 == 0 ? "blur.tiled" : "blur.plain";
    row.spec = i % 2 == 0 ? "swizzle=0 splits=1 rows=16 threads=2" : "swizzle=0 splits=1";
    if (i % 29 == 1) row.verdict = Verdict::kWrong;
    row.samples = 9, row.median_us = 5 + (i * 7) % 13;
    row.low_us = 0.99 * row.median_us, row.high_us = 1.01 * row.median_us;
    rows.push_back(row);
  }
  ASSERT_TRUE(records.Append(rows));
  const Cache all = BuildCache<BlurOp>(records.Load(), registry_, scope);
  const Cache over = Cache::Over(records, registry_, scope);
  EXPECT_EQ(over.size(), 0u);
  int hits = 0;
  for (int width = 39; width < 44; ++width) {
    for (int asked = 1; asked < 7; ++asked) {
      const auto want = all.Find({asked, width}), got = over.Find({asked, width});
      ASSERT_EQ(want, got) << asked << " x " << width;
      hits += want ? 1 : 0;
    }
  }
  EXPECT_GT(hits, 10);
  EXPECT_EQ(over.size(), all.size());
  EXPECT_GT(over.quarantine().size(), 0u);
  // Written with its fields in another order, a problem is in the same group.
  EXPECT_EQ(Cache::GroupOf("rows=3 width=40 guarantee=fastest"), Cache::GroupOf("width=40 rows=9"));
  EXPECT_NE(Cache::GroupOf("rows=3 width=40 guarantee=fastest"), Cache::GroupOf("width=41 rows=3"));
}

}  // namespace
}  // namespace tilewright
