#include "core/paged_cache.h"

#include "core/tensor_access.h"
#include "core/text.h"

namespace tilewright {
namespace {

template <class... A>
tl::unexpected<Error> Refuse(ErrorCode code, std::string_view what, fmt::format_string<A...> format,
                             A&&... args) {
  return Fail(code, Format("{}: ", what) + Format(format, std::forward<A>(args)...));
}
constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;

}  // namespace

Status CheckPageTable(std::string_view what, const TensorView& pages) {
  if (pages.data == nullptr) return {};
  if (pages.dtype == DataType::kI32 && pages.shape[2] == 1 && pages.shape[3] == 1 &&
      pages.stride[0] == 1 && pages.stride[1] >= 0) {
    return {};
  }
  return Refuse(kInvalid, what, "pages {} {}, must be i32 [pages of a sequence, slots]",
                DataTypeName(pages.dtype), ShapeText(pages));
}

Status CheckRowsFitCache(std::string_view what, const TensorView& x, const TensorView& cache) {
  if (x.shape[3] != 1 || cache.shape[0] != x.shape[0] || cache.shape[1] != x.shape[1]) {
    return Refuse(kInvalid, what,
                  "x {} into cache {}: must be [head_dim, kv_heads, rows] into [head_dim, "
                  "kv_heads, context, slots]",
                  ShapeText(x), ShapeText(cache));
  }
  const int block = GetTypeInfo(cache.dtype).block_elements;
  if (cache.shape[0] % block != 0) {
    return Refuse(kInvalid, what, "head_dim = {}, must be a multiple of {} for a cache of {}",
                  cache.shape[0], block, DataTypeName(cache.dtype));
  }
  for (std::size_t d = 1; d < 4; ++d) {
    if (cache.shape[d] > 1 && cache.stride[d] % block != 0) {
      return Refuse(kInvalid, what, "cache.stride[{}] = {}, must be a multiple of {}", d,
                    cache.stride[d], block);
    }
  }
  return {};
}

Status CheckPlaces(std::string_view what, const CacheRows& where, std::int64_t rows) {
  const CachePlaces places(where.cache, where.pages);
  const auto* positions = where.positions.as<const std::int32_t>();
  const auto* slots = where.slots.as<const std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    if (positions[r] == -1) continue;  // padding
    if (slots[r] < 0 || slots[r] >= places.slots()) {
      return Refuse(kInvalid, what, "slots[{}] = {}, the cache has {}", r, slots[r],
                    places.slots());
    }
    if (positions[r] < 0 || positions[r] >= places.context()) {
      return Refuse(positions[r] < 0 ? kInvalid : ErrorCode::kExhausted, what,
                    "positions[{}] = {}, the context has {}", r, positions[r], places.context());
    }
    if (!places.paged()) continue;
    const std::int64_t logical = positions[r] / where.cache.shape[2];
    const std::int32_t page = places.PagesOf(slots[r])[logical];
    if (page < 0 || page >= places.physical_pages()) {
      return Refuse(kInvalid, what, "pages[{}, {}] = {}, the cache has {}", logical, slots[r], page,
                    places.physical_pages());
    }
  }
  return {};
}

}  // namespace tilewright
