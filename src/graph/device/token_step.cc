#include "graph/device/token_step.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "decode/families.h"
#include "engine/compiled/loaded_kernel.h"
#include "graph/device/bound_step.h"
#include "graph/liveness.h"
#include "ops/attention/cuda/attention_launch.h"
#include "ops/gemm/base/gemm_op.h"
#include "tilewright/attention.h"

namespace tilewright {
namespace {

using decode::Layer;
using decode::Matrix;
using decode::TokenModel;

/// Waits for other CTAs that take longer are an error: far longer than a token, and than other work
/// on the GPU takes turns.
constexpr std::uint64_t kWaitNs = 2'000'000'000;

/// Walks through the steps of a graph and takes them for those of layers.
class Reader {
 public:
  Reader(const Graph& graph, std::span<const std::unique_ptr<PreparedStep>> steps,
         const DeviceSpec& device)
      : graph_(graph), steps_(steps), device_(device) {}

  tl::expected<TokenSteps, Rejection> Read() {
    while (at_ < steps_.size() && !NormedProduct()) ++at_;
    token_.first = at_;
    for (;;) {
      const GemmArgs* first = Product(Kind::kNormed, x_);
      if (no_) return tl::unexpected(*no_);
      if (first->d_layout.type == DataType::kF32) {
        token_.model.output_norm = first->norm;
        token_.model.output = MatrixOf(*first);
        token_.model.logits = static_cast<float*>(first->d);
        break;
      }
      ReadLayer(*first);
      if (no_) return tl::unexpected(*no_);
    }
    token_.count = at_ - token_.first;
    if (token_.model.layers.empty())
      no_ = Reject(Reason::kShape, "logits without a layer", "a layer or more");
    CheckReaders();
    if (no_) return tl::unexpected(*no_);
    return std::move(token_);
  }

 private:
  enum class Kind { kNormed, kGated, kAdded };

  static const GemmArgs* ArgsOf(const PreparedStep& step) {
    const auto* bound = dynamic_cast<const BoundStep<GemmOp>*>(&step);
    return bound != nullptr ? &bound->args() : nullptr;
  }
  bool NormedProduct() const {
    const GemmArgs* args = ArgsOf(*steps_[at_]);
    return args != nullptr && args->prologue == Prologue::kRmsNorm;
  }
  std::string Name(std::size_t step) const {
    const TensorNode& node = graph_.node(steps_[step]->node);
    return Format("{} {} by {}", TensorOpName(node.op), node.name,
                  steps_[step]->kernel.empty() ? "its dispatch" : steps_[step]->kernel);
  }
  void Refuse(std::string need) {
    if (no_) return;
    no_ = Reject(Reason::kShape, at_ < steps_.size() ? Name(at_) : "the end of the steps",
                 std::move(need));
  }

  /// The next step as a product of the row at `x`, and moves on; nullptr and a rejection else.
  const GemmArgs* Product(Kind kind, const void* x) {
    const GemmArgs* args = at_ < steps_.size() ? ArgsOf(*steps_[at_]) : nullptr;
    if (args == nullptr) {
      Refuse("a product of a dense layer");
      return nullptr;
    }
    const Result<KernelSpec> spec = ParseSpecName(steps_[at_]->kernel);
    if (!spec || spec->family != "gemv_int8") {
      Refuse("gemv_int8, whose bits decode_token gives");
      return nullptr;
    }
    const bool normed = args->prologue == Prologue::kRmsNorm;
    const bool gated = args->epilogue == Epilogue::kGatedSilu;
    const bool added = args->beta == 1.0f;
    const bool plain = args->beta == 0.0f;
    const bool right = kind == Kind::kNormed  ? normed && !gated && plain
                       : kind == Kind::kGated ? normed && gated && plain
                                              : !normed && !gated && added;
    const bool one_row =
        args->a_layout.rows == 1 && args->alpha == 1.0f && args->a_layout.type == DataType::kBF16 &&
        args->b_layout.pack == kPackPlain && args->b_layout.ld == args->b_layout.rows;
    if (!right || !one_row || (normed && args->type_norm != DataType::kF32)) {
      Refuse(kind == Kind::kNormed  ? "the norm and product of one row"
             : kind == Kind::kGated ? "the norm, gate and up of one row"
                                    : "the product of one row, added to the residual");
      return nullptr;
    }
    if (x != nullptr && args->a != x) {
      Refuse("a product of what the step in front of it leaves");
      return nullptr;
    }
    if (normed) {
      float& epsilon = token_.model.epsilon;
      if (epsilon == 0) epsilon = args->epsilon;
      if (epsilon != args->epsilon) Refuse(Format("an epsilon of {}", epsilon));
    }
    nodes_.insert(steps_[at_]->node);
    ++at_;
    return args;
  }
  static Matrix MatrixOf(const GemmArgs& args) {
    return {args.b, args.b_layout.type, args.b_layout.cols, args.b_layout.rows};
  }

