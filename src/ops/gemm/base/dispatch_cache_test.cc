#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "core/allocation_probe.h"
#include "core/random.h"
#include "engine/cpu_threads.h"
#include "ops/gemm/base/fake_kernel.h"
#include "tilewright/gemm_stages.h"

// Not inlined: the compiler would see free() beside new and warn.

namespace tilewright {
namespace {

using test::F32Problem;
using test::F32Setup;
using test::FakeKernel;

class DispatchCacheTest : public testing::Test {
 protected:
  DispatchCacheTest() : a_(F32Setup("gemm.a")), b_(Limited()) {}

  static FakeKernel::Setup Limited() {
    auto setup = F32Setup("gemm.b");
    setup.desc.max_m = 8;
    return setup;
  }
  DispatchCache Make(std::string device = "cpu/test") {
    return DispatchCache({&a_, &b_}, std::move(device));
  }
  LaunchSpec A(float us, int swizzle = 0, int splits = 1) { return {&a_, swizzle, splits, us, 0}; }
  LaunchSpec B(float us) { return {&b_, 0, 1, us, 0}; }
  static std::string Export(const DispatchCache& cache) {
    std::ostringstream out;
    EXPECT_GE(cache.Export(out), 0);
    return out.str();
  }
  static int Import(DispatchCache& cache, const std::string& text) {
    std::istringstream in(text);
    return cache.Import(in);
  }

  FakeKernel a_, b_;
};

TEST_F(DispatchCacheTest, FindIsExactAndBoundsBracket) {
  auto cache = Make();
  for (const int m : {8, 64, 16})
    ASSERT_TRUE(cache.Insert(F32Problem(m), A(static_cast<float>(m))));
  EXPECT_EQ(cache.Find(F32Problem(16))->measured_us, 16);
  EXPECT_FALSE(cache.Find(F32Problem(17)));
  EXPECT_EQ(cache.LowerBoundHit(F32Problem(17))->batch, 64);
  EXPECT_EQ(cache.FloorBoundHit(F32Problem(17))->batch, 16);
  EXPECT_EQ(cache.LowerBoundHit(F32Problem(16))->batch, 16);
  EXPECT_EQ(cache.FloorBoundHit(F32Problem(16))->batch, 16);
  EXPECT_EQ(cache.LowerBoundHit(F32Problem(1))->batch, 8);
  EXPECT_FALSE(cache.FloorBound(F32Problem(1)));
  EXPECT_FALSE(cache.LowerBound(F32Problem(65)));
  EXPECT_EQ(cache.FloorBoundHit(F32Problem(65))->batch, 64);
  EXPECT_EQ(cache.size(), 3u);
}

TEST_F(DispatchCacheTest, EveryFieldButTheBatchMustAgree) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert(F32Problem(8), A(1)));
  int index = 0, fields = 0;
  const GemmDesc base = F32Problem(8);
  ForEachField(base, [&fields](std::string_view, const auto&) { ++fields; });
  for (int target = 1; target < fields; ++target) {
    GemmDesc other = base;
    index = 0;
    ForEachField(other, [&](std::string_view, auto& value) {
      if (index++ != target) return;
      auto* byte = reinterpret_cast<unsigned char*>(&value);
      *byte = static_cast<unsigned char>(*byte ^ 1u);
    });
    EXPECT_FALSE(cache.Find(other)) << KeyOf(other);
    EXPECT_FALSE(cache.LowerBound(other)) << KeyOf(other);
    EXPECT_FALSE(cache.FloorBound(other)) << KeyOf(other);
  }
}

TEST_F(DispatchCacheTest, TheBatchIsTheDimensionTheProblemNames) {
  auto cache = Make();
  GemmDesc wide = F32Problem(64, 16);
  wide.batch_dim = BatchDim::kN;
  ASSERT_TRUE(cache.Insert(wide, A(3)));
  GemmDesc asked = wide;
  asked.n = 9;
  EXPECT_EQ(cache.LowerBoundHit(asked)->batch, 16);
  asked.m = 63;
  EXPECT_FALSE(cache.LowerBound(asked));
}

