#include "model/load/load.h"

#include <fmt/format.h>

#include <deque>
#include <utility>

#include "core/formats/formats.h"
#include "core/memory.h"
#include "core/text.h"
#include "device/memory_space.h"
#include "model/load/recipe.h"

namespace tilewright {
namespace {

constexpr std::size_t kWeightAlignment = 64;

std::size_t AlignUp(std::size_t bytes) {
  return (bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

}  // namespace

/// Finds and checks every tensor that the architecture's rules name, plans the layouts, allocates
/// once, then packs weight by weight.
class ModelLoader {
 public:
  ModelLoader(Model& model, const ModelOptions& options, bool values)
      : model_(model),
        file_(model.file_),
        options_(options),
        values_(values),
        device_(options.device != nullptr ? *options.device : HostDevice()),
        executor_(options.executor != nullptr ? *options.executor : SerialExecutor()) {}

  static Result<std::unique_ptr<Model>> Load(GgufFile file, const Architecture& architecture,
                                             const ModelOptions& options, bool values) {
    std::unique_ptr<Model> model(new Model(std::move(file)));
    if (Status status = ModelLoader(*model, options, values).Run(architecture); !status)
      return Fail(status.error());
    return model;
  }

 private:
  /// The matrices of the file that one set of weights is made of, by role.
  using Matrices = std::array<const GgufTensor*, kWeightRoles>;

  Status Run(const Architecture& architecture) {
    if (!values_ && device_.host_accessible()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "weights without values cannot be on the host, where those of the file are used");
    }
    Result<ModelConfig> config = ReadModelConfig(file_, architecture);
    if (!config) return Fail(config.error());
    model_.config_ = *config;
    model_.architecture_ = &architecture;
    model_.fusions_ = options_.fuse ? options_.fusions : FusionSet::None();
    if (Status status = CheckTensorNames(file_, architecture, *config); !status) return status;
    if (Status status = CollectAll(); !status) return status;
    if (Status status = PlanAll(); !status) return status;
    if (Status status = Allocate(); !status) return status;
    return PackAll();
  }

  Result<const GgufTensor*> Find(const TensorRule& rule, const std::string& name) {
    Result<const GgufTensor*> found = file_.Tensor(name);
    if (!found) return found;
    const std::int64_t k = ExtentOf(rule.k, model_.config_), n = rule.Rows(model_.config_);
    const std::int64_t matrices = ExtentOf(rule.matrices, model_.config_);
    const GgufTensor& tensor = **found;
    if (tensor.shape != std::array<std::int64_t, 4>{k, n, matrices, 1}) {
      return Fail(ErrorCode::kCorrupt,
                  fmt::format("tensor {} has shape [{}, {}, {}, {}], expected [{}, {}{}]", name,
                              tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3], k,
                              n, matrices > 1 ? fmt::format(", {}", matrices) : ""));
    }
    if (Result<TensorView> view = file_.View(tensor); !view) return Fail(view.error());
    model_.parameters_ += k * n * matrices;
    return found;
  }

  /// A tensor that is read as the file has it: where it lies, if the device can read it there.
  Status UsePlain(const GgufTensor& tensor, Weight& target) {
    target.view = *file_.View(tensor);
    if (device_.host_accessible()) return file_.Fetch(tensor);
    plain_.push_back({&target, &tensor});
    return {};
  }

  static Status ExpectF32(const GgufTensor& tensor) {
    if (tensor.dtype == DataType::kF32) return {};
    return Fail(ErrorCode::kUnsupported, fmt::format("tensor {} has type {}, expected f32",
                                                     tensor.name, DataTypeName(tensor.dtype)));
  }

  Status UseVector(const GgufTensor& tensor, Weight& target) {
    if (Status s = ExpectF32(tensor); !s) return s;
    model_.bytes_per_token_ += static_cast<std::int64_t>(tensor.bytes);
    return UsePlain(tensor, target);
  }

  /// A row for each expert, of which a token reads those of its own.
  Status UseRows(const GgufTensor& tensor, Weight& target) {
    if (Status s = ExpectF32(tensor); !s) return s;
    model_.bytes_per_token_ += static_cast<std::int64_t>(tensor.bytes) /
                               std::max<std::int64_t>(1, tensor.shape[1]) *
                               model_.config_.experts_used;
    return UsePlain(tensor, target);
  }

