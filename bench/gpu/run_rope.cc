// rope_kv against float64: q turned, k turned and v copied into the cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/block_format.h"
#include "core/random.h"
#include "core/text.h"
#include "gpu/runners.h"
#include "ops/copy/copy.h"
#include "ops/copy/kv_scatter.h"
#include "ops/rope/cuda/families.h"
#include "ops/rope/cuda/rope_kv_launch.h"

namespace tilewright::gpu_check {
namespace {

struct Shape {
  int rows, heads, kv_heads;
  int head_dim = 128;
  RopeMode mode = RopeMode::kInterleaved;
  int dims = 0;  ///< 0: the head's
  int context = 300, slots = 3;
  int pad = 0;  ///< elements after every head
  int first_position = 0;
  bool in_place = false;    ///< q_out is q
  bool head_major = false;  ///< the cache has a whole context for each head
  bool faults = false;      ///< some rows are to be left alone

  std::string Name() const {
    std::string name = Format("{} rows, {}+{} heads of {}", rows, heads, kv_heads, head_dim);
    if (mode == RopeMode::kHalfSplit) name += ", half-split";
    if (dims > 0) name += Format(", {} dims", dims);
    if (pad > 0) name += Format(", pad {}", pad);
    if (first_position > 0) name += Format(", from {}", first_position);
    if (in_place) name += ", in place";
    if (head_major) name += ", head-major";
    if (faults) name += ", faults";
    return name;
  }
};

/// A tensor [head_dim, heads, rows] with everything between the heads NaN.
struct Heads {
  DataType type;
  int heads, rows, head_dim;
  std::int64_t head_stride, row_stride;
  std::vector<std::byte> bytes;

  Heads(DataType element, const Shape& shape, int head_count, int dim, std::uint64_t seed,
        bool periodic)
      : type(element), heads(head_count), rows(shape.rows), head_dim(dim) {
    head_stride = dim + shape.pad;
    row_stride = std::max(heads, 1) * head_stride + 2 * shape.pad;
    bytes.assign(BytesOf(type, rows * row_stride), std::byte{0xff});
    const std::int64_t count = std::int64_t{rows} * heads * dim;
    const std::vector<std::byte> dense =
        (periodic ? PeriodicBytes : RandomBytes)(type, count, 1, seed);
    const std::size_t head_bytes = BytesOf(type, dim);
    for (std::int64_t i = 0; i < std::int64_t{rows} * heads; ++i) {
      std::memcpy(bytes.data() +
                      BytesOf(type, At(static_cast<int>(i / heads), static_cast<int>(i % heads))),
                  dense.data() + static_cast<std::size_t>(i) * head_bytes, head_bytes);
    }
  }
  std::int64_t At(int row, int head) const { return row * row_stride + head * head_stride; }
  TensorView View(const void* data) const {
    return {
        const_cast<void*>(data), {head_dim, heads, rows, 1}, {1, head_stride, row_stride, 0}, type};
  }
  std::vector<double> Head(int row, int head) const {
    std::vector<double> values(static_cast<std::size_t>(head_dim));
    Must(DecodeRow(type, bytes.data() + BytesOf(type, At(row, head)), head_dim, values.data()),
         "decode");
    return values;
  }
};

std::vector<std::byte> AsBytes(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}
template <class T>
std::vector<std::byte> AsBytes(const std::vector<T>& values) {
  return AsBytes(values.data(), values.size() * sizeof(T));
}

class Rope {
 public:
  Rope(const Job& job, const Shape& shape)
      : spec_(job.kernel.spec()),
        shape_(shape),
        head_dim_(shape.head_dim),
        dims_(shape.dims > 0 ? shape.dims : head_dim_),
        q_(spec_.type_a, shape, shape.heads, head_dim_, job.seed, job.time),
        k_(spec_.type_a, shape, shape.kv_heads, head_dim_, job.seed + 1, job.time),
        v_(spec_.type_a, shape, shape.kv_heads, head_dim_, job.seed + 2, job.time) {
    params_ = {.mode = shape.mode, .dims = dims_};
    const rope::Table table = Must(rope::Table::Make(params_, nullptr, 0), "frequencies");
    PlaceRows(job.seed);
    const std::int64_t kv_heads = std::max(shape.kv_heads, 1);
    const std::int64_t element = head_dim_ + shape.pad;
    if (shape.head_major) {
      cache_position_ = element;
      cache_head_ = element * shape.context;
      cache_slot_ = cache_head_ * kv_heads;
    } else {
      cache_head_ = element;
      cache_position_ = element * kv_heads;
      cache_slot_ = cache_position_ * shape.context;
    }
    const auto make = [&](std::vector<std::byte> bytes) {
      return std::make_unique<Guarded>(job.gpu, bytes);
    };
    device_q_ = make(q_.bytes);
    device_k_ = make(k_.bytes);
    device_v_ = make(v_.bytes);
    device_q_out_ =
        std::make_unique<Guarded>(job.gpu, BytesOf(spec_.type_d, shape.rows * q_.row_stride));
    for (auto& cache : device_cache_) {
      cache = std::make_unique<Guarded>(job.gpu, BytesOf(spec_.type_c, cache_slot_ * shape.slots));
    }
    device_positions_ = make(AsBytes(positions_));
    device_slots_ = make(AsBytes(slots_));
    device_turns_ = make(AsBytes(RopeTurns(table.frequencies())));
    device_fault_ = std::make_unique<Guarded>(job.gpu, sizeof(int));
    device_fault_->Zero();
  }