TEST_F(DispatchCacheTest, ABoundedHitThatCannotRunTheShapeIsNoHit) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert(F32Problem(8), B(1)));  // runs up to 8 rows
  EXPECT_TRUE(cache.LowerBound(F32Problem(5)));
  EXPECT_FALSE(cache.FloorBound(F32Problem(9)));
}

TEST_F(DispatchCacheTest, ALowerBoundIsFeasibleAtTheShapeThatWasAskedFor) {
  class InEights final : public FakeKernel {
   public:
    using FakeKernel::FakeKernel;
    std::optional<Rejection> IsFeasible(const GemmDesc& p) const override {
      if (p.m % 8 == 0) return FakeKernel::IsFeasible(p);
      return Rejection{Reason::kShape, "m = " + std::to_string(p.m), "a multiple of 8"};
    }
  };
  InEights c(F32Setup("gemm.c"));
  DispatchCache cache({&c}, "cpu/test");
  ASSERT_TRUE(cache.Insert(F32Problem(16), {&c, 0, 1, 1, 0}));
  EXPECT_EQ(cache.LowerBoundHit(F32Problem(8))->batch, 16);
  EXPECT_FALSE(cache.LowerBoundHit(F32Problem(9)));
  EXPECT_FALSE(cache.LowerBound(F32Problem(9)));
  EXPECT_EQ(cache.FloorBoundHit(F32Problem(24))->batch, 16);
  EXPECT_FALSE(cache.FloorBoundHit(F32Problem(17)));
}

TEST_F(DispatchCacheTest, OnlyBetterEvidenceReplaces) {
  auto cache = Make();
  EXPECT_TRUE(cache.Insert(F32Problem(8), A(10)));
  EXPECT_FALSE(cache.Insert(F32Problem(8), B(11)));
  EXPECT_FALSE(cache.Insert(F32Problem(8), B(0)));
  EXPECT_FALSE(cache.Insert(F32Problem(8), B(NAN)));
  EXPECT_TRUE(cache.Insert(F32Problem(8), B(9)));
  EXPECT_EQ(cache.Find(F32Problem(8))->kernel, &b_);
  EXPECT_EQ(cache.size(), 1u);
  FakeKernel stranger(F32Setup("gemm.a"));
  EXPECT_FALSE(cache.Insert(F32Problem(9), {&stranger, 0, 1, 1, 0}));
  EXPECT_FALSE(cache.Insert(F32Problem(9), {nullptr, 0, 1, 1, 0}));
  EXPECT_TRUE(cache.Erase(F32Problem(8)));
  EXPECT_FALSE(cache.Erase(F32Problem(8)));
  EXPECT_EQ(cache.size(), 0u);
}

TEST_F(DispatchCacheTest, InsertRefusesWhatImportWouldRefuse) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  auto cache = Make();
  for (const float us : {-1.0f, kInf, -kInf, NAN})
    EXPECT_FALSE(cache.Insert(F32Problem(8), A(us))) << us;
  for (const int swizzle : {-1, 31}) EXPECT_FALSE(cache.Insert(F32Problem(8), A(1, swizzle)));
  for (const int splits : {-1, 0, 4097}) EXPECT_FALSE(cache.Insert(F32Problem(8), A(1, 0, splits)));
  EXPECT_FALSE(cache.Insert(F32Problem(0), A(1)));
  EXPECT_FALSE(cache.Insert(F32Problem(8, -4), A(1)));
  EXPECT_FALSE(cache.Insert(F32Problem(9), B(1)));  // runs up to 8 rows
  GemmDesc odd = F32Problem(8);
  odd.epilogue = static_cast<Epilogue>(9);
  EXPECT_FALSE(cache.Insert(odd, A(1)));
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_FALSE(cache.Find(F32Problem(8)));
  EXPECT_TRUE(cache.Insert(F32Problem(8), A(0)));  // the caller's own decision, no time
}