  /// Of a decoded token one row is read.
  Status UseTable(const GgufTensor& tensor, Weight& target) {
    model_.bytes_per_token_ += static_cast<std::int64_t>(tensor.bytes) / model_.config_.vocab;
    return UsePlain(tensor, target);
  }

  /// The matrices that a tensor holds: it alone, or each of its parts.
  void AddMatrices(const TensorRule& rule, const GgufTensor& tensor, Matrices& matrices) {
    if (rule.parts.empty()) matrices[static_cast<std::size_t>(rule.role)] = &tensor;
    std::size_t i = 0;
    for (const GgufTensor& part : PartsOf(rule, tensor, model_.config_))
      matrices[static_cast<std::size_t>(rule.parts[i++].role)] = &parts_.emplace_back(part);
  }

  std::string_view NameOf(WeightRole role) const {
    for (const TensorRule& rule : model_.architecture_->tensors) {
      if (rule.role == role) return rule.name;
    }
    return {};
  }

  /// Of the tensors of factors there are none, one for all contexts, or one for long and one for
  /// short contexts; and none where the metadata says what they are.
  Status AddRopeFactors() {
    using enum WeightRole;
    for (const auto& [there, missing] :
         {std::pair(kRopeFactorsLong, kRopeFactorsShort), {kRopeFactorsShort, kRopeFactorsLong}}) {
      if (model_.globals_.Find(there) == nullptr || model_.globals_.Find(missing) != nullptr)
        continue;
      return Fail(ErrorCode::kNotFound,
                  fmt::format("tensor {} is missing, which files with {} have too", NameOf(missing),
                              NameOf(there)));
    }
    const std::vector<float>& computed = model_.config_.rope_factors;
    if (computed.empty()) return {};
    for (const WeightRole role : {kRopeFactors, kRopeFactorsLong}) {
      if (model_.globals_.Find(role) == nullptr) continue;
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("tensor {} and {}.rope.scaling.type 'yarn' scale the same "
                              "frequencies; one of them must go",
                              NameOf(role), model_.config_.architecture));
    }
    constants_.push_back({&model_.globals_[kRopeFactors], computed});
    return {};
  }

  /// The product that a matrix will serve where passes are fused: the projections back to the
  /// residual add it, unless there is a norm or a bias in between.
  TensorOp OpOf(WeightRole role, const WeightSet& set) const {
    const bool added =
        (role == WeightRole::kAttnOutput && set.Find(WeightRole::kAttnPostNorm) == nullptr &&
         set.Find(WeightRole::kAttnOutputBias) == nullptr) ||
        (role == WeightRole::kDown && set.Find(WeightRole::kFfnPostNorm) == nullptr);
    const bool gated =
        spec_.activation == Activation::kSilu && model_.fusions_.Has(Fusion::kMulMatSwiGlu);
    if (role == WeightRole::kExpertGateUp && gated) return TensorOp::kMulMatExpertsSwiGlu;
    if (role == WeightRole::kExpertGate || role == WeightRole::kExpertUp ||
        role == WeightRole::kExpertGateUp || role == WeightRole::kExpertDown)
      return TensorOp::kMulMatExperts;
    if ((role == WeightRole::kGateUp || role == WeightRole::kSharedGateUp) && gated)
      return TensorOp::kMulMatSwiGlu;
    return added && model_.fusions_.Has(Fusion::kResidual) ? TensorOp::kMulMatAdd
                                                           : TensorOp::kMulMat;
  }

  void AddRecipe(std::vector<const GgufTensor*> parts, WeightRole role, std::int64_t group,
                 WeightSet& set) {
    Recipe recipe{.target = &set[role], .parts = std::move(parts), .group = group};
    for (const GgufTensor* part : recipe.parts) recipe.spec.n += part->shape[1];
    recipe.spec.k = recipe.parts[0]->shape[0];
    recipe.spec.num = recipe.parts[0]->shape[2];
    if (recipe.spec.num > 1) recipe.spec.used = model_.config_.experts_used;
    recipe.spec.type = recipe.parts[0]->dtype;
    recipe.spec.op = recipe.target->op = OpOf(role, set);
    recipes_.push_back(std::move(recipe));
  }

