#include "model/session/kv_cache.h"

#include <algorithm>
#include <utility>

#include "core/memory.h"
#include "core/text.h"
#include "device/memory_space.h"

namespace tilewright {
namespace {

/// Entries of a page table: a GiB of them, far beyond any use.
constexpr std::int64_t kMaxTable = std::int64_t{1} << 28;

}  // namespace

Result<KvCache> KvCache::Create(const Shape& shape, Device& device) {
  const TypeInfo& type = GetTypeInfo(shape.type);
  if (shape.head_dim % type.block_elements != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("KV cache of {}: head_dim = {} must be a multiple of {}", type.name,
                       shape.head_dim, type.block_elements));
  }
  KvCache cache(shape, device);
  cache.pages_per_slot_ = (shape.context - 1) / shape.page_size + 1;
  const std::int64_t entries = std::int64_t{cache.pages_per_slot_} * shape.slots;
  if (entries > kMaxTable) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("a KV cache of {} positions for {} sequence(s) takes {} pages, at most {}",
                       shape.context, shape.slots, entries, kMaxTable));
  }
  cache.memory_.resize(static_cast<std::size_t>(shape.layers));
  cache.layers_.resize(static_cast<std::size_t>(shape.layers));
  cache.table_.assign(static_cast<std::size_t>(entries), -1);
  cache.held_.assign(static_cast<std::size_t>(shape.slots), 0);
  return cache;
}

std::size_t KvCache::PageBytes() const {
  return BytesOf(shape_.type, std::int64_t{shape_.head_dim} * shape_.kv_heads * shape_.page_size);
}

std::int64_t KvCache::bytes() const {
  return pages_ * shape_.layers * 2 * static_cast<std::int64_t>(PageBytes());
}

std::int64_t KvCache::bytes_per_position() const {
  const std::int64_t row = std::int64_t{shape_.head_dim} * shape_.kv_heads;
  return 2 * shape_.layers * static_cast<std::int64_t>(BytesOf(shape_.type, row));
}

std::int32_t KvCache::PagesOf(std::int32_t positions) const {
  return (positions + shape_.page_size - 1) / shape_.page_size;
}

std::int64_t KvCache::PagesIn(std::uint64_t bytes) const {
  // Devices hand out memory in pieces of up to this size, and every layer has its own.
  constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;
  const auto layers = static_cast<std::uint64_t>(shape_.layers);
  const std::uint64_t lost = device_->host_accessible() ? 0 : (layers + 1) * kGrain;
  // While one layer grows, what it held is there too.
  const std::uint64_t page_bytes = 2 * (layers + 1) * PageBytes();
  return static_cast<std::int64_t>((bytes - std::min(bytes, lost)) / page_bytes);
}

std::optional<std::int64_t> KvCache::PagesThatFit() const {
  const Result<MemorySpace> memory = MemoryOf(*device_);
  if (!memory) return std::nullopt;
  std::uint64_t bytes = memory->free;
  for (const DeviceMemory& layer : memory_) bytes += layer.size();
  return std::max(PagesIn(bytes), pages_);
}

std::int32_t KvCache::ContextThatFits(const Shape& shape, Device& device) {
  const Result<MemorySpace> memory = MemoryOf(device);
  if (!memory) return shape.context;
  const std::int64_t pages =
      KvCache(shape, device).PagesIn(memory->free - memory->free / 8) / shape.slots;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(std::max<std::int64_t>(pages, 1) * shape.page_size, shape.context));
}

std::string KvCache::FitText() const {
  const std::optional<std::int64_t> pages = PagesThatFit();
  if (!pages) return {};
  if (*pages == 0) return "; not one page fits";
  const std::int64_t positions = *pages * shape_.page_size;
  if (shape_.slots == 1) return Format("; a context of {} positions fits", positions);
  return Format("; {} positions of all {} sequences fit", positions, shape_.slots);
}

Status KvCache::Reserve(std::int32_t positions) {
  return PagesOf(positions) > pages_ ? Grow(PagesOf(positions)) : Status();
}