TEST_F(DispatchCacheTest, EverythingThatIsExportedIsImportedAgain) {
  // Whatever Insert takes of a mixture of sense and nonsense.
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float times[] = {1.5f, 0, -1, kInf, NAN, 1e-42f, 3e38f, 7};
  auto cache = Make();
  Random random(17);
  int taken = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    LaunchSpec spec = random.Below(2) == 0 ? A(times[random.Below(8)]) : B(times[random.Below(8)]);
    spec.swizzle = static_cast<int>(random.Between(-1, 32));
    spec.splits = random.Below(3) == 0 ? static_cast<int>(random.Between(4094, 4099))
                                       : static_cast<int>(random.Between(-1, 4));
    spec.predicted_us = times[random.Below(8)];
    GemmDesc desc = F32Problem(static_cast<int>(random.Between(-1, 30)),
                               static_cast<int>(random.Between(0, 3)) * 32);
    if (random.Below(4) == 0) desc.type_b = DataType::kQ8_0;
    const bool fine = cache.Insert(desc, spec);
    ++(fine ? taken : refused);
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 50);
  auto copy = Make();
  const std::string text = Export(cache);
  EXPECT_EQ(Import(copy, text), static_cast<int>(cache.size()));
  EXPECT_TRUE(copy.last_import().messages.empty());
  EXPECT_EQ(Export(copy), text);
}

TEST_F(DispatchCacheTest, AConfigurationOfTheKernelsOwnIsExportedAndNonsenseIsNotTaken) {
  auto setup = F32Setup("gemm.c");
  setup.config_fields = kThreadsField;
  FakeKernel c(setup);
  DispatchCache cache({&c}, "cpu/test");
  const auto on = [&c](int threads) {
    LaunchSpec spec{&c, 0, 1, 2.0f, 0};
    spec.config = ThreadsConfig(threads);
    return spec;
  };
  ASSERT_TRUE(cache.Insert(F32Problem(8), on(0)));
  ASSERT_TRUE(cache.Insert(F32Problem(16), on(2)));
  EXPECT_FALSE(cache.Insert(F32Problem(24), on(-1)));
  EXPECT_FALSE(cache.Insert(F32Problem(24), on(5000)));
  const std::string text = Export(cache);
  EXPECT_NE(text.find("\"spec\":\"swizzle=0 splits=1 threads=2\""), std::string::npos);
  DispatchCache copy({&c}, "cpu/test");
  ASSERT_EQ(Import(copy, text), 2);
  EXPECT_EQ(*copy.Find(F32Problem(8)), on(0));
  EXPECT_EQ(*copy.Find(F32Problem(16)), on(2));
  EXPECT_EQ(Export(copy), text);
  setup.config_fields = {};
  FakeKernel plain(setup);  // of the same fingerprint, but it has no such word
  DispatchCache other({&plain}, "cpu/test");
  EXPECT_EQ(Import(other, text), 1);
  EXPECT_EQ(other.last_import().stale, 1);
}

TEST_F(DispatchCacheTest, AnEntryWhoseKernelRefusesTheProblemIsKeptAsideAndSaidSo) {
  auto wide_setup = F32Setup("gemm.b");  // as gemm.b, for any number of rows
  FakeKernel wide(wide_setup);
  DispatchCache other({&wide}, "cpu/test");
  ASSERT_TRUE(other.Insert(F32Problem(9), {&wide, 0, 1, 1, 0}));
  auto cache = Make();
  EXPECT_EQ(Import(cache, Export(other)), 0);
  EXPECT_EQ(cache.last_import().stale, 1);
  ASSERT_EQ(cache.last_import().messages.size(), 1u);
  EXPECT_EQ(cache.last_import().messages[0],
            "1 entries name a kernel that refuses the problem: kept aside (first: line 2)");
  EXPECT_EQ(Import(other, Export(cache)), 1);
}

