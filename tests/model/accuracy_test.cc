#include <algorithm>
#include <cmath>

#include "harness.h"

namespace tilewright {
namespace {

using test::Runner;

/// Positions of each prompt that are compared: the float64 reference takes most of the time of this
/// test.
constexpr std::size_t kPositions = 128;

/// Logits of the first positions of every prompt, [prompt][position][vocab].
std::vector<std::vector<float>> Logits(Session& session, const nlohmann::json& prompts) {
  std::vector<std::vector<float>> all;
  for (const auto& prompt : prompts) {
    auto ids = prompt["ids"].get<std::vector<TokenId>>();
    ids.resize(std::min(ids.size(), kPositions));
    std::vector<Row> rows;
    for (std::size_t i = 0; i < ids.size(); ++i)
      rows.push_back({ids[i], static_cast<std::int32_t>(i), 0, true});
    auto logits = session.Forward(rows);
    EXPECT_TRUE(logits) << logits.error().message;
    if (!logits) return all;
    all.emplace_back(logits->begin(), logits->end());
  }
  return all;
}

struct Distances {
  double median = 0, p95 = 0, max = 0;
};

/// Appends the distance of each position's logits, as a share of their length.
void Compare(const std::vector<std::vector<float>>& got,
             const std::vector<std::vector<float>>& want, std::size_t vocab,
             std::vector<double>& each) {
  for (std::size_t p = 0; p < got.size(); ++p) {
    for (std::size_t at = 0; at < got[p].size(); at += vocab) {
      double difference = 0, norm = 0;
      for (std::size_t i = at; i < at + vocab; ++i) {
        const double d = static_cast<double>(got[p][i]) - want[p][i];
        difference += d * d;
        norm += static_cast<double>(want[p][i]) * want[p][i];
      }
      each.push_back(std::sqrt(difference / norm));
    }
  }
}

Distances Summarise(std::vector<double> each) {
  std::sort(each.begin(), each.end());
  return {each[each.size() / 2], each[each.size() * 95 / 100], each.back()};
}

/// The least precise type that a session rounded activations to.
Precision Used(const DeviceDispatch& dispatch, Precision activations) {
  // Attention does of bf16: on tiles (2.6e-3, 1.0e-2, 3.0e-2) and, where exactly it is asked for, by vectors (2.5e-3,
  // 1.1e-2, 3.1e-2).
  const DeviceSpec& device = dispatch.device()->spec();
  const bool tiles = device.Has(kFeatureAmxTile | kFeatureAmxBf16);
  const bool vectors = device.Has(kFeatureAvx512Bf16) && activations == Precision::kBF16;
  Precision used = tiles || vectors ? std::min(activations, Precision::kBF16) : Precision::kF32;
  for (const DecidedGemm& gemm : dispatch.Decisions())
    used = std::max(used, gemm.plan.spec().kernel->desc().activations);
  return used;
}

TEST(ModelAccuracy, logits_stay_as_close_to_float64_as_the_types_allow) {
  if (test::ModelPath().empty()) GTEST_SKIP() << "no model at TILEWRIGHT_MODEL";
  const nlohmann::json prompts = test::ReadJson("goldens/generation.json")["prompts"];
  std::vector<std::vector<float>> want;
  std::size_t vocab = 0;
  {
    auto reference =
        Runner::Make(test::ModelPath(), {.fuse = false, .float64 = true, .context = 128});
    ASSERT_NE(reference, nullptr);
    vocab = static_cast<std::size_t>(reference->model->config().vocab);
    want = Logits(*reference->session, prompts);
    ASSERT_EQ(want.size(), prompts.size());
  }
  struct Draw {
    DataType kv;
    bool fuse = true;
  };
  struct Case {
    const char* name;
    Precision activations;
    std::vector<Draw> draws;
    Distances allowed;
  };
  // Up to twice what was measured (1.6e-6, 5.7e-6, 2.0e-5; 2.6e-4, 1.1e-3, 3.5e-3; 8.2e-2, 2.8e-1 where every product
  // takes w8a8), but of int8: which way a value rounds depends on the last bits of what it was computed from, so each
  // cache, fusion and instruction set is another draw. Six by AVX2 had medians of 2.25e-2 to 2.43e-2 and p95 of 7.5e-2
  // to 8.9e-2, and all their positions together, which are compared, 2.3e-2 and 8.2e-2.
  const std::vector<Draw> draws = {{DataType::kF16},  {DataType::kF16, false},
                                   {DataType::kF32},  {DataType::kF32, false},
                                   {DataType::kBF16}, {DataType::kBF16, false}};
  const Case cases[] = {
      {"f32, f32 KV", Precision::kF32, {{DataType::kF32}}, {3e-6, 1.1e-5, 4e-5}},
      {"f32, f16 KV", Precision::kF32, {{DataType::kF16}}, {5e-4, 2e-3, 6e-3}},
      {"bf16", Precision::kBF16, {{DataType::kF16}}, {8e-3, 2.5e-2, INFINITY}},
      {"int8", Precision::kI8, draws, {2.4e-2, 8.8e-2, INFINITY}},
      {"w8a8", Precision::kW8A8, draws, {1.2e-1, 4e-1, INFINITY}},
  };
  for (const Case& c : cases) {
    std::vector<double> each;
    Precision used = Precision::kF32;
    for (const Draw& draw : c.draws) {
      auto runner = Runner::Make(
          test::ModelPath(),
          {.activations = c.activations, .kv = draw.kv, .fuse = draw.fuse, .context = 128});
      ASSERT_NE(runner, nullptr);
      Compare(Logits(*runner->session, prompts), want, vocab, each);
      used = std::max(used, Used(*runner->dispatch, c.activations));
    }
    ASSERT_LE(used, c.activations) << c.name;
    const Distances d = Summarise(std::move(each));
    std::printf("%-12s relative L2 of the logits: median %.2e  p95 %.2e  max %.2e\n", c.name,
                d.median, d.p95, d.max);
    // A permission to round that no kernel here makes use of excuses nothing.
    const Distances& allowed =
        std::find_if(std::begin(cases), std::end(cases), [&](const Case& row) {
          return row.activations == used && row.draws.front().kv == c.draws.front().kv;
        })->allowed;
    EXPECT_LE(d.median, allowed.median) << c.name;
    EXPECT_LE(d.p95, allowed.p95) << c.name;
    EXPECT_LE(d.max, allowed.max) << c.name;
  }
}

}  // namespace
}  // namespace tilewright
