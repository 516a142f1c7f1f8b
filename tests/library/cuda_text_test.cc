// Greedy text of SmolLM2 on a GPU and on the CPU: where they part, it is at a near-tie, and the logits
// are as far off as is stated, no further. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "gpu_model.h"
#include "picks.h"

namespace tilewright {
namespace {

using test::CudaModel;
using test::DifferentPick;
using test::OnGpu;
using test::PickTokens;
using test::Runner;
using test::StatedError;

constexpr std::size_t kTokens = 48;

struct Case {
  const char* name;
  Precision precision;
  DataType activations, kv, cpu_kv;
  StatedError gpu, cpu;
};
constexpr Case kCases[] = {
    {"default", Precision::kAuto, DataType::kBF16, DataType::kBF16, DataType::kF16, test::kGpuInt8,
     test::kCpuInt8},
    {"bf16", Precision::kBF16, DataType::kBF16, DataType::kBF16, DataType::kF16, test::kGpuBf16,
     test::kCpuBf16},
    {"f32", Precision::kF32, DataType::kF32, DataType::kF32, DataType::kF32, test::kGpuF32,
     test::kCpuF32},
};

class CudaText : public CudaModel {};

/// A line for each prompt, and what each difference has to be.
void ExpectNearTies(const std::string& what, const std::vector<DifferentPick>& different,
                    std::size_t tokens, double allowed) {
  if (different.empty()) {
    std::printf("%s: the same %zu tokens\n", what.c_str(), tokens);
    return;
  }
  const DifferentPick& first = different.front();
  std::printf(
      "%s: parts at %zu of %zu, gap %.4f, logits off by %.4f and %.4f, rms %.2f; %zu differ\n",
      what.c_str(), first.at, tokens, first.gap, first.error_wanted, first.error_got, first.rms,
      different.size());
  for (const DifferentPick& pick : different) {
    SCOPED_TRACE(testing::Message()
                 << what << ", token " << pick.at << ": " << pick.wanted << " on the CPU, "
                 << pick.got << " on the GPU, gap " << pick.gap);
    EXPECT_TRUE(pick.NearTie()) << pick.error_wanted << " and " << pick.error_got;
    EXPECT_TRUE(pick.Within(allowed))
        << pick.error_wanted << " and " << pick.error_got << ", at most " << allowed * pick.rms;
  }
}

TEST_F(CudaText, is_that_of_the_cpu_up_to_near_ties) {
  const char* const path = std::getenv("TILEWRIGHT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path)) GTEST_SKIP() << "no SmolLM2 here";
  const auto exact = Runner::Make(path, {.context = 128});
  ASSERT_NE(exact, nullptr);
  const Result<Tokenizer> tokenizer = Tokenizer::FromGguf(exact->model->file());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto vocab = static_cast<std::size_t>(exact->model->config().vocab);
  for (const Case& c : kCases) {
    const auto cpu = Runner::Make(path, {.activations = c.precision, .kv = c.cpu_kv});
    const OnGpu gpu = Load(path, Options(c.activations, c.kv), true, true, c.precision);
    ASSERT_TRUE(cpu != nullptr && gpu.session != nullptr);
    std::vector<double> distances;
    for (const std::string& text : test::GreedyPrompts()) {
      // The CPU's text is fed to all, so that each of its tokens is compared.
      const std::vector<TokenId> prompt = tokenizer->Encode(text).value();
      const auto want =
          PickTokens(*cpu->session, prompt, {}, kTokens, tokenizer->end_of_generation());
      const std::size_t tokens = want.ids.size();
      const auto got = PickTokens(*gpu.session, prompt, want.ids, tokens);
      const auto in_f32 = PickTokens(*exact->session, prompt, want.ids, tokens);
      ASSERT_EQ(got.ids.size(), tokens);
      ASSERT_EQ(in_f32.ids.size(), tokens);
      const auto rows = test::RowDistances(got.logits, in_f32.logits, vocab);
      distances.insert(distances.end(), rows.begin(), rows.end());
      ExpectNearTies(std::string(c.name) + ", \"" + text + "\"",
                     test::DifferentPicks(got.ids, got.logits, want.logits, vocab), tokens,
                     4 * std::hypot(c.gpu.p95, c.cpu.p95));
    }
    std::sort(distances.begin(), distances.end());
    const double median = distances[distances.size() / 2];
    const double p95 = distances[distances.size() * 95 / 100];
    std::printf("%s: relative L2 of %zu rows of logits: median %.2e, p95 %.2e, max %.2e\n", c.name,
                distances.size(), median, p95, distances.back());
    EXPECT_LE(median, c.gpu.median) << c.name;
    EXPECT_LE(p95, c.gpu.p95) << c.name;
  }
}

}  // namespace
}  // namespace tilewright