TEST_F(DispatchCacheTest, ExportAndImportGiveTheSameEntriesAndTheSameBytes) {
  auto cache = Make();
  for (int m = 1; m <= 40; ++m) {
    ASSERT_TRUE(cache.Insert(F32Problem(m, 64 + 32 * (m % 3)),
                             A(1.25f * static_cast<float>(m) + 0.1f, m % 4, 1 + m % 2)));
  }
  std::ostringstream out;
  EXPECT_EQ(cache.Export(out), 40);
  auto copy = Make();
  EXPECT_EQ(Import(copy, out.str()), 40);
  EXPECT_EQ(copy.last_import().resolved, 40);
  EXPECT_EQ(copy.size(), 40u);
  EXPECT_TRUE(copy.last_import().messages.empty());
  EXPECT_EQ(Export(copy), out.str());
  cache.ForEach([&copy](const GemmDesc& desc, const LaunchSpec& spec) {
    const auto found = copy.Find(desc);
    ASSERT_TRUE(found) << KeyOf(desc);
    EXPECT_EQ(*found, spec);
    EXPECT_EQ(found->measured_us, spec.measured_us);
  });
  EXPECT_EQ(Import(copy, out.str()), 40);  // again: all there already
  EXPECT_EQ(copy.size(), 40u);
}

TEST_F(DispatchCacheTest, UnknownStaleForeignAndLaterEntriesAreKeptAsideAndLeaveAgain) {
  FakeKernel gone(F32Setup("gemm.gone"));
  DispatchCache other({&gone}, "cpu/test"), elsewhere({&a_}, "cpu/other");
  auto changed_setup = F32Setup("gemm.a");
  changed_setup.fingerprint = "f2";
  FakeKernel changed(changed_setup);
  DispatchCache edited({&changed}, "cpu/test");
  ASSERT_TRUE(other.Insert(F32Problem(1), {&gone, 0, 1, 1, 0}));
  ASSERT_TRUE(elsewhere.Insert(F32Problem(2), A(2)));
  ASSERT_TRUE(edited.Insert(F32Problem(3), {&changed, 0, 1, 3, 0}));
  const std::string all = Export(other) + Export(elsewhere) + Export(edited);

  auto cache = Make();
  EXPECT_EQ(Import(cache, all), 0);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.last_import().unknown_kernel, 1);
  EXPECT_EQ(cache.last_import().foreign, 1);
  EXPECT_EQ(cache.last_import().stale, 1);
  EXPECT_EQ(cache.last_import().messages.size(), 3u);
  std::ostringstream out;
  EXPECT_EQ(cache.Export(out), 0);  // written, not counted
  EXPECT_EQ(Import(other, out.str()), 1);
  EXPECT_EQ(Import(elsewhere, out.str()), 1);
  EXPECT_EQ(Import(edited, out.str()), 1);
}

TEST_F(DispatchCacheTest, MergingKeepsTheFasterEntryWhicheverComesFirst) {
  auto slow = Make(), fast = Make();
  ASSERT_TRUE(slow.Insert(F32Problem(4), A(20)));
  ASSERT_TRUE(fast.Insert(F32Problem(4), B(10)));
  const std::string slow_text = Export(slow), fast_text = Export(fast);
  EXPECT_EQ(Import(slow, fast_text), 1);
  EXPECT_EQ(Import(fast, slow_text), 0);
  EXPECT_EQ(fast.last_import().worse, 1);
  EXPECT_EQ(Export(slow), Export(fast));
}