  /// Whether the parts are there, alike, and of whole groups of rows.
  static bool CanMerge(const MergeRule& rule, const Matrices& matrices) {
    const GgufTensor* first = matrices[static_cast<std::size_t>(rule.parts[0])];
    for (const WeightRole role : rule.parts) {
      const GgufTensor* part = matrices[static_cast<std::size_t>(role)];
      if (part == nullptr || part->type_id != first->type_id) return false;
      if (rule.group != 0 && part->shape[1] % rule.group != 0) return false;
    }
    return true;
  }

  void AddRecipes(Matrices& matrices, WeightSet& set) {
    for (const MergeRule& rule : model_.architecture_->merges) {
      if (!model_.fusions_.Has(rule.fusion) || !CanMerge(rule, matrices)) continue;
      std::vector<const GgufTensor*> parts;
      for (const WeightRole role : rule.parts) {
        parts.push_back(std::exchange(matrices[static_cast<std::size_t>(role)], nullptr));
      }
      AddRecipe(std::move(parts), rule.into, rule.group, set);
    }
    for (std::size_t i = 0; i < kWeightRoles; ++i) {
      if (matrices[i] != nullptr) AddRecipe({matrices[i]}, static_cast<WeightRole>(i), 0, set);
    }
  }

  /// The weights of block `block`, or with -1 those of no block.
  Status Collect(std::int32_t block, WeightSet& set) {
    Matrices matrices{};
    if (block >= 0) spec_ = model_.architecture_->block(model_.config_, block);
    const GgufTensor* table = nullptr;
    for (const TensorRule& rule : model_.architecture_->tensors) {
      if (rule.OfBlock() != (block >= 0) || !rule.AppliesTo(model_.config_)) continue;
      const std::string name = rule.NameIn(block);
      if (rule.presence != Presence::kRequired && file_.FindTensor(name) == nullptr) {
        if (rule.presence == Presence::kTied) matrices[static_cast<std::size_t>(rule.role)] = table;
        continue;
      }
      Result<const GgufTensor*> tensor = Find(rule, name);
      if (!tensor) return Fail(tensor.error());
      if (rule.table) {
        if (Status s = UseRows(**tensor, set[rule.role]); !s) return s;
      } else if (rule.role == WeightRole::kEmbedding) {
        table = *tensor;
        if (Status s = UseTable(*table, set[rule.role]); !s) return s;
      } else if (rule.IsVector()) {
        if (Status s = UseVector(**tensor, set[rule.role]); !s) return s;
      } else {
        AddMatrices(rule, **tensor, matrices);
      }
    }
    AddRecipes(matrices, set);
    return {};
  }

  /// What a block multiplies its queries by, where its weights and its scale do not do so.
  void AddQueryScale(std::int32_t block) {
    if (spec_.query_magnitude == 1) return;
    const auto head_dim = static_cast<std::size_t>(model_.config_.head_dim);
    std::vector<float> values(head_dim, 1.0f);
    std::fill_n(values.begin(), spec_.rope.dims, spec_.query_magnitude);
    model_.bytes_per_token_ += static_cast<std::int64_t>(head_dim * sizeof(float));
    constants_.push_back({&model_.blocks_[static_cast<std::size_t>(block)][WeightRole::kQueryScale],
                          std::move(values)});
  }

  Status CollectAll() {
    if (Status status = Collect(-1, model_.globals_); !status) return status;
    if (Status status = AddRopeFactors(); !status) return status;
    if (const float scale = model_.config_.embedding_scale; scale != 1) {
      constants_.push_back(
          {&model_.globals_[WeightRole::kEmbeddingScale],
           std::vector<float>(static_cast<std::size_t>(model_.config_.hidden), scale)});
    }
    model_.blocks_.resize(static_cast<std::size_t>(model_.config_.layers));
    for (std::int32_t i = 0; i < model_.config_.layers; ++i) {
      if (Status s = Collect(i, model_.blocks_[static_cast<std::size_t>(i)]); !s) return s;
      AddQueryScale(i);
    }
    return {};
  }

  /// Merged weights need memory even when no kernel wants a packed layout, part of a tensor may not
  /// lie where a whole one could, and a device of its own memory needs all of them there.
  bool NeedsCopy(const Recipe& recipe) const {
    return recipe.parts.size() > 1 || recipe.plan.pack != kPackPlain ||
           recipe.parts[0]->offset % file_.alignment() != 0 || !device_.host_accessible();
  }

