#include "core/text.h"
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"

namespace tilewright {
namespace {

constexpr std::int32_t kMaxVocab = 1 << 24;

/// Reads what only the tensors say: the number of tokens, and whether the output projection is the
/// embedding.
Status ReadVocabulary(const GgufFile& file, const Architecture& architecture, ModelConfig& config) {
  for (const TensorRule& rule : architecture.tensors) {
    if (rule.role == WeightRole::kOutput) config.tied = file.FindTensor(rule.name) == nullptr;
    if (rule.role != WeightRole::kEmbedding) continue;
    Result<const GgufTensor*> table = file.Tensor(rule.name);
    if (!table) return Fail(table.error());
    const std::int64_t rows = (*table)->shape[1];
    if (rows > kMaxVocab) {
      return Fail(ErrorCode::kCorrupt,
                  Format("tensor {} has {} rows, at most {}", rule.name, rows, kMaxVocab));
    }
    config.vocab = static_cast<std::int32_t>(rows);
  }
  return {};
}

}  // namespace

Result<ModelConfig> ReadModelConfig(const GgufFile& file, const Architecture& architecture) {
  ModelConfig config;
  config.architecture = std::string(architecture.name);
  if (Result<std::string_view> name = file.String("general.name", ""); name)
    config.name = std::string(*name);
  config.rope.mode = architecture.rope;
  Hyperparameters from(file, architecture.name);
  architecture.read(from, config);
  if (from.error()) return Fail(*from.error());
  if (Status status = ReadVocabulary(file, architecture, config); !status)
    return Fail(status.error());
  return config;
}

std::int64_t WeightBytes(const GgufFile& file) {
  const bool tied = file.FindTensor("output.weight") == nullptr;
  std::int64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tied || tensor.name != "token_embd.weight")
      bytes += static_cast<std::int64_t>(tensor.bytes);
  }
  return bytes;
}

Result<ModelConfig> ReadModelConfig(const GgufFile& file) {
  Result<const Architecture*> architecture = ArchitectureOf(file);
  if (!architecture) return Fail(architecture.error());
  return ReadModelConfig(file, **architecture);
}

}  // namespace tilewright