TEST_F(DispatchCacheTest, TheOrderOfLinesAndFilesDoesNotMatter) {
  // Equal times, never measured, slower, faster, and lines that differ in nothing but the forecast.
  std::string header;
  std::set<std::string> lines;
  const auto add = [&](const GemmDesc& desc, LaunchSpec spec, float predicted_us) {
    spec.predicted_us = predicted_us;
    auto one = Make();
    ASSERT_TRUE(one.Insert(desc, spec));
    std::istringstream text(Export(one));
    std::getline(text, header);
    for (std::string line; std::getline(text, line);) lines.insert(line);
  };
  add(F32Problem(4), A(10), 1), add(F32Problem(4), B(10), 1), add(F32Problem(4), A(10, 2), 1);
  add(F32Problem(4), A(10, 0, 2), 1), add(F32Problem(4), A(10), 3), add(F32Problem(4), A(12), 1);
  add(F32Problem(5), A(0), 1), add(F32Problem(5), B(0), 1);
  add(F32Problem(6), A(0), 1), add(F32Problem(6), B(9), 1), add(F32Problem(6), A(8), 1);
  ASSERT_EQ(lines.size(), 11u);
  std::vector<std::string> order(lines.begin(), lines.end());
  Random random(5);
  std::string first, first_counts;
  for (int trial = 0; trial < 60; ++trial) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
    std::string all;
    auto in_parts = Make();
    for (const std::string& line : order) {
      all += line + "\n";
      Import(in_parts, line + "\n");
    }
    auto at_once = Make();
    Import(at_once, all);
    const ImportReport& report = at_once.last_import();
    const std::string counts = std::to_string(report.resolved) + " " + std::to_string(report.worse);
    if (trial == 0) first = Export(at_once), first_counts = counts;
    ASSERT_EQ(Export(at_once), first) << all;
    ASSERT_EQ(Export(in_parts), first) << all;
    ASSERT_EQ(counts, first_counts) << all;
  }
  // Worse: 12 of problem 4, and 9 and the unmeasured of problem 6. Ties are not.
  EXPECT_EQ(first_counts, "8 3");
  auto cache = Make();
  Import(cache, first);
  EXPECT_EQ(*cache.Find(F32Problem(4)), A(10));
  EXPECT_EQ(cache.Find(F32Problem(4))->predicted_us, 1);
}

TEST_F(DispatchCacheTest, AnEntryIsOfThePolicyThatItWasMeasuredUnder) {
  DispatchCache cold({&a_}, "cpu/test", MeasurePolicy::kCold),
      warm({&a_}, "cpu/test", MeasurePolicy::kWarm);
  ASSERT_TRUE(warm.Insert(F32Problem(4), A(5)));
  EXPECT_NE(Export(warm).find("\"policy\":\"warm\""), std::string::npos);
  EXPECT_EQ(Import(cold, Export(warm)), 0);
  EXPECT_EQ(cold.last_import().foreign, 1);
  EXPECT_EQ(cold.size(), 0u);
  DispatchCache again({&a_}, "cpu/test", MeasurePolicy::kWarm);
  EXPECT_EQ(Import(again, Export(cold)), 1);  // kept aside, and passed on
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_F(DispatchCacheTest, EveryFlippedBitIsSeenAndCostsOneLine) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert(F32Problem(4), A(20)));
  ASSERT_TRUE(cache.Insert(F32Problem(8), B(10)));
  const std::string text = Export(cache);
  ASSERT_EQ(Lines(text).size(), 3u);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      auto victim = Make();
      const int resolved = Import(victim, damaged);
      const ImportReport& report = victim.last_import();
      ASSERT_EQ(static_cast<std::size_t>(resolved), victim.size());
      ASSERT_EQ(report.unknown_kernel + report.stale + report.foreign + report.worse, 0)
          << "byte " << i << " bit " << bit;
      // Without their line end two lines become one that is neither.
      ASSERT_GE(resolved + report.corrupt, text[i] == '\n' ? 1 : 2)
          << "byte " << i << " bit " << bit;
      victim.ForEach([&cache](const GemmDesc& desc, const LaunchSpec& spec) {
        const auto original = cache.Find(desc);
        ASSERT_TRUE(original && *original == spec && original->measured_us == spec.measured_us);
      });
    }
  }
}

TEST_F(DispatchCacheTest, ATruncatedFileGivesItsWholeLines) {
  auto cache = Make();
  for (int m = 1; m <= 3; ++m) ASSERT_TRUE(cache.Insert(F32Problem(m), A(static_cast<float>(m))));
  const std::string text = Export(cache);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    auto victim = Make();
    const std::string part = text.substr(0, length);
    const auto whole = std::count(part.begin(), part.end(), '\n');
    const int resolved = Import(victim, part);
    ASSERT_GE(resolved, std::max<long>(0, whole - 1)) << length;  // one line is the header
    ASSERT_LE(resolved, whole + 0L) << length;  // a last line may be whole without its end
  }
}

