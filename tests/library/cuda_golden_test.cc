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
        test::CompareWithGolden(*gpu.session, golden, BoundOf(shape, activations, kv));
      }
    }
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
