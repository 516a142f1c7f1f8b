#include "tilewright/synth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "core/formats/formats.h"
#include "core/text.h"
#include "model/arch/architecture.h"
#include "model/arch/hyperparameters.h"
#include "model/synth/mixes.h"
#include "model/synth/rope_factors.h"
#include "model/synth/vocabulary.h"
#include "model/synth/weight_source.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using synth::Plan;
using synth::WeightSource;

// llama.cpp's number for "mostly this type".
std::uint32_t FileTypeNumber(const SynthOptions& options) {
  if (const synth::Mix* mix = synth::FindMix(options.mix)) return mix->file_type;
  const DataType type = options.quant;
  if (const BlockFormat* format = FindFormat(type)) return format->gguf_file_type;
  return type == DataType::kF32 ? 0 : type == DataType::kF16 ? 1 : 32;  // 32: bf16
}

Status CheckShape(const SynthShape& shape) {
  const auto fail = [](std::string message) {
    return Fail(ErrorCode::kInvalidArgument, std::move(message));
  };
  const std::pair<const char*, int> fields[] = {
      {"layers", shape.layers},     {"hidden", shape.hidden},     {"heads", shape.heads},
      {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim}, {"ffn", shape.ffn},
      {"context", shape.context}};
  for (const auto& [name, value] : fields) {
    if (value < 1 || value > 1 << 20)
      return fail(Format("{} = {}: must be from 1 to {}", name, value, 1 << 20));
  }
  if (shape.experts != 0 && (shape.experts < 2 || shape.experts_used < 1 || shape.expert_ffn < 1 ||
                             shape.experts_used > shape.experts)) {
    return fail(
        Format("experts = {}, experts_used = {}, expert_ffn = {}: at least 2 experts, of "
               "which 1 or more are used, of a positive width",
               shape.experts, shape.experts_used, shape.expert_ffn));
  }
  if (shape.heads % shape.kv_heads != 0) {
    return fail(
        Format("heads = {}: must be a multiple of kv_heads = {}", shape.heads, shape.kv_heads));
  }
  if (shape.head_dim % 2 != 0) return fail(Format("head_dim = {}: must be even", shape.head_dim));
  if (shape.rope_dims < 0 || shape.rope_dims % 2 != 0 || shape.rope_dims > shape.head_dim) {
    return fail(Format("rope_dims = {}: must be even, from 0 to head_dim = {}", shape.rope_dims,
                       shape.head_dim));
  }
  if (shape.original_context < 0 || shape.original_context > shape.context) {
    return fail(Format("original_context = {}: must be from 0 to context = {}",
                       shape.original_context, shape.context));
  }
  if (!(shape.yarn_factor >= 0) || (shape.yarn_factor > 0 && shape.original_context == 0)) {
    return fail(Format("yarn_factor = {}: must be 0, or positive with an original_context",
                       shape.yarn_factor));
  }
  if (shape.window < 0 || (shape.window > 0 && shape.window_period < 1)) {
    return fail(
        Format("window = {}, window_period = {}: must be 0 or more, with a period of 1 or more",
               shape.window, shape.window_period));
  }
  const auto [least, most] = synth::LimitsOf(shape.tokens);
  if (shape.vocab < least || shape.vocab > most) {
    return fail(
        Format("vocab = {}: this vocabulary has from {} to {} tokens", shape.vocab, least, most));
  }
  return {};
}