  void ReadLayer(const GemmArgs& qkv) {
    Layer layer;
    if (token_.model.embedded == nullptr) token_.model.embedded = qkv.a;
    x_ = qkv.a;
    layer.attention_norm = qkv.norm;
    layer.qkv = MatrixOf(qkv);
    const void* attended = ReadAttention(qkv, layer);
    const GemmArgs* o = no_ ? nullptr : Product(Kind::kAdded, attended);
    if (o == nullptr) return;
    if (o->c != x_) --at_, Refuse("the sum with the row that the layer began with");
    layer.o = MatrixOf(*o);
    const GemmArgs* gate_up = no_ ? nullptr : Product(Kind::kGated, o->d);
    if (gate_up == nullptr) return;
    layer.ffn_norm = gate_up->norm;
    layer.gate_up = MatrixOf(*gate_up);
    const GemmArgs* down = Product(Kind::kAdded, gate_up->d);
    if (down == nullptr) return;
    layer.down = MatrixOf(*down);
    // What is read later than by the next step is still there then.
    if (down->c != o->d || qkv.d == x_ || attended == x_ || gate_up->d == o->d)
      --at_, Refuse("the sum with what attention left");
    x_ = down->d;
    token_.model.layers.push_back(layer);
  }

  /// Returns where the result is.
  const void* ReadAttention(const GemmArgs& qkv, Layer& layer) {
    const auto* bound = at_ < steps_.size()
                            ? dynamic_cast<const BoundStep<attention::Op>*>(steps_[at_].get())
                            : nullptr;
    if (bound == nullptr) {
      Refuse("attention that turns its row");
      return nullptr;
    }
    const attention::Args& args = bound->args();
    const Result<KernelSpec> spec = ParseSpecName(steps_[at_]->kernel);
    if (!spec || spec->family != "attention_decode" || spec->cluster_n < 2 ||
        spec->params[2] == 0 || spec->type_a != DataType::kBF16) {
      Refuse("attention_decode in clusters that turns a row of bf16");
      return nullptr;
    }
    const cuda::LaunchResult launch =
        attention::AttentionDecodeLaunch(*spec, args, device_, Workspace{});
    const auto params = launch ? launch->params.As<cuda::RopeAttentionParams>() : std::nullopt;
    if (!params) {
      Refuse("arguments that attention_decode takes");
      return nullptr;
    }
    const std::int64_t head_dim = args.q.shape[0];
    const auto behind = [&](std::int64_t heads) {
      return static_cast<const std::byte*>(qkv.d) + BytesOf(DataType::kBF16, heads * head_dim);
    };
    const std::int64_t heads = args.q.shape[1], kv_heads = args.k_cache.shape[1];
    if (args.q.data != qkv.d || args.k.data != behind(heads) ||
        args.v.data != behind(heads + kv_heads) || args.q.stride[1] != head_dim ||
        args.k.stride[1] != head_dim || args.v.stride[1] != head_dim) {
      Refuse("queries, keys and values as their product leaves them");
      return nullptr;
    }
    cuda::RopeAttentionParams shared = *params;
    shared.k = shared.v = nullptr;
    shared.attention.q = shared.attention.k_cache = shared.attention.v_cache = nullptr;
    shared.attention.out = nullptr;
    if (token_.model.layers.empty()) {
      token_.model.attention = shared;
      token_.model.head_dim = head_dim;
      token_.attention_warps = spec->warps;
      token_.parts = spec->cluster_n;
    } else if (std::memcmp(&shared, &token_.model.attention, sizeof shared) != 0 ||
               token_.attention_warps != spec->warps || token_.parts != spec->cluster_n) {
      Refuse("the same attention in every layer");
      return nullptr;
    }
    layer.k_cache = args.k_cache.data, layer.v_cache = args.v_cache.data;
    nodes_.insert(steps_[at_]->node);
    ++at_;
    return args.out.data;
  }

  /// What only words of the kernel's own hold is read by its steps alone.
  void CheckReaders() {
    if (no_) return;
    const NodeId last = steps_[at_ - 1]->node, first = steps_[token_.first]->node;
    std::set<NodeId> inner;
    for (const NodeId id : nodes_)
      if (id != last) inner.insert(StorageOf(graph_, id));
    for (const TensorNode& node : graph_.nodes()) {
      if (nodes_.contains(node.id)) {
        if (node.keep && node.id != last) return RefuseReader(node);
        continue;
      }
      if (node.id < first || !Computes(node.op)) continue;
      for (const NodeId input : node.inputs) {
        if (input != kNoNode && inner.contains(StorageOf(graph_, input))) return RefuseReader(node);
      }
    }
  }
  void RefuseReader(const TensorNode& node) {
    no_ = Reject(Reason::kShape, Format("{} {}", TensorOpName(node.op), node.name),
                 "nothing but the logits to be read");
  }

