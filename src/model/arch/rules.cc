#include <cmath>
#include <set>

#include "core/log.h"
#include "core/text.h"
#include "model/arch/architecture.h"

namespace tilewright {
namespace {

/// What an unknown tensor is for, judging by the names that other architectures use.
std::string WhyNot(std::string_view name, const Architecture& architecture,
                   const ModelConfig& config) {
  if (name.ends_with(".bias")) return "biases";
  if (name.ends_with(".weight") && name.find(".ffn_") != std::string_view::npos &&
      name.size() > 8 && name[name.size() - 8] >= '0' && name[name.size() - 8] <= '9') {
    return "experts in tensors of their own, as the first files had them; convert the model again";
  }
  if (name.find("_exps") != std::string_view::npos ||
      name.find("ffn_gate_inp") != std::string_view::npos) {
    return "mixtures of experts";
  }
  return Format("with {}.block_count = {} there is no such tensor", architecture.name,
                config.layers);
}

/// Inverse frequencies of RoPE, which follow from the metadata; some converters keep them.
bool IsRedundant(std::string_view name) {
  return name.starts_with("blk.") &&
         (name.ends_with(".attn_rot_embd") || name.ends_with(".attn_rot_embd.weight"));
}

}  // namespace

std::int64_t ExtentOf(Extent extent, const ModelConfig& config) {
  switch (extent) {
    case Extent::kOne:
      return 1;
    case Extent::kHidden:
      return config.hidden;
    case Extent::kVocab:
      return config.vocab;
    case Extent::kQueries:
      return std::int64_t{config.heads} * config.head_dim;
    case Extent::kKeys:
      return std::int64_t{config.kv_heads} * config.head_dim;
    case Extent::kHeadDim:
      return config.head_dim;
    case Extent::kHeads:
      return config.heads;
    case Extent::kFfn:
      return config.ffn;
    case Extent::kRopePairs:
      return config.rope.dims / 2;
    case Extent::kExperts:
      return config.experts;
    case Extent::kExpertFfn:
      return config.expert_ffn;
    case Extent::kSharedFfn:
      return config.shared_ffn;
  }
  return 0;
}

std::int64_t TensorRule::Rows(const ModelConfig& config) const {
  if (parts.empty()) return ExtentOf(n, config);
  std::int64_t rows = 0;
  for (const TensorPart& part : parts) rows += ExtentOf(part.n, config);
  return rows;
}

std::string TensorRule::NameIn(std::int32_t block) const {
  const std::size_t at = name.find("{}");
  if (at == std::string_view::npos) return std::string(name);
  return Format("{}{}{}", name.substr(0, at), block, name.substr(at + 2));
}

Status CheckTensorNames(const GgufFile& file, const Architecture& architecture,
                        const ModelConfig& config) {
  std::set<std::string, std::less<>> known;
  for (const TensorRule& rule : architecture.tensors) {
    if (!rule.AppliesTo(config)) continue;
    const std::int32_t count = rule.OfBlock() ? config.layers : 1;
    for (std::int32_t block = 0; block < count; ++block) known.insert(rule.NameIn(block));
  }
  const GgufTensor* unread = nullptr;
  std::size_t redundant = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (known.find(tensor.name) != known.end()) continue;
    if (IsRedundant(tensor.name)) {
      if (redundant++ == 0) unread = &tensor;
      continue;
    }
    return Fail(ErrorCode::kUnsupported,
                Format("tensor {} is not supported in architecture {}: {}", Printable(tensor.name),
                       architecture.name, WhyNot(tensor.name, architecture, config)));
  }
  if (unread != nullptr && LogEnabled(LogLevel::kDebug)) {
    LogDebug(Format("{}: {} tensors are not read, since the metadata says the same: {}{}",
                    file.path(), redundant, unread->name, redundant > 1 ? " and others" : ""));
  }
  return {};
}

BlockSpec DenseBlock(const ModelConfig& config, std::int32_t index) {
  BlockSpec block{.rope = config.rope,
                  .attention_scale = config.attention_scale > 0
                                         ? config.attention_scale
                                         : 1.0f / std::sqrt(static_cast<float>(config.head_dim)),
                  .attention_softcap = config.attention_softcap};
  if (!config.windowed.empty() && config.windowed[static_cast<std::size_t>(index)]) {
    block.window = config.window;
    block.rope = config.windowed_rope;
  }
  // Queries and keys are both rotated, so the magnitude counts twice in a score.
  const float squared = config.rope_magnitude * config.rope_magnitude;
  const bool whole = config.rope.dims == config.head_dim;
  (whole ? block.attention_scale : block.query_magnitude) *= squared;
  return block;
}

BlockSpec GeluBlock(const ModelConfig& config, std::int32_t index) {
  BlockSpec block = DenseBlock(config, index);
  block.activation = Activation::kGelu;
  return block;
}

}  // namespace tilewright
