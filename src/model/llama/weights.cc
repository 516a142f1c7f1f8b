#include <fmt/format.h>

#include <cstring>
#include <initializer_list>

#include "core/memory.h"
#include "core/text.h"
#include "tilewright/model.h"

namespace tilewright {
namespace {

/// A weight to be made: one or several tensors of the file with equal k and type, their rows taken
/// in turn `group` at a time. `group` 0 puts whole tensors after each other.
struct Recipe {
  Weight* target = nullptr;
  std::vector<const GgufTensor*> parts;
  TensorOp op = TensorOp::kMulMat;
  std::int64_t group = 0;
  WeightSpec spec;
  WeightPacker::Plan plan;
};

constexpr std::size_t kWeightAlignment = 64;

std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

}  // namespace

/// Finds and checks every tensor, plans the layouts, allocates once, then packs weight by weight.
class ModelLoader {
 public:
  ModelLoader(Model& model, const ModelOptions& options)
      : model_(model), file_(model.file_), options_(options) {}

  Status Run() {
    Result<ModelConfig> config = ReadModelConfig(file_);
    if (!config) return Fail(config.error());
    model_.config_ = *config;
    model_.fused_ = options_.fuse;
    if (Status status = CheckNames(); !status) return status;
    if (Status status = Collect(); !status) return status;
    if (Status status = PlanAll(); !status) return status;
    if (Status status = Allocate(); !status) return status;
    return PackAll();
  }

 private:
  using Shape = std::array<std::int64_t, 2>;  // k, n