  const Graph& graph_;
  std::span<const std::unique_ptr<PreparedStep>> steps_;
  const DeviceSpec& device_;
  std::size_t at_ = 0;
  const void* x_ = nullptr;  ///< the residual
  TokenSteps token_;
  std::set<NodeId> nodes_;
  std::optional<Rejection> no_;
};

/// All layers of a token. The memory is its own.
class TokenStep final : public PreparedStep {
 public:
  struct Memory {
    DeviceMemory steps, words, partials, state;
    DeviceMemory alarm;  ///< in the host's memory
  };
  TokenStep(NodeId id, const KernelSpec& its_spec, std::string reason, Memory memory,
            std::unique_ptr<const ReadyLaunch> ready)
      : memory_(std::move(memory)), ready_(std::move(ready)) {
    node = id;
    kernel = SpecName(its_spec);
    why = std::move(reason);
  }
  Status Run(Stream stream) const override { return ready_->Launch(stream); }
  bool only_submits() const override { return true; }
  const ReadyLaunch* ready() const override { return ready_.get(); }
  Status Outcome() const override {
    const volatile unsigned int* alarm = memory_.alarm.as<unsigned int>();
    if (*alarm == 0) return {};
    return Fail(
        ErrorCode::kUnavailable,
        Format("{}: a CTA waited more than {} s for another one, and the token was given up",
               kernel, kWaitNs / 1'000'000'000));
  }

 private:
  Memory memory_;
  std::unique_ptr<const ReadyLaunch> ready_;
};

Result<TokenStep::Memory> MakeMemory(const decode::TokenSchedule& schedule, Device& device,
                                     Stream stream) {
  TokenStep::Memory memory;
  const auto make = [&](DeviceMemory& of, std::size_t bytes) -> Status {
    Result<DeviceMemory> made = device.Allocate(bytes);
    if (!made) return Fail(made.error());
    of = std::move(*made);
    return device.Fill(of.data(), 0, bytes, stream);
  };
  const std::size_t step_bytes = schedule.steps.size() * sizeof(tw::TokenStep);
  for (const Status& made : {make(memory.steps, step_bytes), make(memory.words, 4 * schedule.words),
                             make(memory.partials, 8 * schedule.partials),
                             make(memory.state, 4 * tw::kTokenStateWords)}) {
    if (!made) return Fail(made.error());
  }
  Result<DeviceMemory> alarm = device.AllocateStaging(sizeof(unsigned int));
  if (!alarm) return Fail(alarm.error());
  memory.alarm = std::move(*alarm);
  *memory.alarm.as<unsigned int>() = 0;
  Status sent = device.Upload(memory.steps.data(), schedule.steps.data(), step_bytes, stream);
  if (sent) sent = device.Synchronize(stream);
  if (!sent) return Fail(sent.error());
  return memory;
}

}  // namespace

tl::expected<TokenSteps, Rejection> FindToken(const Graph& graph,
                                              std::span<const std::unique_ptr<PreparedStep>> steps,
                                              const DeviceSpec& device) {
  return Reader(graph, steps, device).Read();
}

Result<std::unique_ptr<PreparedStep>> BindToken(const TokenSteps& token, NodeId last,
                                                ArtifactStore& store, Device& device,
                                                Stream stream) {
  const auto refuse = [](const Rejection& no) {
    return Fail(ErrorCode::kUnsupported, "decode_token: " + no.ToString());
  };
  const auto formats = decode::FormatsOf(token.model);
  if (!formats) return refuse(formats.error());
  const KernelSpec spec = DecodeTokenSpec(
      NativeArch(device.spec().compute_capability), formats->weights, formats->others,
      static_cast<int>(token.model.head_dim), token.attention_warps, token.parts);
  if (auto no = CheckFamily(spec, DecodeTokenFamily())) return refuse(*no);
  const decode::ScheduleResult schedule =
      decode::MakeSchedule(token.model, spec, device.spec().sm_count);
  if (!schedule) return refuse(schedule.error());
  Result<LoadedKernel> loaded = LoadedKernel::Load(store, spec, device);
  if (!loaded) return Fail(loaded.error());
  Result<TokenStep::Memory> memory = MakeMemory(*schedule, device, stream);
  if (!memory) return Fail(memory.error());

  cuda::CudaLaunch launch;
  launch.grid = {schedule->ctas, 1, 1};
  launch.block = {DecodeTokenThreads(spec), 1, 1};
  launch.dynamic_smem_bytes = schedule->smem_bytes;
  launch.cooperative = true;
  launch.params =
      cuda::KernelParams(decode::ParamsOf(token.model, *schedule,
                                          {.steps = memory->steps.as<const tw::TokenStep>(),
                                           .words = memory->words.as<unsigned int>(),
                                           .partials = memory->partials.as<unsigned long long>(),
                                           .state = memory->state.as<unsigned int>(),
                                           .alarm = memory->alarm.as<unsigned int>()},
                                          kWaitNs));
  const cuda::LaunchResult checked = cuda::CheckedLaunch(launch);
  if (!checked) return refuse(checked.error());
  Result<std::unique_ptr<ReadyLaunch>> ready =
      loaded->Ready(*checked, [name = SpecName(spec)](const Error& error) {
        return Error{error.code, name + ": " + error.message};
      });
  if (!ready) return Fail(ready.error());
  return std::unique_ptr<PreparedStep>(std::make_unique<TokenStep>(
      last, spec, Format("{} steps in one launch of {} CTAs", token.count, schedule->ctas),
      std::move(*memory), std::move(*ready)));
}

}  // namespace tilewright