  static std::size_t TargetBytes(const Recipe& recipe) {
    if (recipe.plan.pack != kPackPlain) return recipe.plan.bytes;
    return PlainBytes(recipe);
  }
  static std::array<std::int64_t, 4> ShapeOf(const Recipe& recipe) {
    return {recipe.spec.k, recipe.spec.n, recipe.spec.num, 1};
  }
  static std::size_t PlainBytes(const Recipe& recipe) {
    return BytesOf(recipe.spec.type, recipe.spec.n * recipe.spec.k * recipe.spec.num);
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
          static_cast<std::int64_t>(PlainBytes(recipe)) / recipe.spec.num * recipe.spec.used;
    }
    return {};
  }

  /// What there is memory for instead of weights of `bytes` on the device: "; 9 of 32 layers fit,
  /// or weights of 3.1 bits each (these have 8.5), such as q2_k". "" where it is not known.
  std::string FitText(std::size_t bytes) const {
    const Result<MemorySpace> memory = MemoryOf(device_);
    if (!memory || memory->free >= bytes || model_.parameters_ == 0) return {};
    const double part = static_cast<double>(memory->free) / static_cast<double>(bytes);
    const double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(model_.parameters_);
    const int layers = static_cast<int>(part * model_.config_.layers);
    std::string text = fmt::format("; {} of {} layers fit", layers, model_.config_.layers);
    std::string_view best;
    double best_bits = 0;
    for (const BlockFormat& format : kFormats) {
      const double of_format = 8.0 * format.bytes / format.elements;
      if (of_format > part * bits || of_format < best_bits) continue;
      best = DataTypeName(format.type);
      best_bits = of_format;
    }
    if (best.empty()) return text + ", and the smallest weight format does not";
    return text + fmt::format(", or weights of {:.1f} bits each (these have {:.1f}), such as {}",
                              part * bits, bits, best);
  }

  /// One block of device memory for all weights that are not used where they lie, and host memory
  /// for the largest one on its way there: `assembly_` for merged rows that will be packed,
  /// `packed_` for what the device cannot be given directly.
  Status Allocate() {
    const bool direct = device_.host_accessible();
    std::size_t bytes = 0, assembly = 0, largest = 0;
    for (const Plain& plain : plain_) {
      bytes += AlignUp(plain.tensor->bytes);
    }
    for (const Constant& constant : constants_) {
      bytes += AlignUp(constant.values.size() * sizeof(float));
    }
    for (const Recipe& recipe : recipes_) {
      if (!NeedsCopy(recipe)) continue;
      bytes += AlignUp(TargetBytes(recipe));
      if (!direct) largest = std::max(largest, TargetBytes(recipe));
      if (recipe.parts.size() > 1 && recipe.plan.pack != kPackPlain)
        assembly = std::max(assembly, PlainBytes(recipe));
    }
    if (bytes == 0) return {};
    if (!values_) assembly = largest = 0;
    const std::size_t on_host = assembly + largest + (direct ? bytes : 0);
    const std::size_t available = AvailableMemoryBytes();
    const auto refuse = [&](std::size_t need, std::string_view why) {
      return Fail(ErrorCode::kOutOfMemory,
                  fmt::format("the weights need {}, {}{}", HumanBytes(need), why, FitText(bytes)));
    };
    const std::string there_is = fmt::format("{} of memory are available", HumanBytes(available));
    if (on_host > available) return refuse(on_host, there_is);
    Result<DeviceMemory> weights = device_.Allocate(bytes);
    if (!weights) return refuse(bytes, direct ? there_is : weights.error().message);
    weights_ = std::move(*weights);
    for (const auto& [memory, size] : {std::pair(&assembly_, assembly), {&packed_, largest}}) {
      if (size == 0) continue;
      Result<DeviceMemory> staging = device_.AllocateStaging(size);
      if (!staging) return refuse(on_host, there_is);
      *memory = std::move(*staging);
      FaultIn(memory->data(), size, executor_);
    }
    return {};
  }

  /// Copies host memory to its place on the device; `from` may be used again afterwards.
  Status Send(std::byte* into, const std::byte* from, std::size_t bytes) {
    const Stream stream = device_.default_stream();
    if (Status s = device_.Upload(into, from, bytes, stream); !s) return s;
    return device_.Synchronize(stream);
  }

  Status PackOne(const Recipe& recipe, std::byte* into) {
    Weight& weight = *recipe.target;
    if (!values_) {
      weight.view = Contiguous(into, recipe.spec.type, ShapeOf(recipe));
      weight.pack = recipe.plan.pack;
      return {};
    }
    for (const GgufTensor* part : recipe.parts) {
      if (Status s = file_.Fetch(*part); !s) return s;
    }
    if (!NeedsCopy(recipe)) {
      weight.view = *file_.View(*recipe.parts[0]);
      return {};
    }
    const bool direct = device_.host_accessible();
    const bool packed = recipe.plan.pack != kPackPlain;
    std::byte* const made = direct ? into : packed_.as<std::byte>();
    if (direct) FaultIn(made, TargetBytes(recipe), executor_);
    const std::byte* plain = file_.Bytes(*recipe.parts[0]).data();
    if (recipe.parts.size() > 1 || (direct && !packed))
      plain = Assemble(file_, recipe, packed ? assembly_.as<std::byte>() : made, executor_);
    if (packed) {
      if (Status s = options_.packer->PackWeight(recipe.spec, recipe.plan, plain, made); !s) {
        return Fail(s.error().code,
                    fmt::format("tensor {}: {}", recipe.parts[0]->name, s.error().message));
      }
    }
    if (!direct) {
      if (Status s = Send(into, packed ? made : plain, TargetBytes(recipe)); !s) return s;
    }
    weight.view = Contiguous(into, recipe.spec.type, ShapeOf(recipe));
    weight.pack = recipe.plan.pack;
    for (const GgufTensor* part : recipe.parts) file_.Release(*part);
    return {};
  }

  Status SendPlain(const GgufTensor& tensor, std::byte* into) {
    if (!values_) return {};
    if (Status s = file_.Fetch(tensor); !s) return s;
    const std::span<const std::byte> bytes = file_.Bytes(tensor);
    if (Status s = Send(into, bytes.data(), bytes.size()); !s) return s;
    file_.Release(tensor);
    return {};
  }

  Status PackAll() {
    std::byte* at = weights_.as<std::byte>();
    for (const Plain& plain : plain_) {
      if (Status s = SendPlain(*plain.tensor, at); !s) return s;
      plain.target->view.data = at;
      at += AlignUp(plain.tensor->bytes);
    }
    for (const Constant& constant : constants_) {
      const auto values = std::as_bytes(std::span(constant.values));
      if (Status s = Send(at, values.data(), values.size()); !s) return s;
      constant.target->view = Contiguous(
          at, DataType::kF32, {static_cast<std::int64_t>(constant.values.size()), 1, 1, 1});
      at += AlignUp(values.size());
    }
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
    model_.weights_ = std::move(weights_);
    return {};
  }

  /// A tensor that goes to the device as it is.
  struct Plain {
    Weight* target;
    const GgufTensor* tensor;
  };

  /// Values that no file has.
  struct Constant {
    Weight* target;
    std::vector<float> values;
  };

  Model& model_;
  const GgufFile& file_;
  const ModelOptions& options_;
  const bool values_;  // false: LayOutModel
  Device& device_;
  Executor& executor_;
  BlockSpec spec_;                // of the block whose weights are collected
  std::deque<GgufTensor> parts_;  // recipes point to them
  std::vector<Plain> plain_;
  std::vector<Constant> constants_;
  std::vector<Recipe> recipes_;
  DeviceMemory weights_, assembly_, packed_;
};

Result<std::unique_ptr<Model>> LoadModel(GgufFile file, const Architecture& architecture,
                                         const ModelOptions& options) {
  return ModelLoader::Load(std::move(file), architecture, options, /*values=*/true);
}

Result<std::unique_ptr<Model>> LayOutModel(GgufFile file, const ModelOptions& options) {
  Result<const Architecture*> architecture = ArchitectureOf(file);
  if (!architecture) return Fail(architecture.error());
  return ModelLoader::Load(std::move(file), **architecture, options, /*values=*/false);
}

Result<std::unique_ptr<Model>> Model::Load(GgufFile file, const ModelOptions& options) {
  Result<const Architecture*> architecture = ArchitectureOf(file);
  if (!architecture) return Fail(architecture.error());
  return ModelLoader::Load(std::move(file), **architecture, options, /*values=*/true);
}

Result<std::unique_ptr<Model>> Model::Load(const std::string& path, const ModelOptions& options) {
  Result<GgufFile> file = GgufFile::Open(path);
  if (!file) return Fail(file.error());
  return Load(std::move(*file), options);
}

}  // namespace tilewright