  void Launch(const LoadedKernel& kernel) const {
    const auto at = [](const std::unique_ptr<Guarded>& memory) {
      return reinterpret_cast<void*>(memory->address());
    };
    const auto heads = [&](const Heads& of, const std::unique_ptr<Guarded>& memory) {
      return of.heads > 0 ? of.View(at(memory)) : TensorView{};
    };
    const auto numbers = [&](const std::unique_ptr<Guarded>& memory) {
      return Contiguous(at(memory), DataType::kI32, {shape_.rows, 1, 1, 1});
    };
    RopeKvArgs args;
    args.q_out = heads(q_, device_q_out_);
    args.q_out.dtype = spec_.type_d;
    args.q = heads(q_, shape_.in_place ? device_q_out_ : device_q_);
    args.k = heads(k_, device_k_);
    args.v = heads(v_, device_v_);
    args.k_cache = CacheView(at(device_cache_[0]), spec_.type_c);
    args.v_cache = CacheView(at(device_cache_[1]), spec_.type_c);
    args.positions = numbers(device_positions_);
    args.slots = numbers(device_slots_);
    args.turns = static_cast<const std::uint64_t*>(at(device_turns_));
    args.fault = static_cast<std::int32_t*>(at(device_fault_));
    args.params = params_;
    kernel.Launch(RopeKvLaunch(spec_, args));
  }

  CaseReport Check(const Job& job) const {
    CaseReport report;
    report.shape = shape_.Name();
    std::vector<std::byte> caches[2], again[2];
    const std::vector<const Guarded*> others{
        device_q_.get(),        device_k_.get(),        device_v_.get(),
        device_cache_[0].get(), device_cache_[1].get(), device_positions_.get(),
        device_slots_.get(),    device_turns_.get(),    device_fault_.get()};
    const auto reset = [&] {
      if (shape_.in_place) device_q_out_->Upload(q_.bytes);
      for (const auto& cache : device_cache_) cache->Poison();
      device_fault_->Zero();
    };
    const auto launch = [&] {
      Launch(job.kernel);
      Must(job.gpu.stream.Synchronize(), "kernel");
      for (int i = 0; i < 2; ++i) {
        again[i] = std::move(caches[i]);
        caches[i] = device_cache_[i]->Download();
      }
    };
    const std::vector<std::byte> q =
        RunTwice(job.gpu, *device_q_out_, others, reset, launch, report);
    if (caches[0] != again[0] || caches[1] != again[1]) {
      report.repeatable = false;
      report.Blame("the second run wrote other bits into the cache");
    }
    CompareAll(q, caches, report);
    int fault = 0;
    std::memcpy(&fault, device_fault_->Download().data(), sizeof fault);
    if (fault != fault_ && report.trouble.empty()) {
      report.trouble = Format("fault is {}, must be {}", fault, fault_);
    }
    return report;
  }

  double FewestBytes() const {
    const std::int64_t q = std::int64_t{shape_.rows} * shape_.heads * head_dim_;
    const std::int64_t kv = std::int64_t{shape_.rows} * shape_.kv_heads * head_dim_;
    return static_cast<double>(BytesOf(spec_.type_a, q + 2 * kv) + BytesOf(spec_.type_d, q) +
                               BytesOf(spec_.type_c, 2 * kv));
  }

 private:
  /// A different (position, slot) for every row; of a shape with faults every fifth row is wrong.
  void PlaceRows(std::uint64_t seed) {
    Random random(seed + 9);
    const int offset =
        shape_.context > shape_.rows
            ? static_cast<int>(random() % static_cast<std::uint64_t>(shape_.context - shape_.rows))
            : 0;
    for (int row = 0; row < shape_.rows; ++row) {
      const int place = row + offset;
      positions_.push_back(shape_.first_position + place % shape_.context);
      slots_.push_back((place / shape_.context + static_cast<int>(seed % 2)) % shape_.slots);
      if (!shape_.faults || row % 5 != 2) continue;
      switch (row / 5 % 3) {
        case 0:
          positions_.back() = -1;
          break;
        case 1:
          positions_.back() = shape_.context;
          break;
        default:
          slots_.back() = shape_.slots;
      }
      fault_ = row + 1;
    }
  }