ModelConfig ConfigOf(const SynthShape& shape, const Architecture& architecture) {
  ModelConfig config;
  config.architecture = architecture.name;
  config.layers = shape.layers;
  config.hidden = shape.hidden;
  config.ffn = shape.ffn;
  config.experts = shape.experts;
  config.experts_used = shape.experts_used;
  config.expert_ffn = shape.expert_ffn;
  config.shared_ffn = shape.shared_ffn;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.vocab = shape.vocab;
  config.context = shape.context;
  config.epsilon = shape.norm_epsilon;
  config.rope.dims = synth::RotatedDims(shape);
  config.original_context = shape.context;
  if (shape.original_context > 0 && shape.original_context < shape.context) {
    config.original_context = shape.original_context;
  }
  if (config.original_context < shape.context && shape.yarn_factor == 0) {
    // Microsoft's rule for Phi 3.
    const double growth = static_cast<double>(shape.context) / shape.original_context;
    config.rope_magnitude =
        static_cast<float>(std::sqrt(1 + std::log(growth) / std::log(shape.original_context)));
  }
  config.rope.base = shape.rope_base;
  config.window = shape.window;
  for (int i = 0; shape.window > 0 && i < shape.layers; ++i)
    config.windowed.push_back(i % shape.window_period < shape.window_period - 1);
  config.windowed_rope.base =
      shape.windowed_rope_base > 0 ? shape.windowed_rope_base : shape.rope_base;
  config.attention_softcap = shape.attention_softcap;
  config.logit_softcap = shape.logit_softcap;
  config.tied = shape.tied;
  return config;
}