TEST_F(DispatchCacheTest, HostileTextIsCountedNotObeyed) {
  auto cache = Make();
  std::string text =
      std::string(100000, '[') + "\n{}\n[]\nnull\n\"x\"\n{\"sum\":1}\n\x01\xff\xfe\n";
  text += "{\"a\":" + std::string(5000, '{') + "\n" + std::string(200000, 'x') + "\n";
  EXPECT_EQ(Import(cache, text), 0);
  EXPECT_EQ(cache.last_import().corrupt, 9);
  EXPECT_EQ(cache.last_import().messages.size(), 1u);
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::string noise(random.Below(300), ' ');
    for (char& c : noise) c = static_cast<char>(random.Below(256));
    EXPECT_EQ(Import(cache, noise), 0);
  }
}

TEST_F(DispatchCacheTest, AStreamThatThrowsOrFailsIsReported) {
  auto cache = Make();
  ASSERT_TRUE(cache.Insert(F32Problem(1), A(1)));
  std::ostringstream broken;
  broken.setstate(std::ios::badbit);
  EXPECT_EQ(cache.Export(broken), -1);
  std::istringstream throwing("junk\n");
  throwing.exceptions(std::ios::eofbit | std::ios::failbit);
  EXPECT_EQ(cache.Import(throwing), 0);
}

/// `groups` problems that differ in more than their batch, each at `batches` batch sizes, asked
/// for in random order.
std::vector<GemmDesc> ManyProblems(int groups, int batches) {
  std::vector<GemmDesc> all;
  for (int group = 0; group < groups; ++group) {
    for (int m = 1; m <= batches; ++m)
      all.push_back(F32Problem(m * 8, 64 + group * 16, 32 + 32 * (group % 7)));
  }
  Random random(3);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.Below(i)]);
  return all;
}

TEST_F(DispatchCacheTest, LookupsAllocateNothing) {
  auto cache = Make();
  const std::vector<GemmDesc> asked = ManyProblems(200, 25);
  for (const GemmDesc& desc : asked) ASSERT_TRUE(cache.Insert(desc, A(1)));
  ASSERT_EQ(cache.size(), 5000u);
  const long before = AllocationProbe::Count();
  int served = 0;
  for (GemmDesc desc : asked) {
    served += cache.Find(desc) ? 1 : 0;
    served += cache.FloorBound(desc) ? 1 : 0;
    desc.m -= 3;
    served += cache.Find(desc) ? 1 : 0;
    served += cache.LowerBound(desc) ? 1 : 0;
  }
  EXPECT_EQ(AllocationProbe::Count(), before);
  EXPECT_EQ(served, 15000);
}

/// The plainest twin: the standard's map from a problem to its answer.
struct HashBytes {
  std::size_t operator()(const GemmDesc& desc) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&desc), sizeof desc});
  }
};
using PlainMap = std::unordered_map<GemmDesc, LaunchSpec, HashBytes>;