  /// Tensors of the architecture that this version would silently ignore change the result: refuse
  /// them by name.
  Status CheckNames() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      const std::string_view name = tensor.name;
      const bool bias = name.size() > 5 && name.substr(name.size() - 5) == ".bias";
      const bool experts = name.find("_exps") != std::string_view::npos ||
                           name.find("ffn_gate_inp") != std::string_view::npos;
      if (bias || experts) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("tensor {} is not supported in architecture llama: {}", name,
                                bias ? "biases" : "mixtures of experts"));
      }
    }
    return {};
  }

  Result<const GgufTensor*> Find(const std::string& name, Shape shape) {
    Result<const GgufTensor*> found = file_.Tensor(name);
    if (!found) return found;
    const GgufTensor& tensor = **found;
    if (tensor.shape[0] != shape[0] || tensor.shape[1] != shape[1] || tensor.shape[2] != 1 ||
        tensor.shape[3] != 1) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tensor {} has shape [{}, {}, {}, {}], expected [{}, {}]", name,
                              tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3],
                              shape[0], shape[1]));
    }
    if (Result<TensorView> view = file_.View(tensor); !view) return Fail(view.error());
    model_.parameters_ += shape[0] * shape[1];
    return found;
  }

  /// Small f32 vectors are used where they lie in the file.
  Status Vector(const std::string& name, std::int64_t size, Weight& target) {
    Result<const GgufTensor*> tensor = Find(name, {size, 1});
    if (!tensor) return Fail(tensor.error());
    if ((*tensor)->dtype != DataType::kF32) {
      return Fail(ErrorCode::kUnsupported, fmt::format("tensor {} has type {}, expected f32", name,
                                                       DataTypeName((*tensor)->dtype)));
    }
    target.view = *file_.View(**tensor);
    model_.bytes_per_token_ += static_cast<std::int64_t>((*tensor)->bytes);
    return {};
  }

  Status Matrix(std::initializer_list<std::pair<std::string, Shape>> names, TensorOp op,
                std::int64_t group, Weight& target) {
    Recipe recipe;
    recipe.target = &target;
    recipe.op = op;
    recipe.group = group;
    for (const auto& [name, shape] : names) {
      Result<const GgufTensor*> tensor = Find(name, shape);
      if (!tensor) return Fail(tensor.error());
      recipe.parts.push_back(*tensor);
      recipe.spec.n += shape[1];
      recipe.spec.k = shape[0];
    }
    recipe.spec.type = recipe.parts[0]->dtype;
    recipe.spec.op = op;
    recipes_.push_back(std::move(recipe));
    return {};
  }

  bool SameType(const std::string& prefix, std::initializer_list<const char*> names) const {
    const GgufTensor* first = nullptr;
    for (const char* name : names) {
      const GgufTensor* tensor = file_.FindTensor(prefix + name);
      if (tensor == nullptr || (first != nullptr && tensor->type_id != first->type_id))
        return false;
      first = tensor;
    }
    return true;
  }

  Status CollectLayer(std::int32_t index) {
    const ModelConfig& c = model_.config_;
    LayerWeights& layer = model_.layers_[static_cast<std::size_t>(index)];
    const std::string blk = fmt::format("blk.{}.", index);
    const std::int64_t q = static_cast<std::int64_t>(c.heads) * c.head_dim,
                       kv = static_cast<std::int64_t>(c.kv_heads) * c.head_dim;
    const std::string wq = blk + "attn_q.weight", wk = blk + "attn_k.weight",
                      wv = blk + "attn_v.weight";
    const std::string gate = blk + "ffn_gate.weight", up = blk + "ffn_up.weight";
    const bool fuse = options_.fuse;

    if (Status s = Vector(blk + "attn_norm.weight", c.hidden, layer.attn_norm); !s) return s;
    if (Status s = Vector(blk + "ffn_norm.weight", c.hidden, layer.ffn_norm); !s) return s;
    if (fuse && SameType(blk, {"attn_q.weight", "attn_k.weight", "attn_v.weight"})) {
      const Shape q_shape{c.hidden, q}, kv_shape{c.hidden, kv};
      if (Status s = Matrix({{wq, q_shape}, {wk, kv_shape}, {wv, kv_shape}}, TensorOp::kMulMat, 0,
                            layer.qkv);
          !s)
        return s;
    } else {
      if (Status s = Matrix({{wq, {c.hidden, q}}}, TensorOp::kMulMat, 0, layer.q); !s) return s;
      if (Status s = Matrix({{wk, {c.hidden, kv}}}, TensorOp::kMulMat, 0, layer.k); !s) return s;
      if (Status s = Matrix({{wv, {c.hidden, kv}}}, TensorOp::kMulMat, 0, layer.v); !s) return s;
    }
    const TensorOp projection = fuse ? TensorOp::kMulMatAdd : TensorOp::kMulMat;
    if (Status s =
            Matrix({{blk + "attn_output.weight", {q, c.hidden}}}, projection, 0, layer.attn_out);
        !s)
      return s;
    if (fuse && c.ffn % kGatedBlock == 0 && SameType(blk, {"ffn_gate.weight", "ffn_up.weight"})) {
      const Shape shape{c.hidden, c.ffn};
      if (Status s = Matrix({{gate, shape}, {up, shape}}, TensorOp::kMulMatSwiGlu, kGatedBlock,
                            layer.gate_up);
          !s)
        return s;
    } else {
      if (Status s = Matrix({{gate, {c.hidden, c.ffn}}}, TensorOp::kMulMat, 0, layer.gate); !s)
        return s;
      if (Status s = Matrix({{up, {c.hidden, c.ffn}}}, TensorOp::kMulMat, 0, layer.up); !s)
        return s;
    }
    return Matrix({{blk + "ffn_down.weight", {c.ffn, c.hidden}}}, projection, 0, layer.down);
  }

  Status Collect() {
    const ModelConfig& c = model_.config_;
    Result<const GgufTensor*> embedding = Find("token_embd.weight", {c.hidden, c.vocab});
    if (!embedding) return Fail(embedding.error());
    model_.embedding_.view = *file_.View(**embedding);
    model_.bytes_per_token_ += static_cast<std::int64_t>((*embedding)->bytes) / c.vocab;
    if (Status s = Vector("output_norm.weight", c.hidden, model_.output_norm_); !s) return s;
    if (file_.FindTensor("rope_freqs.weight") != nullptr) {
      if (Status s = Vector("rope_freqs.weight", c.rope.dims / 2, model_.rope_factors_); !s)
        return s;
    }
    model_.layers_.resize(static_cast<std::size_t>(c.layers));
    for (std::int32_t i = 0; i < c.layers; ++i) {
      if (Status s = CollectLayer(i); !s) return s;
    }
    return Matrix({{c.tied ? "token_embd.weight" : "output.weight", {c.hidden, c.vocab}}},
                  TensorOp::kMulMat, 0, model_.output_);
  }

  /// Merged weights need memory even when no kernel wants a packed layout.
  static bool NeedsCopy(const Recipe& recipe) {
    return recipe.parts.size() > 1 || recipe.plan.pack != kPackPlain;
  }

  static std::size_t TargetBytes(const Recipe& recipe) {
    if (recipe.plan.pack != kPackPlain) return recipe.plan.bytes;
    return BytesOf(recipe.spec.type, recipe.spec.n * recipe.spec.k);
  }

  Status PlanAll() {
    for (Recipe& recipe : recipes_) {
      if (options_.packer != nullptr) {
        Result<WeightPacker::Plan> plan = options_.packer->PlanWeight(recipe.spec);
        if (!plan) {
          return Fail(plan.error().code,
                      fmt::format("tensor {}: {}", recipe.parts[0]->name, plan.error().message));
        }
        recipe.plan = *plan;
      }
      model_.bytes_per_token_ +=
          static_cast<std::int64_t>(BytesOf(recipe.spec.type, recipe.spec.n * recipe.spec.k));
    }
    return {};
  }

  Status Allocate() {
    std::size_t bytes = 0, staging = 0;
    for (const Recipe& recipe : recipes_) {
      if (NeedsCopy(recipe)) bytes += AlignUp(TargetBytes(recipe));
      if (recipe.parts.size() > 1 && recipe.plan.pack != kPackPlain) {
        staging = std::max(staging, BytesOf(recipe.spec.type, recipe.spec.n * recipe.spec.k));
      }
    }
    if (bytes == 0) return {};
    Allocator& allocator = options_.allocator != nullptr ? *options_.allocator : DefaultAllocator();
    const std::size_t available = AvailableMemoryBytes();
    weights_ = bytes + staging <= available ? Buffer::Make(bytes, allocator) : Buffer();
    staging_ = weights_ && staging > 0 ? Buffer::Make(staging, allocator) : Buffer();
    if (!weights_ || (staging > 0 && !staging_)) {
      return Fail(ErrorCode::kOutOfMemory,
                  fmt::format("the weights need {}, {} of memory are available",
                              HumanBytes(bytes + staging), HumanBytes(available)));
    }
    return {};
  }

  /// The rows of a merged weight in their final order.
  const std::byte* Assemble(const Recipe& recipe, std::byte* into) const {
    const std::size_t row_bytes = BytesOf(recipe.spec.type, recipe.spec.k);
    if (recipe.group == 0) {
      std::byte* at = into;
      for (const GgufTensor* part : recipe.parts) {
        std::memcpy(at, file_.Bytes(*part).data(), part->bytes);
        at += part->bytes;
      }
      return into;
    }
    const std::size_t group_bytes = row_bytes * static_cast<std::size_t>(recipe.group);
    std::byte* at = into;
    for (std::size_t from = 0; from < recipe.parts[0]->bytes; from += group_bytes) {
      for (const GgufTensor* part : recipe.parts) {
        std::memcpy(at, file_.Bytes(*part).data() + from, group_bytes);
        at += group_bytes;
      }
    }
    return into;
  }

  Status PackOne(const Recipe& recipe, std::byte* into) {
    Weight& weight = *recipe.target;
    const bool merged = recipe.parts.size() > 1;
    if (!NeedsCopy(recipe)) {
      weight.view = *file_.View(*recipe.parts[0]);
      return {};
    }
    const bool packed = recipe.plan.pack != kPackPlain;
    const std::byte* plain = file_.Bytes(*recipe.parts[0]).data();
    if (merged) plain = Assemble(recipe, packed ? staging_.as<std::byte>() : into);
    if (packed) {
      if (Status s = options_.packer->PackWeight(recipe.spec, recipe.plan, plain, into); !s) {
        return Fail(s.error().code,
                    fmt::format("tensor {}: {}", recipe.parts[0]->name, s.error().message));
      }
    }
    weight.view = Contiguous(into, recipe.spec.type, {recipe.spec.k, recipe.spec.n, 1, 1});
    weight.pack = recipe.plan.pack;
    for (const GgufTensor* part : recipe.parts) file_.Release(*part);
    return {};
  }

  Status PackAll() {
    std::byte* at = weights_.as<std::byte>();
    std::size_t done = 0;
    for (const Recipe& recipe : recipes_) {
      if (Status s = PackOne(recipe, at); !s) return s;
      if (NeedsCopy(recipe)) at += AlignUp(TargetBytes(recipe));
      ++done;
      if (options_.progress &&
          !options_.progress(static_cast<double>(done) / static_cast<double>(recipes_.size()))) {
        return Fail(ErrorCode::kCancelled, "loading was cancelled");
      }
    }
    if (weights_) model_.buffers_.push_back(std::move(weights_));
    return {};
  }

  Model& model_;
  const GgufFile& file_;
  const ModelOptions& options_;
  std::vector<Recipe> recipes_;
  Buffer weights_, staging_;
};

Result<std::unique_ptr<Model>> Model::Load(const std::string& path, const ModelOptions& options) {
  Result<GgufFile> file = GgufFile::Open(path);
  if (!file) return Fail(file.error());
  std::unique_ptr<Model> model(new Model(std::move(*file)));
  if (Status status = ModelLoader(*model, options).Run(); !status) return Fail(status.error());
  return model;
}

}  // namespace tilewright