  bool LeftAlone(int row) const {
    const auto i = static_cast<std::size_t>(row);
    return positions_[i] < 0 ||
           (shape_.kv_heads > 0 &&
            (positions_[i] >= shape_.context || slots_[i] < 0 || slots_[i] >= shape_.slots));
  }

  TensorView CacheView(const void* data, DataType type) const {
    return {const_cast<void*>(data),
            {head_dim_, shape_.kv_heads, shape_.context, shape_.slots},
            {1, cache_head_, cache_position_, cache_slot_},
            type};
  }

  /// Heads turned by the oracle of the room, in f64, laid out as `heads`. Rows that are to be left
  /// alone turn by nothing.
  std::vector<double> Turned(const Heads& heads) const {
    std::vector<double> turned(static_cast<std::size_t>(heads.rows * heads.row_stride));
    if (heads.heads == 0) return turned;
    std::vector<std::int32_t> positions(positions_.begin(), positions_.end());
    for (std::size_t row = 0; row < positions.size(); ++row) {
      if (LeftAlone(static_cast<int>(row))) positions[row] = 0;
    }
    rope::Args args;
    args.qk = heads.View(heads.bytes.data());
    args.out = heads.View(turned.data());
    args.out.dtype = DataType::kF64;
    args.positions =
        Contiguous(positions.data(), DataType::kI32, {std::int64_t{shape_.rows}, 1, 1, 1});
    args.params = params_;
    Must(rope::Reference(args), "the oracle of rope");
    return turned;
  }

  /// The rows of `values` (laid out as `heads`) that have a place, put there by the oracle of the
  /// scatter; the rest of the cache is NaN.
  std::vector<std::byte> Scattered(const Heads& heads, const void* values, DataType type,
                                   DataType cache_type) const {
    std::vector<std::byte> cache(BytesOf(cache_type, cache_slot_ * shape_.slots), std::byte{0xff});
    for (int row = 0; row < shape_.rows; ++row) {
      if (heads.heads == 0 || LeftAlone(row)) continue;
      const auto i = static_cast<std::size_t>(row);
      std::int32_t position = positions_[i], slot = slots_[i];
      kv_scatter::Args args;
      args.x =
          heads.View(static_cast<const std::byte*>(values) + BytesOf(type, row * heads.row_stride));
      args.x.dtype = type;
      args.x.shape[2] = 1;
      args.cache = CacheView(cache.data(), cache_type);
      args.positions = Contiguous(&position, DataType::kI32, {1, 1, 1, 1});
      args.slots = Contiguous(&slot, DataType::kI32, {1, 1, 1, 1});
      Must(kv_scatter::Reference(args), "the oracle of the scatter");
    }
    return cache;
  }

  /// Magnitudes that were added up to element i of a turned head.
  double Magnitude(const std::vector<double>& head, std::size_t i) const {
    const auto dims = static_cast<std::size_t>(dims_);
    if (i >= dims) return 0;
    const std::size_t partner = params_.mode == RopeMode::kInterleaved ? i ^ 1
                                : i < dims / 2                         ? i + dims / 2
                                                                       : i - dims / 2;
    return std::abs(head[i]) + std::abs(head[partner]);
  }