TEST_F(DispatchCacheTest, ALookupCostsAboutWhatAPlainMapTakesAndBarelyGrowsWithTheEntries) {
  auto small = Make(), large = Make();
  PlainMap map;
  const std::vector<GemmDesc> few = ManyProblems(10, 5), many = ManyProblems(400, 25);
  for (const GemmDesc& desc : few) ASSERT_TRUE(small.Insert(desc, A(1)));
  for (const GemmDesc& desc : many) {
    ASSERT_TRUE(large.Insert(desc, A(1)));
    map.emplace(desc, A(1));
  }
  // Nanoseconds a lookup, the least of many rounds that take turns: what each costs, not what a
  // neighbour on the machine does. Only ratios are asserted; bench/lookup_bench.cc has the figures.
  constexpr int kSmall = 0, kFind = 1, kLower = 2, kFloor = 3, kMap = 4, kCount = 5, kRounds = 40;
  std::array<double, kCount> best;
  best.fill(HUGE_VAL);
  const auto time = [&](int which, const std::vector<GemmDesc>& descs, auto lookup) {
    std::size_t hits = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < many.size(); ++i) hits += lookup(descs[i % descs.size()]) ? 1 : 0;
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    ASSERT_EQ(hits, many.size());
    double& least = best[static_cast<std::size_t>(which)];
    least = std::min(least, took.count() / static_cast<double>(many.size()));
  };
  for (int round = 0; round < kRounds; ++round) {
    time(kSmall, few, [&](const GemmDesc& d) { return small.Find(d).has_value(); });
    time(kFind, many, [&](const GemmDesc& d) { return large.Find(d).has_value(); });
    time(kLower, many, [&](const GemmDesc& d) { return large.LowerBound(d).has_value(); });
    time(kFloor, many, [&](const GemmDesc& d) { return large.FloorBound(d).has_value(); });
    time(kMap, many, [&](const GemmDesc& d) {
      const auto found = map.find(d);
      return found != map.end() && std::optional<LaunchSpec>(found->second).has_value();
    });
  }
  for (const int which : {kFind, kLower, kFloor}) {
    const double ns = best[static_cast<std::size_t>(which)];
    EXPECT_LT(ns, 10 * best[kMap]) << which;
    // 200 times the entries: a search through them all would take 200 times as long.
    EXPECT_LT(ns, 25 * best[kSmall]) << which;
  }
  std::printf("few %.0f, find %.0f, lower %.0f, floor %.0f, map %.0f ns\n", best[kSmall],
              best[kFind], best[kLower], best[kFloor], best[kMap]);
}

TEST_F(DispatchCacheTest, ThePathFromAPlanToTheKernelAllocatesNothing) {
  Registry registry;
  auto setup = F32Setup("gemm.idle");
  setup.launch = [](const GemmArgs&, const LaunchSpec&) { return Status(); };
  FakeKernel* idle = test::AddFake(registry, setup);
  const auto candidates = Feasible(*Validate(F32Problem(4)), registry, DeviceSpec{});
  const auto plan = Bind(*Choose(candidates, nullptr));
  ASSERT_TRUE(plan);
  std::vector<float> a(4 * 32), b(64 * 32), d(4 * 64);
  GemmArgs args;
  args.a = a.data(), args.b = b.data(), args.d = d.data();
  args.a_layout = {DataType::kF32, Order::kRowMajor, 4, 32, 32};
  args.b_layout = {DataType::kF32, Order::kColMajor, 32, 64, 32};
  args.c_layout = args.d_layout = {DataType::kF32, Order::kRowMajor, 4, 64, 64};
  Workspace workspace;
  const long before = AllocationProbe::Count();
  bool fine = true;
  for (int i = 0; i < 10000; ++i)
    fine = fine && tilewright::Run(*plan, args, workspace, {}).has_value();
  EXPECT_EQ(AllocationProbe::Count(), before);
  EXPECT_TRUE(fine);
  EXPECT_EQ(idle->launches, 10000);
}

// Records of many groups, some written by hand in another order of fields, some of failures.
class OverRecordsTest : public testing::Test {
 protected:
  OverRecordsTest() {
    for (const char* name : {"gemm.a", "gemm.b", "gemm.c"})
      test::AddFake(registry_, F32Setup(name));
    std::vector<Record> rows;
    for (int i = 0; i < 240; ++i) {
      GemmDesc desc = F32Problem(1 + i % 10, 64 + 32 * (i % 4), 32 << (i % 3));
      if (i % 7 == 0) desc.batch_dim = BatchDim::kN;
      Record row;
      row.op = "gemm", row.scope = scope_;
      row.problem = KeyOf(desc);
      if (i % 5 == 0) row.problem = Shuffled(row.problem);
      row.kernel = i % 3 == 0 ? "gemm.a" : (i % 3 == 1 ? "gemm.b" : "gemm.c");
      row.fingerprint = i % 11 == 0 ? "old" : "f1";
      row.spec = "swizzle=0 splits=1";
      row.samples = 10, row.median_us = 5 + (i * 7) % 13;
      row.low_us = 0.99 * row.median_us, row.high_us = 1.01 * row.median_us;
      if (i % 13 == 0) row.scope.policy = MeasurePolicy::kWarm;
      if (i % 17 == 0) row.scope.device = "cpu/else";
      if (i % 29 == 0) row.verdict = Verdict::kWrong;
      rows.push_back(row);
    }
    EXPECT_TRUE(records_.Append(rows));
  }
  // The last field first.
  static std::string Shuffled(const std::string& key) {
    const std::size_t at = key.rfind(' ');
    return key.substr(at + 1) + " " + key.substr(0, at);
  }
  template <class Visit>
  static void ForEachProblem(const Visit& visit) {
    for (int n = 1; n <= 5; ++n) {
      for (int k = 32; k <= 256; k *= 2) {
        for (int m = 1; m <= 12; ++m) {
          GemmDesc desc = F32Problem(m, 32 + 32 * n, k);
          visit(desc);
          desc.batch_dim = BatchDim::kN;
          visit(desc);
        }
      }
    }
  }

