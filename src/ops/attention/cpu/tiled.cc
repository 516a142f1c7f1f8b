#include "ops/attention/cpu/tiled.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/paged_cache.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/function_kernel.h"
#include "ops/attention/checks.h"
#include "ops/attention/cpu/layout.h"

namespace tilewright::attention {
namespace {

std::size_t AlignUp(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
int RoundUp(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }
int Blocks(int rows, int block_rows) { return (rows + block_rows - 1) / block_rows; }

/// From so many blocks a worker on, each worker has rows of its own. With fewer, a long one at the end would cost more.
constexpr int kTasksInLanes = 16;

constexpr std::size_t kLineBytes = 64;

/// Rows of one sequence in a run of the batch that are handled together.
struct RowBlock {
  std::int32_t first_row, rows;
  std::int32_t from, seen;  // its rows see the positions from .. seen - 1 between them
};

/// How a problem is divided, whatever its contents: sizes of blocks and of memory.
struct Blocking {
  int block_rows, block_vectors, hd;
  bool divides_splits;  ///< among the workers

  Blocking(const AttentionFunctions& functions, const Desc& desc, int workers)
      : block_rows(kBlockRows), hd(RoundUp(desc.head_dim, functions.hd_tile)) {
    const int group = desc.heads / desc.kv_heads, wanted = functions.tasks_per_worker * workers;
    if (functions.most_vectors > 0) {
      // Larger blocks convert keys and values less often, but every worker should have some.
      block_rows = std::max(kBlockRows, functions.most_vectors / group / kBlockRows * kBlockRows);
      block_rows = std::min(block_rows, RoundUp(desc.rows, kBlockRows));
      while (block_rows > kBlockRows && Blocks(desc.rows, block_rows) * desc.kv_heads < wanted)
        block_rows = RoundUp(block_rows / 2, kBlockRows);
    }
    block_vectors = RoundUp(block_rows * group, functions.vector_tile);
    divides_splits = functions.merge_split != nullptr &&
                     DividesSplits(functions, Blocks(desc.rows, block_rows), desc, workers);
  }
  /// Padding makes fewer blocks than there would be else, but what it leaves must not need more
  /// workspace than was reserved.
  static bool DividesSplits(const AttentionFunctions& functions, int blocks, const Desc& desc,
                            int workers) {
    return workers > 1 && blocks * desc.kv_heads < functions.tasks_per_worker * workers;
  }
};

/// Vectors whose queries and results are there as floats at a time: on tiles as few as are packed
/// together, so that they stay in the L1.
std::size_t RowsAtOnce(const AttentionFunctions& functions, const Blocking& blocking) {
  return static_cast<std::size_t>(functions.pack_queries != nullptr ? functions.vector_tile
                                                                    : blocking.block_vectors);
}

/// Bytes of one worker's scratch.
std::size_t ScratchBytes(const AttentionFunctions& functions, const Blocking& blocking) {
  const auto hd = static_cast<std::size_t>(blocking.hd);
  const auto vectors = static_cast<std::size_t>(blocking.block_vectors);
  const std::size_t operands = functions.operand_bytes != nullptr
                                   ? functions.operand_bytes(vectors, hd)
                                   : (2 * 64 * hd + vectors * kSplit) * sizeof(float);
  const std::size_t q_and_split_out = 2 * RowsAtOnce(functions, blocking);
  return AlignUp(operands) + AlignUp((q_and_split_out + vectors) * hd * sizeof(float)) +
         4 * AlignUp(vectors * sizeof(float)) + 8 * 64;
}

/// Bytes of the partial results when splits are divided: only so few blocks get there that this
/// stays small.
std::size_t PartialBytes(const Blocking& blocking, std::size_t tasks, std::size_t splits) {
  return AlignUp(tasks * splits * static_cast<std::size_t>(blocking.block_vectors) *
                 static_cast<std::size_t>(blocking.hd + 2) * sizeof(float));
}

AttentionScratch CarveScratch(const AttentionFunctions& functions, const Blocking& blocking,
                              std::byte* memory) {
  const auto hd = static_cast<std::size_t>(blocking.hd);
  const auto vectors = static_cast<std::size_t>(blocking.block_vectors);
  AttentionScratch s;
  s.hd_padded = blocking.hd;
  auto take = [&](std::size_t floats) {
    auto* at = reinterpret_cast<float*>(memory);
    memory += AlignUp(floats * sizeof(float));
    return at;
  };
  if (functions.operand_bytes != nullptr) {
    s.operands = take((functions.operand_bytes(vectors, hd) + 3) / sizeof(float));
  } else {
    s.rows32 = take(64 * hd);
    s.columns = take(64 * hd);
    s.scores = take(vectors * kSplit);
  }
  const std::size_t rows = RowsAtOnce(functions, blocking);
  s.q = take(rows * hd);
  s.split_out = take(rows * hd);
  s.out = take(vectors * hd);
  s.split_max = take(vectors);
  s.split_sum = take(vectors);
  s.max = take(vectors);
  s.sum = take(vectors);
  return s;
}

/// Memory of a worker begins at a cache line wherever the workspace lies.
std::byte* AlignUp(std::byte* at) {
  return at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
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
        blocking_(functions, desc, executor.workers()),
        scratch_bytes_(ScratchBytes(functions, blocking_)),
        group_(desc.heads / desc.kv_heads) {
    auto* at = static_cast<std::byte*>(workspace);
    blocks_ = reinterpret_cast<RowBlock*>(at);
    at += AlignUp(static_cast<std::size_t>(desc.rows) * sizeof(RowBlock));
    limits_ = reinterpret_cast<std::int32_t*>(at);
    firsts_ = limits_ + desc.rows;
    at += AlignUp(2 * static_cast<std::size_t>(desc.rows) * sizeof(std::int32_t));
    at = AlignUp(at);
    scratch_ = at;
    at += scratch_bytes_ * static_cast<std::size_t>(executor.workers());
    partials_ = reinterpret_cast<float*>(at);
    MakeBlocks();
  }

  void Execute() {
    if (!blocking_.divides_splits ||
        !Blocking::DividesSplits(functions_, block_count_, desc_, executor_.workers()) ||
        splits_ == 1) {
      ExecuteWhole();
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
        if (last.rows < blocking_.block_rows && slots[last.first_row] == slots[r] && meets) {
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
    return CarveScratch(functions_, blocking_,
                        scratch_ + scratch_bytes_ * static_cast<std::size_t>(worker));
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
    block.seen = rows.seen;
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
    block.kv_bytes = BytesOf(desc_.type_kv, desc_.head_dim);
    return block;
  }

  const float* QueryRow(const RowBlock& rows, int kv_head, int vector) const {
    const std::int64_t row = rows.first_row + vector / group_;
    const std::int64_t head = kv_head * group_ + vector % group_;
    return args_.q.as<const float>() + row * args_.q.stride[2] + head * args_.q.stride[1];
  }

  /// Asks for the keys and values of a split before it is begun, rows of which lie too far apart for the processor to
  /// foresee. In f32 for the first piece: from there on ConvertRows does.
  void Fetch(const AttentionBlock& block, int split) const {
    const int from = std::max(split * kSplit, block.from);
    const int end = std::min({(split + 1) * kSplit, block.seen, from + functions_.fetched});
    for (const unsigned char* base : {block.keys, block.values}) {
      for (int position = from; position < end; ++position) {
        const unsigned char* row = RowAt(block, base, position);
        for (std::size_t at = 0; at < block.kv_bytes; at += kLineBytes)
          __builtin_prefetch(row + at, 0, 2);
      }
    }
  }

  /// The scale goes into q: one multiplication for each element instead of one for each score.
  void LoadQueries(const RowBlock& rows, int kv_head, const AttentionBlock& block,
                   const AttentionScratch& s) const {
    const bool packs = functions_.pack_queries != nullptr;
    const int count = block.vectors, at_once = packs ? functions_.vector_tile : count;
    for (int first = 0; first < count; first += at_once) {
      const int vectors = std::min(at_once, count - first);
      for (int i = 0; i < vectors; ++i) {
        const int v = first + i;
        // Rows lie too far apart for the processor to foresee them.
        if (packs && v + at_once < count) Prefetch(QueryRow(rows, kv_head, v + at_once));
        const float* from = QueryRow(rows, kv_head, v);
        float* to = s.q + i * s.hd_padded;
        for (int d = 0; d < desc_.head_dim; ++d) to[d] = from[d] * args_.scale;
        std::fill(to + desc_.head_dim, to + s.hd_padded, 0.0f);
      }
      if (!packs) continue;
      std::fill(s.q + vectors * s.hd_padded, s.q + at_once * s.hd_padded, 0.0f);
      functions_.pack_queries(first, s);
    }
  }

  void Prefetch(const float* row) const {
    for (int d = 0; d < desc_.head_dim; d += 16) __builtin_prefetch(row + d, 0, 3);
  }

  void StartMerge(int vectors, const AttentionScratch& s) const {
    vectors = RoundUp(vectors, functions_.vector_tile);
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
    const bool transposed = functions_.rows_of_out != nullptr;
    const int count = rows.rows * group_, at_once = transposed ? functions_.vector_tile : count;
    for (int first = 0; first < count; first += at_once) {
      const int last = std::min(first + at_once, count);
      if (transposed) {
        for (int v = first; v < last; ++v) {
          float* to = ResultRow(rows, kv_head, v);
          for (int d = 0; d < desc_.head_dim; d += 16) __builtin_prefetch(to + d, 1, 3);
        }
      }
      const float* out = transposed ? functions_.rows_of_out(first, s) : s.out;
      for (int v = first; v < last; ++v) {
        float* to = ResultRow(rows, kv_head, v);
        const float* from = out + (v - first) * s.hd_padded;
        const float scale = OutScale(kv_head * group_ + v % group_, s.max[v], s.sum[v]);
        for (int d = 0; d < desc_.head_dim; ++d) to[d] = from[d] * scale;
      }
    }
  }
  float* ResultRow(const RowBlock& rows, int kv_head, int vector) const {
    const std::int64_t row = rows.first_row + vector / group_;
    const std::int64_t head = kv_head * group_ + vector % group_;
    return args_.out.as<float>() + row * args_.out.stride[1] + head * desc_.head_dim;
  }

  static int SplitCount(int seen, int split) { return std::min(kSplit, seen - split * kSplit); }

  void ExecuteWhole() const {
    const int tasks = block_count_ * desc_.kv_heads;
    if (tasks >= kTasksInLanes * executor_.workers()) {
      RunInLanes(executor_, tasks, [this](int task, int worker) { WholeTask(task, worker); });
      return;
    }
    // Later blocks see more keys: start with them, so that no long task is left for the end.
    executor_.Run(tasks,
                  [this, tasks](int task, int worker) { WholeTask(tasks - 1 - task, worker); });
  }

  void WholeTask(int task, int worker) const {
    const RowBlock& rows = blocks_[task / desc_.kv_heads];
    const int kv_head = task % desc_.kv_heads;
    const AttentionScratch s = Scratch(worker);
    const AttentionBlock block = Block(rows, kv_head);
    Fetch(block, rows.from / kSplit);
    LoadQueries(rows, kv_head, block, s);
    StartMerge(block.vectors, s);
    for (int split = rows.from / kSplit; split * kSplit < rows.seen; ++split) {
      if (functions_.fetched >= kSplit) Fetch(block, split + 1);
      functions_.compute_split(block, split * kSplit, SplitCount(rows.seen, split), s);
      if (functions_.merge_split == nullptr) continue;
      functions_.merge_split(block.vectors, s.hd_padded, s.split_max, s.split_sum, s.split_out,
                             s.max, s.sum, s.out);
    }
    Finish(rows, kv_head, s);
  }

  /// Partials of (task, split): max[vectors], sum[vectors], out[vectors][hd_padded].
  float* Partial(int task, int split, int hd_padded) const {
    const std::int64_t each = std::int64_t{blocking_.block_vectors} * (hd_padded + 2);
    return partials_ + (static_cast<std::int64_t>(task) * splits_ + split) * each;
  }

  void SplitTask(int task, int split, int worker) const {
    const RowBlock& rows = blocks_[task / desc_.kv_heads];
    if (split < rows.from / kSplit || split * kSplit >= rows.seen) return;
    const int kv_head = task % desc_.kv_heads;
    AttentionScratch s = Scratch(worker);
    const AttentionBlock block = Block(rows, kv_head);
    Fetch(block, split);
    LoadQueries(rows, kv_head, block, s);
    float* partial = Partial(task, split, s.hd_padded);
    s.split_max = partial;
    const int padded = RoundUp(block.vectors, functions_.vector_tile);
    s.split_sum = partial + padded;
    s.split_out = partial + 2 * padded;
    functions_.compute_split(block, split * kSplit, SplitCount(rows.seen, split), s);
  }

  void MergeTask(int task, int worker) const {
    const RowBlock& rows = blocks_[task / desc_.kv_heads];
    const AttentionScratch s = Scratch(worker);
    const int vectors = rows.rows * group_, padded = RoundUp(vectors, functions_.vector_tile);
    StartMerge(vectors, s);
    for (int split = rows.from / kSplit; split * kSplit < rows.seen; ++split) {
      const float* partial = Partial(task, split, s.hd_padded);
      functions_.merge_split(vectors, s.hd_padded, partial, partial + padded, partial + 2 * padded,
                             s.max, s.sum, s.out);
    }
    Finish(rows, task % desc_.kv_heads, s);
  }

  const AttentionFunctions& functions_;
  const Desc& desc_;
  const Args& args_;
  Executor& executor_;
  const CachePlaces places_;
  const Blocking blocking_;
  const std::size_t scratch_bytes_;
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
std::size_t WorkspaceBytes(const AttentionFunctions& functions, const Desc& desc,
                           int worker_count) {
  const Blocking blocking(functions, desc, worker_count);
  const auto rows = static_cast<std::size_t>(desc.rows);
  const auto workers = static_cast<std::size_t>(worker_count);
  std::size_t bytes = AlignUp(rows * sizeof(RowBlock)) + AlignUp(2 * rows * sizeof(std::int32_t)) +
                      64 + workers * ScratchBytes(functions, blocking);
  if (blocking.divides_splits) {
    const std::size_t most_tasks =
        std::min(rows * static_cast<std::size_t>(desc.kv_heads),
                 static_cast<std::size_t>(functions.tasks_per_worker) * workers);
    const auto splits = static_cast<std::size_t>((desc.context + kSplit - 1) / kSplit);
    bytes += PartialBytes(blocking, most_tasks, splits);
  }
  return bytes;
}

/// The same for as many workers as a stream may have. Fewer may need more: their blocks are larger.
std::size_t MostWorkspaceBytes(const AttentionFunctions& functions, const Desc& desc, int workers) {
  std::size_t most = 0;
  for (int count = 1; count <= workers; ++count)
    most = std::max(most, WorkspaceBytes(functions, desc, count));
  return most;
}

class TiledAttention final : public Kernel {
 public:
  TiledAttention(KernelInfo info, const AttentionFunctions& functions, double gflop_share,
                 Rounding rounding = Rounding::kAllowed)
      : Kernel(std::move(info)),
        functions_(functions),
        gflop_share_(gflop_share),
        rounding_(rounding) {}

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
    if (rounds() &&
        !(rounding_ == Rounding::kNamed ? desc.precision == Precision::kBF16 : AllowsBF16(desc))) {
      return Rejection{Reason::kPrecision, "operands may not be rounded", "bf16"};
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
    const double products = 4.0 * desc.rows * desc.heads * desc.head_dim * seen;
    const int workers = WorkersOf(spec.config, device.cores);
    if (!rounds()) return products / (device.f32_gflop_s * gflop_share_ * 1e3 * workers);
    // A tile has 16 vectors, however many there are; an exponential and what belongs to it costs as
    // much as so many f32 operations, and so does bringing an element of a key or value into place.
    constexpr double kOpsOfExponential = 32, kOpsOfElement = 24;
    const Blocking blocking(functions_, desc, workers);
    const double blocks = Blocks(desc.rows, blocking.block_rows) * desc.kv_heads;
    const double vectors =
        blocks * RoundUp(std::min(desc.rows, blocking.block_rows) * desc.heads / desc.kv_heads,
                         functions_.vector_tile);
    const double on_tiles = 4.0 * vectors * blocking.hd * seen;
    const double beside =
        kOpsOfExponential * vectors * seen + kOpsOfElement * 2.0 * blocks * blocking.hd * seen;
    const bool amx = (info().features & kFeatureAmxBf16) != 0;
    const double rate = std::max(amx ? device.amx_bf16_gflop_s : device.bf16_gflop_s, 1.0);
    return (on_tiles / (rate * gflop_share_) + beside / device.f32_gflop_s) /
           (1e3 * std::min<double>(workers, blocks));
  }

  WorkspaceSize WorkspaceFor(const Desc& desc, const Spec& spec,
                             const DeviceSpec& device) const override {
    return {.partials = MostWorkspaceBytes(functions_, desc, WorkersOf(spec.config, device.cores))};
  }

  Status Launch(const Args& args, const Spec& spec, Workspace& workspace, Stream stream) override {
    if (Status status = CheckRows(args); !status) return status;
    return LaunchOnThreads(spec.config, stream, [&](Stream limited) -> Status {
      const Desc desc = ShapeOf(args, {});
      const int workers = limited.exec().workers();
      // The workspace may be of a device with fewer cores than this stream has workers.
      if (const std::size_t needed = WorkspaceBytes(functions_, desc, workers);
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
  bool rounds() const { return (info().features & kRoundingFeatures) != 0; }

  AttentionFunctions functions_;
  double gflop_share_;
  Rounding rounding_;
};

}  // namespace

std::unique_ptr<Kernel> MakeBF16Kernel(const char* isa, std::uint32_t features,
                                       const AttentionFunctions& functions, const char* tu,
                                       Rounding rounding) {
  KernelInfo info = CpuKernelInfo(Format("attention.bf16.{}", isa), tu, features);
  // A row does not depend on the others, but with few of them the f32 kernels are faster: prompts
  // and decoding would round differently.
  info.batch_invariant = false;
  return std::make_unique<TiledAttention>(std::move(info), functions, 0.55, rounding);
}

void AddTiledKernels(Registry& registry) {
  static_cast<void>(registry.Add(
      MakeBF16Kernel("amx", kFeatureAmxTile | kFeatureAmxBf16 | kFeatureAvx512 | kFeatureAvx512Bf16,
                     AttentionAmx(), AttentionAmxTu())));
  // Where AMX is, products of blocks become bf16 ones too, which are more exact than int8. Without it
  // they stay int8, so that this rounding would come on top: only who asks for it gets it.
  static_cast<void>(registry.Add(MakeBF16Kernel("avx512bf16", kFeatureAvx512 | kFeatureAvx512Bf16,
                                                AttentionAvx512Bf16(), AttentionAvx512Bf16Tu(),
                                                Rounding::kNamed)));
  // Shares of the f32 rate measured on a Zen 4 core at head_dim 64, 512 rows: see bench/results.
  const auto add = [&](const char* isa, std::uint32_t features, const AttentionFunctions& functions,
                       const char* tu, double share) {
    static_cast<void>(registry.Add(std::make_unique<TiledAttention>(
        CpuKernelInfo(Format("attention.f32.{}", isa), tu, features), functions, share)));
  };
  add("avx512", kFeatureAvx512, AttentionAvx512(), AttentionAvx512Tu(), 0.6);
  add("avx2", kFeatureAvx2, AttentionAvx2(), AttentionAvx2Tu(), 0.4);
  add("scalar", 0, AttentionScalar(), AttentionScalarTu(), 0.02);
}

}  // namespace tilewright::attention