  void CompareAll(const std::vector<std::byte>& q, const std::vector<std::byte> (&caches)[2],
                  CaseReport& report) const {
    constexpr double kAngle = 0x1p-22;  // sines and cosines in f32, and two roundings
    Comparison of_q(spec_.type_d, kAngle, 1), of_k(spec_.type_c, kAngle, 1);
    // What must be in memory at the end where that is known to the bit; elsewhere what is there.
    std::vector<std::byte> want_q =
        shape_.in_place ? q_.bytes : std::vector<std::byte>(q.size(), std::byte{0xff});
    std::vector<std::byte> want_k(caches[0].size(), std::byte{0xff});
    const std::vector<double> turned_q = Turned(q_), turned_k = Turned(k_);
    std::vector<double> got(static_cast<std::size_t>(head_dim_));
    const auto compare = [&](Comparison& with, DataType type, const std::vector<std::byte>& bytes,
                             std::vector<std::byte>& known, std::int64_t at,
                             const std::vector<double>& head, const double* want, int row) {
      const std::size_t byte = BytesOf(type, at);
      Must(DecodeRow(type, bytes.data() + byte, head_dim_, got.data()), "decode");
      for (std::size_t i = 0; i < got.size(); ++i) {
        with.Add(got[i], want[i], Magnitude(head, i), row, static_cast<std::int64_t>(i));
      }
      std::memcpy(known.data() + byte, bytes.data() + byte, BytesOf(type, head_dim_));
    };
    for (int row = 0; row < shape_.rows; ++row) {
      if (LeftAlone(row)) continue;
      const int position = positions_[static_cast<std::size_t>(row)];
      for (int head = 0; head < shape_.heads; ++head) {
        compare(of_q, spec_.type_d, q, want_q, q_.At(row, head), q_.Head(row, head),
                turned_q.data() + q_.At(row, head), row);
      }
      for (int head = 0; head < shape_.kv_heads; ++head) {
        const std::int64_t at = head * cache_head_ + position * cache_position_ +
                                slots_[static_cast<std::size_t>(row)] * cache_slot_;
        compare(of_k, spec_.type_c, caches[0], want_k, at, k_.Head(row, head),
                turned_k.data() + k_.At(row, head), row);
      }
    }
    Finish(shape_.heads > 0 ? of_q : of_k, report);
    if (shape_.heads > 0 && shape_.kv_heads > 0 && !of_k.Trouble().empty()) {
      report.Blame("k: " + of_k.Trouble());
    }
    const auto same = [&](const char* what, const std::vector<std::byte>& wanted,
                          const std::vector<std::byte>& bytes) {
      const auto at = std::mismatch(wanted.begin(), wanted.end(), bytes.begin());
      if (at.first == wanted.end() || !report.trouble.empty()) return;
      report.Blame(Format("{}: byte {} is wrong, or was not to be written", what,
                          at.first - wanted.begin()));
    };
    same("q", want_q, q);
    same("k cache", want_k, caches[0]);
    // v is converted and nothing else: its bits are determined.
    same("v cache", Scattered(v_, v_.bytes.data(), spec_.type_a, spec_.type_c), caches[1]);
  }

  const KernelSpec& spec_;
  Shape shape_;
  int head_dim_, dims_;
  Heads q_, k_, v_;
  RopeParams params_;
  std::vector<int> positions_, slots_;
  int fault_ = 0;
  std::int64_t cache_head_ = 0, cache_position_ = 0, cache_slot_ = 0;
  std::unique_ptr<Guarded> device_q_, device_k_, device_v_, device_q_out_, device_cache_[2],
      device_positions_, device_slots_, device_turns_, device_fault_;
};

}  // namespace

void RunRopeKv(const Job& job, KernelReport& report) {
  const KernelSpec& spec = job.kernel.spec();
  if (job.check) {
    constexpr RopeMode kHalves = RopeMode::kHalfSplit;
    std::vector<Shape> shapes{
        {.rows = 1, .heads = 9, .kv_heads = 3, .head_dim = 64},
        {1, 32, 8},
        {200, 32, 8},
        {.rows = 200, .heads = 32, .kv_heads = 8, .mode = kHalves},
        {.rows = 7, .heads = 1, .kv_heads = 1, .head_dim = 64, .mode = kHalves},
        {5, 4, 0},
        {.rows = 5, .heads = 0, .kv_heads = 4, .head_dim = 80},
        {.rows = 33, .heads = 9, .kv_heads = 3, .mode = kHalves, .pad = 8},
        {.rows = 33, .heads = 9, .kv_heads = 3, .head_dim = 64, .pad = 1},
        {.rows = 12, .heads = 6, .kv_heads = 2, .mode = kHalves, .dims = 64},
        {.rows = 12, .heads = 6, .kv_heads = 2, .dims = 122},
        {.rows = 40, .heads = 8, .kv_heads = 2, .head_major = true},
        {.rows = 17, .heads = 3, .kv_heads = 2, .context = 40000, .slots = 1},
        {.rows = 8, .heads = 4, .kv_heads = 0, .context = 1000, .first_position = 1000000},
        {.rows = 64, .heads = 4, .kv_heads = 4, .faults = true}};
    if (spec.type_a == spec.type_d) {
      shapes.push_back({.rows = 21, .heads = 9, .kv_heads = 3, .pad = 4, .in_place = true});
      shapes.push_back({.rows = 21, .heads = 5, .kv_heads = 1, .in_place = true, .faults = true});
    }
    for (const Shape& shape : shapes) report.cases.push_back(Rope(job, shape).Check(job));
  }
  if (!job.time) return;
  for (const int rows : {1, 16384}) {
    const Shape shape{.rows = rows, .heads = 32, .kv_heads = 8, .context = 16385, .slots = 1};
    const Rope rope(job, shape);
    TimeReport time = TimeLaunches(job.gpu, 1, [&](int) { rope.Launch(job.kernel); });
    time.shape = shape.Name();
    time.bytes = rope.FewestBytes();
    report.times.push_back(time);
  }
}

}  // namespace tilewright::gpu_check
