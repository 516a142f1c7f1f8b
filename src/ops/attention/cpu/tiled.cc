#include "ops/attention/cpu/tiled.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/paged_cache.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/attention/checks.h"
#include "ops/attention/cpu/layout.h"

namespace tilewright::attention {
namespace {

std::size_t AlignUp(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
int PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

/// Rows of one sequence in a run of the batch that are handled together.
struct RowBlock {
  std::int32_t first_row, rows;
  std::int32_t from, seen;  // its rows see the positions from .. seen - 1 between them
};

/// Bytes of one worker's scratch.
std::size_t ScratchBytes(const Desc& desc) {
  const auto hd = static_cast<std::size_t>(PaddedHeadDim(desc.head_dim));
  const auto vectors = static_cast<std::size_t>(kBlockRows * (desc.heads / desc.kv_heads));
  const std::size_t floats = 3 * vectors * hd + 2 * 64 * hd + vectors * kSplit;
  return AlignUp(floats * sizeof(float)) + 4 * AlignUp(vectors * sizeof(float)) + 8 * 64;
}

/// With fewer tasks than this for each worker, long sequences are divided by splits as well.
constexpr int kTasksPerWorker = 4;

bool DividesSplits(int blocks, int kv_heads, int workers) {
  return workers > 1 && blocks * kv_heads < kTasksPerWorker * workers;
}

/// Blocks that `rows` rows make at least when none is padding. Padding makes fewer, but what it
/// leaves must not need more workspace than was reserved.
int FewestBlocks(int rows) { return (rows + kBlockRows - 1) / kBlockRows; }

/// Bytes of the partial results when splits are divided: only so few blocks get there that this
/// stays small.
std::size_t PartialBytes(std::size_t vectors, std::size_t splits, int head_dim) {
  return AlignUp(vectors * splits * static_cast<std::size_t>(PaddedHeadDim(head_dim) + 2) *
                 sizeof(float));
}

AttentionScratch CarveScratch(const Desc& desc, std::byte* memory) {
  const auto hd = static_cast<std::size_t>(PaddedHeadDim(desc.head_dim));
  const auto vectors = static_cast<std::size_t>(kBlockRows * (desc.heads / desc.kv_heads));
  AttentionScratch s;
  s.hd_padded = static_cast<int>(hd);
  auto take = [&](std::size_t floats) {
    auto* at = reinterpret_cast<float*>(memory);
    memory += AlignUp(floats * sizeof(float));
    return at;
  };
  s.q = take(vectors * hd);
  s.rows32 = take(64 * hd);
  s.columns = take(64 * hd);
  s.scores = take(vectors * kSplit);
  s.split_out = take(vectors * hd);
  s.out = take(vectors * hd);
  s.split_max = take(vectors);
  s.split_sum = take(vectors);
  s.max = take(vectors);
  s.sum = take(vectors);
  return s;
}

/// One launch: everything the tasks share.
class TiledRun {
 public:
  TiledRun(const AttentionFunctions& functions, const Desc& desc, const Args& args, void* workspace,
           Executor& executor)
      : functions_(functions),
        desc_(desc),
        args_(args),
        executor_(executor),
        places_(args.k_cache, args.pages),
        group_(desc.heads / desc.kv_heads) {
    auto* at = static_cast<std::byte*>(workspace);
    blocks_ = reinterpret_cast<RowBlock*>(at);
    at += AlignUp(static_cast<std::size_t>(desc.rows) * sizeof(RowBlock));
    limits_ = reinterpret_cast<std::int32_t*>(at);
    firsts_ = limits_ + desc.rows;
    at += AlignUp(2 * static_cast<std::size_t>(desc.rows) * sizeof(std::int32_t));
    scratch_ = at;
    at += ScratchBytes(desc) * static_cast<std::size_t>(executor.workers());
    partials_ = reinterpret_cast<float*>(at);
    MakeBlocks();
  }

  void Execute() {
    if (!DividesSplits(std::max(block_count_, FewestBlocks(desc_.rows)), desc_.kv_heads,
                       executor_.workers()) ||
        splits_ == 1) {
      executor_.Run(block_count_ * desc_.kv_heads,
                    [this](int task, int worker) { WholeTask(task, worker); });
      return;
    }
    const int tasks = block_count_ * desc_.kv_heads;
    executor_.Run(tasks * splits_, [this](int task, int worker) {
      SplitTask(task / splits_, task % splits_, worker);
    });
    executor_.Run(tasks, [this](int task, int worker) { MergeTask(task, worker); });
  }

 private:
  void MakeBlocks() {
    const auto* positions = args_.positions.as<const std::int32_t>();
    const auto* slots = args_.slots.as<const std::int32_t>();
    int longest = 1;
    bool open = false;  // the last block may take another row
    for (std::int32_t r = 0; r < desc_.rows; ++r) {
      limits_[r] = positions[r] + 1;
      firsts_[r] = FirstSeen(positions[r], desc_.window);
      if (limits_[r] == 0) {  // padding
        float* out = args_.out.as<float>() + r * args_.out.stride[1];
        std::fill(out, out + std::int64_t{desc_.heads} * desc_.head_dim, 0.0f);
        open = false;
        continue;
      }
      longest = std::max(longest, limits_[r]);
      if (open) {
        RowBlock& last = blocks_[block_count_ - 1];
        // What the rows of a block see has no gap, since pages that no row sees may not exist.
        const bool meets = firsts_[r] <= last.seen && limits_[r] >= last.from;
        if (last.rows < kBlockRows && slots[last.first_row] == slots[r] && meets) {
          ++last.rows;
          last.from = std::min(last.from, firsts_[r]);
          last.seen = std::max(last.seen, limits_[r]);
          continue;
        }
      }
      blocks_[block_count_++] = {r, 1, firsts_[r], limits_[r]};
      open = true;
    }
    splits_ = (longest + kSplit - 1) / kSplit;
  }

  AttentionScratch Scratch(int worker) const {
    return CarveScratch(desc_, scratch_ + ScratchBytes(desc_) * static_cast<std::size_t>(worker));
  }

  AttentionBlock Block(const RowBlock& rows, int kv_head) const {
    AttentionBlock block;
    block.group = group_;
    block.vectors = rows.rows * group_;
    block.head_dim = desc_.head_dim;
    block.kv_type = desc_.type_kv;
    block.limit = limits_ + rows.first_row;
    block.first = firsts_ + rows.first_row;
    block.from = rows.from;
    block.softcap = args_.softcap;
    const TensorView& cache = args_.k_cache;
    const std::int32_t slot = args_.slots.as<const std::int32_t>()[rows.first_row];
    std::int64_t offset = std::int64_t{kv_head} * cache.stride[1];
    if (places_.paged()) {
      block.pages = places_.PagesOf(slot);
      block.page_size = static_cast<int>(cache.shape[2]);
      block.page_bytes = BytesOf(desc_.type_kv, cache.stride[3]);
    } else {
      offset += slot * cache.stride[3];
    }
    const std::size_t bytes = BytesOf(desc_.type_kv, offset);
    block.keys = args_.k_cache.as<const unsigned char>() + bytes;
    block.values = args_.v_cache.as<const unsigned char>() + bytes;
    block.kv_row_bytes = BytesOf(desc_.type_kv, cache.stride[2]);
    return block;
  }

  const float* QueryRow(const RowBlock& rows, int kv_head, int vector) const {
    const std::int64_t row = rows.first_row + vector / group_;
    const std::int64_t head = kv_head * group_ + vector % group_;
    return args_.q.as<const float>() + row * args_.q.stride[2] + head * args_.q.stride[1];
  }

  /// The scale goes into q: one multiplication for each element instead of one for each score.
  void LoadQueries(const RowBlock& rows, int kv_head, const AttentionScratch& s) const {
    for (int v = 0; v < rows.rows * group_; ++v) {
      const float* from = QueryRow(rows, kv_head, v);
      float* to = s.q + v * s.hd_padded;
      for (int d = 0; d < desc_.head_dim; ++d) to[d] = from[d] * args_.scale;
      std::fill(to + desc_.head_dim, to + s.hd_padded, 0.0f);
    }
  }

  void StartMerge(int vectors, const AttentionScratch& s) const {
    std::fill(s.max, s.max + vectors, -__builtin_inff());
    std::fill(s.sum, s.sum + vectors, 0.0f);
    std::fill(s.out, s.out + vectors * s.hd_padded, 0.0f);
  }

  /// What the weighted sum of a vector is multiplied by. A sink takes part in the softmax as one more
  /// position whose value is zero; it comes last, whatever the splits.
  float OutScale(std::int64_t head, float max, float sum) const {
    if (args_.sinks.data == nullptr) return 1.0f / sum;
    const float sink = args_.sinks.as<const float>()[head];
    if (sink <= max) return 1.0f / (sum + std::exp(sink - max));
    const float keep = std::exp(max - sink);
    return keep / (sum * keep + 1.0f);
  }

  void Finish(const RowBlock& rows, int kv_head, const AttentionScratch& s) const {
    for (int v = 0; v < rows.rows * group_; ++v) {
      const std::int64_t row = rows.first_row + v / group_;
      const std::int64_t head = kv_head * group_ + v % group_;
      float* to = args_.out.as<float>() + row * args_.out.stride[1] + head * desc_.head_dim;
      const float* from = s.out + v * s.hd_padded;
      const float scale = OutScale(head, s.max[v], s.sum[v]);
      for (int d = 0; d < desc_.head_dim; ++d) to[d] = from[d] * scale;
    }
  }

  static int SplitCount(int seen, int split) { return std::min(kSplit, seen - split * kSplit); }

  void WholeTask(int task, int worker) const {
    // Later blocks see more keys: start with them, so that no long task is left for the end.
    const RowBlock& rows = blocks_[block_count_ - 1 - task / desc_.kv_heads];
    const int kv_head = task % desc_.kv_heads;
    const AttentionScratch s = Scratch(worker);
    const AttentionBlock block = Block(rows, kv_head);
    LoadQueries(rows, kv_head, s);
    StartMerge(block.vectors, s);
    for (int split = rows.from / kSplit; split * kSplit < rows.seen; ++split) {
      functions_.compute_split(block, split * kSplit, SplitCount(rows.seen, split), s);
      functions_.merge_split(block.vectors, s.hd_padded, s.split_max, s.split_sum, s.split_out,
                             s.max, s.sum, s.out);
    }
    Finish(rows, kv_head, s);
  }

  /// Partials of (task, split): max[vectors], sum[vectors], out[vectors][hd_padded].
  float* Partial(int task, int split, int hd_padded) const {
    const std::int64_t each = std::int64_t{kBlockRows} * group_ * (hd_padded + 2);
    return partials_ + (static_cast<std::int64_t>(task) * splits_ + split) * each;
  }

  void SplitTask(int task, int split, int worker) const {
    const RowBlock& rows = blocks_[task / desc_.kv_heads];
    if (split < rows.from / kSplit || split * kSplit >= rows.seen) return;
    const int kv_head = task % desc_.kv_heads;
    AttentionScratch s = Scratch(worker);
    const AttentionBlock block = Block(rows, kv_head);
    LoadQueries(rows, kv_head, s);
    float* partial = Partial(task, split, s.hd_padded);
    s.split_max = partial;
    s.split_sum = partial + block.vectors;
    s.split_out = partial + 2 * block.vectors;
    functions_.compute_split(block, split * kSplit, SplitCount(rows.seen, split), s);
  }

  void MergeTask(int task, int worker) const {
    const RowBlock& rows = blocks_[task / desc_.kv_heads];
    const AttentionScratch s = Scratch(worker);
    const int vectors = rows.rows * group_;
    StartMerge(vectors, s);
    for (int split = rows.from / kSplit; split * kSplit < rows.seen; ++split) {
      const float* partial = Partial(task, split, s.hd_padded);
      functions_.merge_split(vectors, s.hd_padded, partial, partial + vectors,
                             partial + 2 * vectors, s.max, s.sum, s.out);
    }
    Finish(rows, task % desc_.kv_heads, s);
  }

  const AttentionFunctions& functions_;
  const Desc& desc_;
  const Args& args_;
  Executor& executor_;
  const CachePlaces places_;
  const int group_;
  RowBlock* blocks_ = nullptr;
  std::int32_t* limits_ = nullptr;  ///< AttentionBlock::limit of every row
  std::int32_t* firsts_ = nullptr;  ///< AttentionBlock::first
  std::byte* scratch_ = nullptr;
  float* partials_ = nullptr;
  int block_count_ = 0;
  int splits_ = 1;
};

/// Bytes of workspace for any contents of positions.
std::size_t WorkspaceBytes(const Desc& desc, int worker_count) {
  const auto rows = static_cast<std::size_t>(desc.rows);
  const auto workers = static_cast<std::size_t>(worker_count);
  std::size_t bytes = AlignUp(rows * sizeof(RowBlock)) + AlignUp(2 * rows * sizeof(std::int32_t)) +
                      workers * ScratchBytes(desc);
  if (DividesSplits(FewestBlocks(desc.rows), desc.kv_heads, worker_count)) {
    const std::size_t most_tasks =
        std::min(rows * static_cast<std::size_t>(desc.kv_heads), kTasksPerWorker * workers);
    const auto splits = static_cast<std::size_t>((desc.context + kSplit - 1) / kSplit);
    bytes += PartialBytes(
        most_tasks * static_cast<std::size_t>(kBlockRows * (desc.heads / desc.kv_heads)), splits,
        desc.head_dim);
  }
  return bytes;
}

class TiledAttention final : public Kernel {
 public:
  TiledAttention(const char* isa, std::uint32_t features, AttentionFunctions functions,
                 const char* tu, double gflop_share)
      : Kernel(CpuKernelInfo(Format("attention.f32.{}", isa), tu, features)),
        functions_(functions),
        gflop_share_(gflop_share) {}

  std::optional<Rejection> IsFeasible(const Desc& desc) const override {
    if (auto no = RejectNewRows(desc)) return no;
    if (desc.type_q != DataType::kF32) {
      return Rejection{Reason::kType, Format("q of type {}", DataTypeName(desc.type_q)), "f32"};
    }
    const auto is = [&](DataType type) { return desc.type_kv == type; };
    if (!is(DataType::kF32) && !is(DataType::kF16) && !is(DataType::kBF16) &&
        !is(DataType::kQ8_0)) {
      return Rejection{Reason::kType, Format("a cache of {}", DataTypeName(desc.type_kv)),
                       "f32, f16, bf16 or q8_0"};
    }
    return std::nullopt;
  }

  std::span<const ConfigField> ConfigFields() const override { return kThreadsField; }
  std::vector<Spec> Specs(const Desc& desc, const DeviceSpec& device,
                          const LaunchLimits&) const override {
    std::vector<Spec> specs(1);
    ForFewerThreads(device.cores, EstimateUs(desc, specs[0], device),
                    [&](int threads) { specs.emplace_back().config = ThreadsConfig(threads); });
    return specs;
  }

  double EstimateUs(const Desc& desc, const Spec& spec, const DeviceSpec& device) const override {
    // The lengths are unknown when choosing; the order of the kernels does not depend on them.
    const double seen = desc.window > 0 ? std::min(desc.window, 512) : 512;
    const double flops = 4.0 * desc.rows * desc.heads * desc.head_dim * seen;
    return flops / (device.f32_gflop_s * gflop_share_ * 1e3 * WorkersOf(spec.config, device.cores));
  }

  WorkspaceSize WorkspaceFor(const Desc& desc, const Spec& spec,
                             const DeviceSpec& device) const override {
    return {.partials = WorkspaceBytes(desc, WorkersOf(spec.config, device.cores))};
  }

  Status Launch(const Args& args, const Spec& spec, Workspace& workspace, Stream stream) override {
    if (Status status = CheckRows(args); !status) return status;
    return LaunchOnThreads(spec.config, stream, [&](Stream limited) -> Status {
      const Desc desc = ShapeOf(args, {});
      const int workers = limited.exec().workers();
      // The workspace may be of a device with fewer cores than this stream has workers.
      if (const std::size_t needed = WorkspaceBytes(desc, workers);
          workspace.partials_size < needed) {
        return Fail(ErrorCode::kInvalidArgument,
                    Format("workspace of {} bytes of partials: {} workers need {}",
                           workspace.partials_size, workers, needed));
      }
      TiledRun(functions_, desc, args, workspace.partials, limited.exec()).Execute();
      return {};
    });
  }

 private:
  AttentionFunctions functions_;
  double gflop_share_;
};

}  // namespace

void AddTiledKernels(Registry& registry) {
  // Shares of the f32 rate measured on a Zen 4 core at head_dim 64, 512 rows: see bench/results.
  const auto add = [&](const char* isa, std::uint32_t features, AttentionFunctions functions,
                       const char* tu, double share) {
    static_cast<void>(
        registry.Add(std::make_unique<TiledAttention>(isa, features, functions, tu, share)));
  };
  add("avx512", kFeatureAvx512, AttentionAvx512(), AttentionAvx512Tu(), 0.6);
  add("avx2", kFeatureAvx2, AttentionAvx2(), AttentionAvx2Tu(), 0.4);
  add("scalar", 0, AttentionScalar(), AttentionScalarTu(), 0.02);
}

}  // namespace tilewright::attention