void DescribeModel(const SynthOptions& options, const ModelConfig& config, GgufWriter& writer) {
  const SynthShape& shape = options.shape;
  writer.SetString("general.architecture", config.architecture);
  writer.SetString("general.type", "model");
  writer.SetString("general.name",
                   Format("{} shape, random weights, seed {}", shape.name, options.seed));
  writer.SetU32("general.file_type", FileTypeNumber(options));
  writer.SetU32("general.quantization_version", 2);
  WriteTransformer(config, writer);
  if (shape.yarn_factor > 0) {
    writer.SetString(Format("{}.rope.scaling.type", config.architecture), "yarn");
    writer.SetF32(Format("{}.rope.scaling.factor", config.architecture), shape.yarn_factor);
  }

  const synth::Vocabulary vocabulary = synth::MakeVocabulary(shape.tokens, shape.vocab);
  writer.SetString("tokenizer.ggml.model", vocabulary.model);
  writer.SetString("tokenizer.ggml.pre", vocabulary.pre);
  writer.SetStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.SetI32s("tokenizer.ggml.token_type", vocabulary.types);
  const bool pieces = !vocabulary.scores.empty();
  if (pieces) {
    writer.SetF32s("tokenizer.ggml.scores", vocabulary.scores);
    writer.SetU32("tokenizer.ggml.unknown_token_id", 0);
  } else {
    writer.SetStrings("tokenizer.ggml.merges", vocabulary.merges);
  }
  writer.SetU32("tokenizer.ggml.bos_token_id", vocabulary.bos);
  writer.SetU32("tokenizer.ggml.eos_token_id", vocabulary.eos);
  writer.SetBool("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  writer.SetBool("tokenizer.ggml.add_space_prefix", pieces);
}

// Adds tensors to a plan and counts their types.
class TensorList {
 public:
  TensorList(const SynthOptions& options, const ModelConfig& config, Plan& plan)
      : options_(options), config_(config), plan_(plan) {}

  void Matrix(const TensorRule& rule, std::int32_t block, std::int64_t cols, std::int64_t rows) {
    // As llama.cpp's quantizer leaves them: the router is small, and decides what the rest computes;
    // rows that are looked up are biases.
    if (rule.role == WeightRole::kRouter || rule.table) {
      return Add(rule.NameIn(block), DataType::kF32, {cols, rows, 1, 1}, rule.role);
    }
    const synth::Mix* mix = synth::FindMix(options_.mix);
    const DataType wanted =
        mix != nullptr ? synth::TypeIn(*mix, rule.role, block, config_) : TypeOf(rule.role);
    DataType type = wanted;
    const int elements = GetTypeInfo(wanted).block_elements;
    if (cols % elements != 0) {
      if (mix != nullptr) {
        type = synth::NarrowType(wanted, cols);
      } else if (elements > BlockQ8_0::kFormat.elements) {
        type = DataType::kQ8_0;
      }
    }
    if (type != wanted) {
      Other& other = others_[type];
      ++other.count;
      other.cols.insert(cols);
      other.wanted.insert(DataTypeName(wanted));
    } else if (mix == nullptr && type != options_.quant) {
      ++others_[type].count;
    }
    ++types_[type];
    Add(rule.NameIn(block), type, {cols, rows, ExtentOf(rule.matrices, config_), 1}, rule.role);
  }
  void Vector(std::string name, WeightRole role, std::int64_t size) {
    Add(std::move(name), DataType::kF32, {size, 1, 1, 1}, role);
  }

  // Returns the first error, else completes the report.
  Status Finish() {
    if (!status_) return status_;
    std::vector<std::pair<int, DataType>> counts;
    for (const auto& [type, count] : types_) counts.emplace_back(-count, type);
    std::sort(counts.begin(), counts.end());
    for (const auto& [count, type] : counts) {
      plan_.report.types +=
          Format("{}{}: {}", plan_.report.types.empty() ? "" : ", ", DataTypeName(type), -count);
    }
    for (const auto& [type, other] : others_) {
      plan_.report.note +=
          Format("{}{} of {} matrices {} {}", plan_.report.note.empty() ? "" : "; ", other.count,
                 total_matrices(), other.count == 1 ? "is" : "are", DataTypeName(type));
      if (!other.cols.empty()) {
        plan_.report.note +=
            type == DataType::kF16
                ? Format(" (rows of {} are not a multiple of {}, the smallest block)",
                         fmt::join(other.cols, " and "), synth::kLeastBlock)
                : Format(" (rows of {} are not a multiple of 256, the block of {})",
                         fmt::join(other.cols, " and "), fmt::join(other.wanted, " and "));
      } else {
        plan_.report.note += " (the output projection, kept more precise, as is usual)";
      }
    }
    plan_.report.file_bytes = plan_.writer.file_bytes();
    return {};
  }

 private:
  // Matrices of a type that was not requested.
  struct Other {
    int count = 0;
    // If rows do not fit the requested type: their lengths, and the type.
    std::set<std::int64_t> cols;
    std::set<std::string_view> wanted;
  };

  // Without a mix. The matrix that computes the logits, perhaps the embedding of a tied model, is
  // kept more precise.
  DataType TypeOf(WeightRole role) const {
    const BlockFormat* format = FindFormat(options_.quant);
    const bool is_output =
        role == WeightRole::kOutput || (role == WeightRole::kEmbedding && config_.tied);
    const bool coarse = format != nullptr && format->code_bits < BlockQ6_K::kFormat.code_bits;
    return is_output && coarse ? DataType::kQ6_K : options_.quant;
  }
  int total_matrices() const {
    int total = 0;
    for (const auto& [type, count] : types_) total += count;
    return total;
  }
  void Add(std::string name, DataType type, const std::array<std::int64_t, 4>& shape,
           WeightRole role) {
    if (!status_) return;
    GgufTensorSpec spec{.name = std::move(name),
                        .dtype = type,
                        .shape = shape,
                        .dims = shape[2] > 1   ? 3
                                : shape[1] > 1 ? 2
                                               : 1};
    status_ = plan_.writer.AddTensor(std::move(spec));
    plan_.roles.push_back(role);
    if (!synth::IsRopeFactors(role))
      plan_.report.parameters += static_cast<std::uint64_t>(shape[0] * shape[1] * shape[2]);
  }

  const SynthOptions& options_;
  const ModelConfig& config_;
  Plan& plan_;
  Status status_;
  std::map<DataType, int> types_;
  std::map<DataType, Other> others_;
};

Result<const Architecture*> ArchitectureFor(const SynthShape& shape) {
  if (shape.architecture.empty()) return Architectures().front();
  if (const Architecture* found = FindArchitecture(shape.architecture)) return found;
  return Fail(ErrorCode::kUnsupported,
              Format("architecture '{}' is not supported", shape.architecture));
}

// Whether a model of the shape has the tensor.
bool Wanted(const TensorRule& rule, const SynthShape& shape, const ModelConfig& config) {
  if (!rule.AppliesTo(config)) return false;
  if (rule.presence == Presence::kTied) return !shape.tied;
  if (synth::IsRopeFactors(rule.role)) return !synth::RopeFactors(rule.role, shape).empty();
  return rule.presence == Presence::kRequired;
}

void AddTensor(const TensorRule& rule, std::int32_t block, const ModelConfig& config,
               TensorList& list) {
  const std::int64_t k = ExtentOf(rule.k, config), n = rule.Rows(config);
  if (rule.IsVector()) return list.Vector(rule.NameIn(block), rule.role, k);
  list.Matrix(rule, block, k, n);
}

Result<Plan> MakePlan(const SynthOptions& options) {
  const SynthShape& shape = options.shape;
  if (!synth::WeightMaker::Supports(options.quant)) {
    return Fail(ErrorCode::kUnsupported, Format("type {} cannot be synthesised; supported are {}",
                                                DataTypeName(options.quant), SynthTypes()));
  }
  if (!options.mix.empty() && synth::FindMix(options.mix) == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("mix '{}' is not known; known are {}", options.mix, SynthMixes()));
  }
  if (auto status = CheckShape(shape); !status) return Fail(status.error());

  Result<const Architecture*> architecture = ArchitectureFor(shape);
  if (!architecture) return Fail(architecture.error());

  Plan plan;
  const ModelConfig config = ConfigOf(shape, **architecture);
  DescribeModel(options, config, plan.writer);
  TensorList list(options, config, plan);
  for (const TensorRule& rule : (*architecture)->tensors) {
    if (!rule.OfBlock() && Wanted(rule, shape, config)) AddTensor(rule, -1, config, list);
  }
  for (std::int32_t block = 0; block < config.layers; ++block) {
    for (const TensorRule& rule : (*architecture)->tensors) {
      if (rule.OfBlock() && Wanted(rule, shape, config)) AddTensor(rule, block, config, list);
    }
  }
  if (auto status = list.Finish(); !status) return Fail(status.error());
  return plan;
}

