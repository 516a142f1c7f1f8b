#include "ops/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/fingerprint.h"
#include "core/numeric.h"
#include "core/tensor_access.h"
#include "ops/attention/cpu/layout.h"

namespace tilewright {
namespace {

std::size_t AlignUp(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
int PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

/// Rows of one sequence in a run of the batch that are handled together.
struct RowBlock {
  std::int32_t first_row, rows;
  std::int32_t seen;  // positions that the longest row sees
};

/// Bytes of one worker's scratch.
std::size_t ScratchBytes(const AttentionDesc& desc) {
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

/// Bytes of the partial results when splits are divided: only so few blocks get there that this
/// stays small.
std::size_t PartialBytes(std::size_t vectors, std::size_t splits, int head_dim) {
  return AlignUp(vectors * splits * static_cast<std::size_t>(PaddedHeadDim(head_dim) + 2) *
                 sizeof(float));
}

AttentionScratch CarveScratch(const AttentionDesc& desc, std::byte* memory) {
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
class Run {
 public:
  Run(const AttentionFunctions& functions, const AttentionDesc& desc, const AttentionArgs& args,
      Executor& executor)
      : functions_(functions),
        desc_(desc),
        args_(args),
        executor_(executor),
        group_(desc.heads / desc.kv_heads) {
    auto* at = static_cast<std::byte*>(args.workspace);
    blocks_ = reinterpret_cast<RowBlock*>(at);
    at += AlignUp(static_cast<std::size_t>(desc.rows) * sizeof(RowBlock));
    limits_ = reinterpret_cast<std::int32_t*>(at);
    at += AlignUp(static_cast<std::size_t>(desc.rows) * sizeof(std::int32_t));
    scratch_ = at;
    at += ScratchBytes(desc) * static_cast<std::size_t>(executor.workers());
    partials_ = reinterpret_cast<float*>(at);
    MakeBlocks();
  }

  void Execute() {
    if (!DividesSplits(block_count_, desc_.kv_heads, executor_.workers()) || splits_ == 1) {
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
    const auto* positions = args_.positions.as<std::int32_t>();
    const auto* slots = args_.slots.as<std::int32_t>();
    int longest = 1;
    for (std::int32_t r = 0; r < desc_.rows; ++r) {
      limits_[r] = positions[r] + 1;
      longest = std::max(longest, limits_[r]);
      if (block_count_ > 0) {
        RowBlock& last = blocks_[block_count_ - 1];
        if (last.rows < kBlockRows && slots[last.first_row] == slots[r]) {
          ++last.rows;
          last.seen = std::max(last.seen, limits_[r]);
          continue;
        }
      }
      blocks_[block_count_++] = {r, 1, limits_[r]};
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
    const TensorView& cache = args_.k_cache;
    const std::int32_t slot = args_.slots.as<std::int32_t>()[rows.first_row];
    const std::size_t offset =
        BytesOf(desc_.type_kv,
                slot * cache.stride[3] + static_cast<std::int64_t>(kv_head) * cache.stride[1]);
    block.keys = args_.k_cache.as<unsigned char>() + offset;
    block.values = args_.v_cache.as<unsigned char>() + offset;
    block.kv_row_bytes = BytesOf(desc_.type_kv, cache.stride[2]);
    return block;
  }

  const float* QueryRow(const RowBlock& rows, int kv_head, int vector) const {
    const std::int64_t row = rows.first_row + vector / group_;
    const std::int64_t head = kv_head * group_ + vector % group_;
    return args_.q.as<float>() + row * args_.q.stride[2] + head * args_.q.stride[1];
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

  void Finish(const RowBlock& rows, int kv_head, const AttentionScratch& s) const {
    for (int v = 0; v < rows.rows * group_; ++v) {
      const std::int64_t row = rows.first_row + v / group_;
      const std::int64_t head = kv_head * group_ + v % group_;
      float* to = args_.out.as<float>() + row * args_.out.stride[1] + head * desc_.head_dim;
      const float* from = s.out + v * s.hd_padded;
      const float scale = 1.0f / s.sum[v];
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
    for (int split = 0; split * kSplit < rows.seen; ++split) {
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
    if (split * kSplit >= rows.seen) return;
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
    for (int split = 0; split * kSplit < rows.seen; ++split) {
      const float* partial = Partial(task, split, s.hd_padded);
      functions_.merge_split(vectors, s.hd_padded, partial, partial + vectors,
                             partial + 2 * vectors, s.max, s.sum, s.out);
    }
    Finish(rows, task % desc_.kv_heads, s);
  }

  const AttentionFunctions& functions_;
  const AttentionDesc& desc_;
  const AttentionArgs& args_;
  Executor& executor_;
  const int group_;
  RowBlock* blocks_ = nullptr;
  std::int32_t* limits_ = nullptr;
  std::byte* scratch_ = nullptr;
  float* partials_ = nullptr;
  int block_count_ = 0;
  int splits_ = 1;
};

Status CheckRows(const AttentionArgs& args) {
  const auto* positions = args.positions.as<std::int32_t>();
  const auto* slots = args.slots.as<std::int32_t>();
  for (std::int64_t r = 0; r < args.q.shape[2]; ++r) {
    if (positions[r] < 0 || positions[r] >= args.k_cache.shape[2]) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("positions[{}] = {}, must be 0 to {}", r, positions[r],
                              args.k_cache.shape[2] - 1));
    }
    if (slots[r] < 0 || slots[r] >= args.k_cache.shape[3]) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("slots[{}] = {}, must be 0 to {}", r,
                                                           slots[r], args.k_cache.shape[3] - 1));
    }
  }
  return {};
}

class TiledAttention final : public AttentionKernel {
 public:
  TiledAttention(const char* isa, std::uint32_t features, AttentionFunctions functions,
                 const char* tu, double gflop_share, bool reference)
      : AttentionKernel(Info(isa, features, tu, reference)),
        functions_(functions),
        gflop_share_(gflop_share) {}

  std::optional<Rejection> IsFeasible(const AttentionDesc& desc) const override {
    auto is = [&](DataType type) { return desc.type_kv == type; };
    if (desc.type_q != DataType::kF32) {
      return Rejection{Reason::kType, fmt::format("q of type {}", DataTypeName(desc.type_q)),
                       "f32"};
    }
    if (!is(DataType::kF32) && !is(DataType::kF16) && !is(DataType::kBF16) &&
        !is(DataType::kQ8_0)) {
      return Rejection{Reason::kType, fmt::format("a cache of {}", DataTypeName(desc.type_kv)),
                       "f32, f16, bf16 or q8_0"};
    }
    if (desc.kv_heads < 1 || desc.heads % desc.kv_heads != 0) {
      return Rejection{Reason::kShape, fmt::format("heads = {}", desc.heads),
                       fmt::format("a multiple of kv_heads = {}", desc.kv_heads)};
    }
    if (is(DataType::kQ8_0) && desc.head_dim % 32 != 0) {
      return Rejection{Reason::kShape, fmt::format("head_dim = {}", desc.head_dim),
                       "a multiple of 32 for q8_0"};
    }
    return std::nullopt;
  }

  double EstimateUs(const AttentionDesc& desc, const DeviceSpec& device) const override {
    // Nobody knows the lengths when choosing; the order of the kernels does not depend on them.
    const double flops = 4.0 * desc.rows * desc.heads * desc.head_dim * 512;
    return flops / (device.f32_gflop_s * gflop_share_ * 1e3 * std::max(1, desc.threads));
  }

  Status Launch(const AttentionArgs& args, Stream stream) const override {
    const Result<AttentionDesc> desc = DescOf(args, stream.exec().workers());
    if (!desc) return Fail(desc.error());
    if (auto no = IsFeasible(*desc)) return Fail(ErrorCode::kUnsupported, no->ToString());
    if (Status status = CheckRows(args); !status) return status;
    const std::size_t needed = AttentionWorkspaceBytes(*desc, args.k_cache.shape[2]);
    if (args.workspace_bytes < needed) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("workspace of {} bytes, {} are needed",
                                                           args.workspace_bytes, needed));
    }
    Run(functions_, *desc, args, stream.exec()).Execute();
    return {};
  }

 private:
  static KernelInfo Info(const char* isa, std::uint32_t features, const char* tu, bool reference) {
    KernelInfo info;
    info.name = fmt::format("attention.f32.{}", isa);
    info.fingerprint = std::string(TuFingerprint(tu));
    info.features = features;
    info.deterministic = true;
    info.batch_invariant = true;
    info.reference = reference;
    return info;
  }

  AttentionFunctions functions_;
  double gflop_share_;
};

}  // namespace

std::string KeyOf(const AttentionDesc& desc) {
  return fmt::format("type_q={} type_kv={} rows={} heads={} kv_heads={} head_dim={} threads={}",
                     DataTypeName(desc.type_q), DataTypeName(desc.type_kv), desc.rows, desc.heads,
                     desc.kv_heads, desc.head_dim, desc.threads);
}

Result<AttentionDesc> DescOf(const AttentionArgs& args, int threads) {
  const TensorView &q = args.q, &k = args.k_cache, &v = args.v_cache, &out = args.out;
  if (Status s = CheckView("attention: q", q); !s) return Fail(s.error());
  if (Status s = CheckView("attention: k_cache", k); !s) return Fail(s.error());
  if (Status s = CheckView("attention: v_cache", v); !s) return Fail(s.error());
  if (Status s = CheckView("attention: out", out); !s) return Fail(s.error());
  const auto refuse = [](std::string message) {
    return Fail(ErrorCode::kInvalidArgument, "attention: " + message);
  };
  if (q.shape[3] != 1)
    return refuse(fmt::format("q has shape {}, must be [head_dim, heads, rows]", ShapeText(q)));
  if (out.dtype != q.dtype)
    return refuse(fmt::format("out is {}, must be of q's type, {}", DataTypeName(out.dtype),
                              DataTypeName(q.dtype)));
  if (out.shape != std::array<std::int64_t, 4>{q.shape[0] * q.shape[1], q.shape[2], 1, 1}) {
    return refuse(fmt::format("out has shape {}, must be [head_dim * heads = {}, rows = {}]",
                              ShapeText(out), q.shape[0] * q.shape[1], q.shape[2]));
  }
  if (k.dtype != v.dtype)
    return refuse(fmt::format("caches of {} and {}, must be of one type", DataTypeName(k.dtype),
                              DataTypeName(v.dtype)));
  if (Status s = CheckSameShape("attention: v_cache", v, "k_cache", k); !s) return Fail(s.error());
  if (k.shape[0] != q.shape[0])
    return refuse(
        fmt::format("a cache of head_dim = {}, must be that of q, {}", k.shape[0], q.shape[0]));
  if (k.shape[1] < 1 || q.shape[1] % k.shape[1] != 0) {
    return refuse(
        fmt::format("heads = {}, must be a multiple of kv_heads = {}", q.shape[1], k.shape[1]));
  }
  if (Status s = CheckInts("attention: positions", args.positions, q.shape[2]); !s)
    return Fail(s.error());
  if (Status s = CheckInts("attention: slots", args.slots, q.shape[2]); !s) return Fail(s.error());
  AttentionDesc desc;
  desc.type_q = q.dtype;
  desc.type_kv = k.dtype;
  desc.rows = static_cast<std::int32_t>(q.shape[2]);
  desc.heads = static_cast<std::int32_t>(q.shape[1]);
  desc.kv_heads = static_cast<std::int32_t>(k.shape[1]);
  desc.head_dim = static_cast<std::int32_t>(q.shape[0]);
  desc.threads = threads;
  return desc;
}

std::size_t AttentionWorkspaceBytes(const AttentionDesc& desc, std::int64_t context) {
  const auto rows = static_cast<std::size_t>(desc.rows);
  const auto workers = static_cast<std::size_t>(std::max(1, desc.threads));
  std::size_t bytes = AlignUp(rows * sizeof(RowBlock)) + AlignUp(rows * sizeof(std::int32_t)) +
                      workers * ScratchBytes(desc);
  const std::size_t fewest_blocks = (rows + kBlockRows - 1) / kBlockRows;
  if (DividesSplits(static_cast<int>(fewest_blocks), desc.kv_heads, desc.threads)) {
    const std::size_t most_tasks =
        std::min(rows * static_cast<std::size_t>(desc.kv_heads), kTasksPerWorker * workers);
    const auto splits = static_cast<std::size_t>((context + kSplit - 1) / kSplit);
    bytes += PartialBytes(
        most_tasks * static_cast<std::size_t>(kBlockRows * (desc.heads / desc.kv_heads)), splits,
        desc.head_dim);
  }
  return bytes;
}

void AddAttention(AttentionRegistry& registry) {
  // Shares of the f32 rate measured on a Zen 4 core at head_dim 64, 512 rows: see bench/results.
  auto add = [&](const char* isa, std::uint32_t features, AttentionFunctions functions,
                 const char* tu, double share, bool ref) {
    (void)registry.Add(std::make_unique<TiledAttention>(isa, features, functions, tu, share, ref));
  };
  add("avx512", kFeatureAvx512, AttentionAvx512(), AttentionAvx512Tu(), 0.6, false);
  add("avx2", kFeatureAvx2, AttentionAvx2(), AttentionAvx2Tu(), 0.4, false);
  add("scalar", 0, AttentionScalar(), AttentionScalarTu(), 0.02, true);
}

}  // namespace tilewright