Status KvCache::Hold(std::int32_t slot, std::int32_t positions) {
  const std::int32_t wanted = PagesOf(positions);
  std::int32_t& held = held_[static_cast<std::size_t>(slot)];
  const std::int64_t missing = wanted - held - static_cast<std::int64_t>(free_.size());
  if (missing > 0) {
    if (Status status = Grow(pages_ + missing); !status) return status;
  }
  std::int32_t* const row = table_.data() + static_cast<std::ptrdiff_t>(slot) * pages_per_slot_;
  if (held != wanted) ++table_changes_;
  for (; held < wanted; ++held) {
    row[held] = free_.back();
    free_.pop_back();
  }
  for (; held > wanted; --held) free_.push_back(std::exchange(row[held - 1], -1));
  return {};
}

Status KvCache::Grow(std::int64_t least) {
  const std::int64_t most = std::int64_t{pages_per_slot_} * shape_.slots;
  // Doubles each time, so that a position is moved about once, and allocates one page more than the
  // first prompt needs, so that its answer does not begin with a move.
  std::int64_t roomy = std::min(std::max(least + 1, 2 * pages_), most);
  // An attempt that fails half way leaves layers larger than the next attempt needs.
  if (const auto fit = PagesThatFit()) roomy = std::min(roomy, std::max(*fit, least));
  if (roomy > least && GrowTo(roomy)) return {};
  return GrowTo(least);
}

Status KvCache::GrowTo(std::int64_t pages) {
  const std::uint64_t more =
      static_cast<std::uint64_t>((pages - pages_) * shape_.layers * 2) * PageBytes();
  Status status;
  if (device_->host_accessible() && more > AvailableMemoryBytes()) {
    // If the system promises memory that it does not have, the process is killed when it touches
    // it.
    status = Fail(ErrorCode::kOutOfMemory,
                  Format("{} are available", HumanBytes(AvailableMemoryBytes())));
  }
  for (std::size_t layer = 0; layer < layers_.size() && status; ++layer)
    status = GrowLayer(layer, pages);
  if (!status) {
    const bool one = pages - pages_ == 1;
    return Fail(
        status.error().code,
        Format("{} more {} of {} positions for the KV cache {} {}: {}{}; a shorter text, fewer "
               "sequences or another KV type needs less",
               pages - pages_, one ? "page" : "pages", shape_.page_size, one ? "needs" : "need",
               HumanBytes(more), status.error().message, FitText()));
  }
  free_.reserve(static_cast<std::size_t>(pages));
  // The lowest page is taken first.
  for (std::int64_t page = pages - 1; page >= pages_; --page)
    free_.push_back(static_cast<std::int32_t>(page));
  pages_ = pages;
  return {};
}

/// One layer after the other, so that only one is in memory twice.
Status KvCache::GrowLayer(std::size_t layer, std::int64_t pages) {
  const std::size_t bytes = static_cast<std::size_t>(pages) * PageBytes();
  // Grown by an attempt that failed later.
  if (memory_[layer] && layers_[layer].k.shape[3] >= pages) return {};
  Result<DeviceMemory> larger = device_->Allocate(2 * bytes);
  if (!larger) return Fail(std::move(larger.error()));
  auto* const k = larger->as<std::byte>();
  auto* const v = k + bytes;
  KvLayer& views = layers_[layer];
  if (pages_ > 0) {
    const std::size_t kept = static_cast<std::size_t>(pages_) * PageBytes();
    const Stream stream = device_->default_stream();
    if (Status s = device_->Copy(k, views.k.data, kept, stream); !s) return s;
    if (Status s = device_->Copy(v, views.v.data, kept, stream); !s) return s;
    // The old memory is released below.
    if (Status s = device_->Synchronize(stream); !s) return s;
  }
  const std::array<std::int64_t, 4> shape{shape_.head_dim, shape_.kv_heads, shape_.page_size,
                                          pages};
  views = {Contiguous(k, shape_.type, shape), Contiguous(v, shape_.type, shape)};
  memory_[layer] = std::move(*larger);
  ++moves_;
  return {};
}

}  // namespace tilewright
