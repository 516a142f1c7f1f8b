#include "device/cuda/kv_cache.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "core/text.h"
#include "device/cuda/row_views.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max();

std::optional<Rejection> CheckInts(const char* name, const TensorView& view, std::int64_t count) {
  if (view.shape[0] < count || view.stride[0] != 1) {
    return Rejection{Reason::kShape, Format("{} of {} elements", name, view.shape[0]),
                     Format("{} adjacent elements", count)};
  }
  return CheckOperand(name, view, DataType::kI32);
}

std::int64_t ContextOf(const KvCacheViews& views) {
  return views.cache.shape[2] * (views.pages.data != nullptr ? views.pages.shape[0] : 1);
}

}  // namespace

std::optional<Rejection> CheckKvCache(const KvCacheViews& views, DataType type,
                                      const TensorView& rows) {
  const TensorView& cache = views.cache;
  if (auto no = CheckOperand("cache", cache, type,
                             {rows.shape[0], rows.shape[1], cache.shape[2], cache.shape[3]})) {
    return no;
  }
  if (cache.stride[0] != 1) {
    return Rejection{Reason::kStriding, Format("cache: elements {} apart", cache.stride[0]),
                     "adjacent elements"};
  }
  if (auto no = CheckInts("positions", views.positions, rows.shape[2])) return no;
  if (auto no = CheckInts("slots", views.slots, rows.shape[2])) return no;
  const bool paged = views.pages.data != nullptr;
  if (paged) {
    if (auto no = CheckInts("pages", views.pages, 1)) return no;
  }
  for (const std::int64_t extent :
       {cache.shape[2], cache.shape[3], ContextOf(views), paged ? views.pages.shape[1] : 1}) {
    if (extent >= 1 && extent <= kMaxExtent) continue;
    return Rejection{Reason::kShape,
                     Format("a cache of {} positions in {}", ContextOf(views), cache.shape[3]),
                     Format("1 to {} positions, pages and slots", kMaxExtent)};
  }
  return std::nullopt;
}

KvCacheRows KvCacheRowsOf(const KvCacheViews& views) {
  const TensorView& cache = views.cache;
  const bool paged = views.pages.data != nullptr;
  KvCacheRows rows{};
  rows.data = cache.data;
  rows.positions = views.positions.as<const int>();
  rows.slots = views.slots.as<const int>();
  rows.pages = views.pages.as<const int>();
  rows.head = cache.stride[1];
  rows.position = cache.stride[2];
  rows.page = cache.stride[3];
  rows.pages_slot = paged ? views.pages.stride[1] : 0;
  rows.page_size = paged ? static_cast<int>(cache.shape[2]) : 0;
  rows.page_count = paged ? static_cast<int>(cache.shape[3]) : 0;
  rows.context = static_cast<int>(ContextOf(views));
  rows.slot_count = static_cast<int>(paged ? views.pages.shape[1] : cache.shape[3]);
  return rows;
}

bool AlignedTo(const KvCacheViews& views, std::int64_t bytes) {
  const TensorView& cache = views.cache;
  auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(cache.data));
  for (std::size_t d = 1; d < 4; ++d) {
    if (cache.shape[d] > 1)
      address |= static_cast<std::int64_t>(BytesOf(cache.dtype, cache.stride[d]));
  }
  return address % bytes == 0;
}

}  // namespace tilewright::cuda
