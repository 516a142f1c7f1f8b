// Writes the files that model_fuzz starts from, one of each architecture and way to scale RoPE:
// model_seeds FOLDER.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"

namespace tilewright {
namespace {

/// A small model with all tensors that the architecture knows, but that factors of RoPE are left out
/// where metadata scales it. All weights are 1.
Status WriteSeed(const Architecture& architecture, const std::string& scaling, bool sparse,
                 const std::string& path) {
  ModelConfig config;
  config.architecture = architecture.name;
  config.layers = 1;
  config.hidden = 8;
  config.ffn = 32;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.vocab = 3;
  config.context = config.original_context = 64;
  config.rope.dims = 4;
  // Keys that some architectures read and others do not.
  config.window = 4;
  config.windowed = {true};
  config.attention_softcap = config.logit_softcap = 30;
  config.experts = sparse ? 3 : 0;
  config.experts_used = 2;
  config.expert_ffn = 32;
  config.shared_ffn = 32;
  GgufWriter writer;
  writer.SetString("general.architecture", config.architecture);
  WriteTransformer(config, writer);
  const std::string prefix = config.architecture + ".rope.scaling.";
  if (!scaling.empty()) {
    writer.SetString(prefix + "type", scaling);
    writer.SetF32(prefix + "factor", 4);
    writer.SetU32(prefix + "original_context_length", 16);
    writer.SetF32(prefix + "attn_factor", 1.5f);
    writer.SetF32(prefix + "yarn_beta_fast", 32);
    writer.SetF32(prefix + "yarn_beta_slow", 1);
    writer.SetF32(prefix + "yarn_log_multiplier", 0.5f);
    writer.SetF32(prefix + "low_freq_factor", 1);
    writer.SetF32(prefix + "high_freq_factor", 4);
  }
  for (const TensorRule& rule : architecture.tensors) {
    if (!rule.AppliesTo(config)) continue;
    const bool factors = rule.k == Extent::kRopePairs;
    if (factors && !scaling.empty()) continue;
    const std::int64_t k = ExtentOf(rule.k, config), n = rule.Rows(config);
    const std::int64_t matrices = ExtentOf(rule.matrices, config);
    GgufTensorSpec spec{.name = rule.NameIn(0),
                        .dtype = DataType::kF32,
                        .shape = {k, n, matrices, 1},
                        .dims = matrices > 1      ? 3
                                : rule.IsVector() ? 1
                                                  : 2};
    if (Status status = writer.AddTensor(std::move(spec)); !status) return status;
  }
  return writer.Write(path, [&](std::size_t index, const GgufWriter::Sink& sink) {
    const GgufTensorSpec& spec = writer.tensors()[index];
    const std::vector<float> values(
        static_cast<std::size_t>(spec.shape[0] * spec.shape[1] * spec.shape[2]), 1.0f);
    return sink(std::as_bytes(std::span(values)));
  });
}

/// Whether the architecture has models with experts, or without.
bool HasModels(const Architecture& architecture, bool sparse) {
  const auto router =
      std::ranges::find(architecture.tensors, WeightRole::kRouter, &TensorRule::role);
  if (router == architecture.tensors.end()) return !sparse;
  return sparse || router->kind == Kind::kSparse;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const tilewright::Architecture* architecture : tilewright::Architectures()) {
    for (const char* scaling : {"", "linear", "yarn", "longrope", "llama3"}) {
      for (const bool sparse : {false, true}) {
        if (!tilewright::HasModels(*architecture, sparse)) continue;
        const std::string path = folder + "/" + std::string(architecture->name) + "_" + scaling +
                                 (sparse ? "_sparse" : "");
        const tilewright::Status written =
            tilewright::WriteSeed(*architecture, scaling, sparse, path);
        if (written) continue;
        std::fprintf(stderr, "%s\n", written.error().message.c_str());
        return 1;
      }
    }
  }
  return 0;
}