  const RecordScope scope_{"cpu/test", "", MeasurePolicy::kCold};
  Registry registry_;
  Records records_ = Records::Open("");
};

TEST_F(OverRecordsTest, AnswersAsACacheOfAllRecordsDoes) {
  const DispatchCache all = BuildCache(records_.Load(), registry_, scope_);
  const DispatchCache over = DispatchCache::Over(records_, registry_, scope_);
  EXPECT_EQ(over.size(), 0u);
  int hits = 0;
  ForEachProblem([&](const GemmDesc& desc) {
    const auto want = all.Find(desc), got = over.Find(desc);
    ASSERT_EQ(want, got) << KeyOf(desc);
    if (want) {
      EXPECT_EQ(want->measured_us, got->measured_us);
    }
    const auto above = all.LowerBoundHit(desc), above_got = over.LowerBoundHit(desc);
    ASSERT_EQ(above.has_value(), above_got.has_value()) << KeyOf(desc);
    if (above) {
      EXPECT_EQ(above->batch, above_got->batch);
    }
    const auto below = all.FloorBoundHit(desc), below_got = over.FloorBoundHit(desc);
    ASSERT_EQ(below.has_value(), below_got.has_value()) << KeyOf(desc);
    if (below) {
      EXPECT_EQ(below->spec, below_got->spec);
    }
    hits += want ? 1 : 0;
  });
  EXPECT_GT(hits, 30);
  EXPECT_EQ(over.size(), all.size());
  EXPECT_GT(all.quarantine().size() + over.quarantine().size(), 0u);
  Quarantine quarantine;
  AddToQuarantine<GemmOp>(quarantine, records_.Load(), scope_);
  EXPECT_EQ(over.quarantine().size(), quarantine.size());
  const GemmDesc one = F32Problem(2, 96, 64);
  for (const Record& row : over.RecordsOf(one)) {
    const auto desc = ParseKey(row.problem);
    ASSERT_TRUE(desc);
    EXPECT_EQ(desc->n, 96);
    EXPECT_EQ(desc->k, 64);
  }
}

TEST_F(OverRecordsTest, ManyThreadsMayBeTheFirstToAsk) {
  const DispatchCache over = DispatchCache::Over(records_, registry_, scope_);
  std::atomic<int> hits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      int mine = 0;
      ForEachProblem([&](const GemmDesc& desc) { mine += over.Find(desc) ? 1 : 0; });
      hits += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hits.load() % 4, 0);
  EXPECT_GT(hits.load(), 0);
}

TEST_F(DispatchCacheTest, ManyThreadsMayLookUpAtOnce) {
  auto cache = Make();
  for (int m = 1; m <= 64; ++m)
    ASSERT_TRUE(cache.Insert(F32Problem(2 * m), A(static_cast<float>(m))));
  std::atomic<int> hits{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, &hits] {
      int mine = 0;
      for (int i = 0; i < 2000; ++i) {
        const int m = 1 + i % 128;
        mine += cache.Find(F32Problem(m)) ? 1 : 0;
        mine += cache.LowerBound(F32Problem(m)) ? 1 : 0;
      }
      hits += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits.load(), 4 * 2000);
}

}  // namespace
}  // namespace tilewright