/// A source with what it works with.
struct GeneratedWeights {
  GeneratedWeights(const SynthOptions& wanted, Plan made)
      : options(wanted), plan(std::move(made)), source(options, plan, no_progress) {}

  const SynthOptions options;
  const Plan plan;
  const SynthProgress no_progress;
  WeightSource source;
};

}  // namespace

std::string SynthTypes() {
  std::string names;
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    if (!synth::WeightMaker::Supports(type)) continue;
    if (!names.empty()) names += ", ";
    names += DataTypeName(type);
  }
  return names;
}

std::string SynthMixes() {
  std::string names;
  for (const synth::Mix& mix : synth::Mixes())
    names.append(names.empty() ? "" : ", ").append(mix.name);
  return names;
}

Status SetSynthQuant(std::string_view given, SynthOptions& options) {
  // Files are often named in capitals: Q4_K_M.
  std::string name(given);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (synth::FindMix(name) != nullptr) {
    options.mix = name;
    return {};
  }
  const auto type = ParseDataType(name);
  if (!type) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("'{}' is not a type or a mix of types; types are {}; mixes are {}", given,
                       SynthTypes(), SynthMixes()));
  }
  options.mix.clear();
  options.quant = *type;
  return {};
}

Result<SynthReport> PlanSynthetic(const SynthOptions& options) {
  auto plan = MakePlan(options);
  if (!plan) return Fail(plan.error());
  return plan->report;
}

Result<SynthReport> WriteSynthetic(const SynthOptions& options, const std::string& path,
                                   const SynthProgress& progress) {
  auto plan = MakePlan(options);
  if (!plan) return Fail(plan.error());
  WeightSource source(options, *plan, progress);
  const auto emit = [&source](std::size_t index, const GgufWriter::Sink& sink) {
    return source.Emit(index, sink);
  };
  if (auto status = plan->writer.Write(path, emit); !status) return Fail(status.error());
  return plan->report;
}

Result<GgufFile> GenerateSynthetic(const SynthOptions& options) {
  auto plan = MakePlan(options);
  if (!plan) return Fail(plan.error());
  const auto made = std::make_shared<GeneratedWeights>(options, std::move(*plan));
  return made->plan.writer.Generate(
      Format("{} {}", options.shape.name,
             options.mix.empty() ? DataTypeName(options.quant) : std::string_view(options.mix)),
      [made](std::size_t index, const GgufWriter::Sink& sink) {
        return made->source.Emit(index, sink);
      });
}

}  // namespace tilewright
