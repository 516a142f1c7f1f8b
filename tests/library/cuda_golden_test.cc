// Models on a GPU against llama.cpp's goldens: tiny models of every architecture, and a real one for
// every prompt. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "family_goldens.h"
#include "gpu_model.h"
#include "model/goldens.h"
#include "on_host.h"

namespace tilewright {
namespace {

using nlohmann::json;
using test::CudaModel;
using test::OnGpu;

class CudaGoldens : public CudaModel {};

/// As test::Bound, and three tensors more of a block are rounded: q, k and v after their biases, or q
/// and k after their norms. Goldens are of f32: with f32 everywhere little is left.
double BoundOf(const SynthShape& shape, DataType activations, DataType kv) {
  if (activations == DataType::kF32 && kv == DataType::kF32) return 1e-4;
  return test::Bound(shape, activations, kv) +
         3 * std::sqrt(3.0 * shape.layers) * test::Rounding(activations);
}

/// What the float64 oracle computes with activations and a cache of these types, which alone are
/// rounded: logits behind the prompt and behind the last id of `golden`, and how far the best is ahead
/// of the others in front of each id, 0 where another one is the best.
json RoundedGolden(const std::string& path, json golden, const SessionOptions& options) {
  const auto oracle = MakeReferenceDispatch();
  ModelOptions plain;
  plain.fuse = false;
  const auto model = Model::Load(path, plain);
  EXPECT_TRUE(model) << model.error().message;
  const auto session = Session::Create(**model, *oracle, options);
  EXPECT_TRUE(session) << session.error().message;
  const auto prompt = golden["prompt"].get<std::vector<TokenId>>();
  auto position = static_cast<std::int32_t>(prompt.size());
  Result<std::span<const float>> logits = (*session)->Prefill(prompt, 0, 0);
  EXPECT_TRUE(logits) << logits.error().message;
  golden["logits"][0] = std::vector<float>(logits->begin(), logits->end());
  for (std::size_t i = 0; i < golden["greedy"].size(); ++i) {
    const auto id = golden["greedy"][i].get<TokenId>();
    float next = -HUGE_VALF;
    for (std::size_t other = 0; other < logits->size(); ++other)
      if (static_cast<TokenId>(other) != id) next = std::max(next, (*logits)[other]);
    golden["gaps"][i] = std::max((*logits)[static_cast<std::size_t>(id)] - next, 0.0f);
    const Row row{id, position++, 0, true};
    logits = (*session)->Forward({&row, 1});
    EXPECT_TRUE(logits) << logits.error().message;
  }
  golden["logits"].back() = std::vector<float>(logits->begin(), logits->end());
  return golden;
}

/// `golden`; or, where two experts are about as good for a row and the oracle with rounded activations
/// chooses another one than llama.cpp does in f32, what the oracle makes then.
json GoldenFor(const std::string& path, const json& golden, const SessionOptions& options,
               double bound) {
  if (test::ShapeOf(golden).experts == 0 || options.activations == DataType::kF32) return golden;
  json rounded = RoundedGolden(path, golden, options);
  for (const std::size_t i : {std::size_t{0}, golden["logits"].size() - 1}) {
    const auto want = golden["logits"][i].get<std::vector<float>>();
    const auto got = rounded["logits"][i].get<std::vector<float>>();
    if (test::WorstRow(got, want, want.size()) > bound) return rounded;
  }
  return golden;
}

TEST_F(CudaGoldens, tiny_models_of_every_architecture_give_the_logits_of_llama_cpp) {
  const json goldens = test::FamilyGoldens();
  for (const json& golden : goldens["cases"]) {
    const std::string path = test::WriteGolden(*folder_, golden, goldens["seed"]);
    const SynthShape shape = test::ShapeOf(golden);
    for (const auto& [activations, kv] : {std::pair{DataType::kF32, DataType::kF32},
                                          {DataType::kBF16, DataType::kBF16},
                                          {DataType::kF16, DataType::kF16}}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(golden["name"].get<std::string>() + ", " +
                     std::string(DataTypeName(activations)) + (fuse ? "" : ", unfused"));
        SessionOptions options = Options(activations, kv);
        options.context = golden["context"].get<std::int32_t>();
        const OnGpu gpu = Load(path, options, fuse);
        ASSERT_NE(gpu.session, nullptr);
        const double bound = BoundOf(shape, activations, kv);
        test::CompareWithGolden(*gpu.session, GoldenFor(path, golden, options, bound), bound);
      }
    }
    test::NoteGolden(golden, test::GpuLevel(context_->device().spec()));
  }
}

TEST_F(CudaGoldens, every_node_of_every_architecture_is_what_the_cpu_makes_of_its_inputs) {
  const json goldens = test::FamilyGoldens();
  for (const json& golden : goldens["cases"]) {
    const std::string path = test::WriteGolden(*folder_, golden, goldens["seed"]);
    for (const auto& [activations, kv] :
         {std::pair{DataType::kF32, DataType::kF16}, {DataType::kBF16, DataType::kBF16}}) {
      SCOPED_TRACE(golden["name"].get<std::string>() + ", " +
                   std::string(DataTypeName(activations)));
      const OnGpu gpu = Load(path, Options(activations, kv), true, false);
      ASSERT_NE(gpu.session, nullptr);
      EXPECT_GT(test::ExpectNodesOfCpu(*gpu.model, *gpu.dispatch, Options(activations, kv),
                                       test::NodeBound(activations)),
                50);
    }
  }
}

TEST_F(CudaGoldens, smollm2_picks_the_tokens_of_llama_cpp_for_every_prompt) {
  if (test::ModelPath().empty()) GTEST_SKIP() << "no model at TILEWRIGHT_MODEL";
  const json goldens = test::ReadJson("goldens/generation.json");
  // As golden_test.cc has it for the CPU: picks may part where two tokens are about as close as the
  // logits are to those of f32.
  struct Case {
    DataType activations, kv;
    double skip, close;
  };
  for (const Case& c : {Case{DataType::kF32, DataType::kF32, 1e-3, 1e-3},
                        Case{DataType::kBF16, DataType::kBF16, 0, 0.5}}) {
    SessionOptions options = Options(c.activations, c.kv);
    options.context = 2048;
    const OnGpu gpu = Load(test::ModelPath(), options);
    ASSERT_NE(gpu.session, nullptr);
    for (const json& prompt : goldens["prompts"]) {
      const test::Divergence d =
          test::FirstDivergence(test::Greedy(*gpu.session, prompt), prompt, c.skip);
      EXPECT_TRUE(std::isinf(d.gap) || d.gap <= c.close)
          << prompt["name"] << ", " << DataTypeName(c.activations) << ": parts at " << d.at
          << ", gap " << d.gap;
    }
  }
}

}  // namespace
}  // namespace tilewright
