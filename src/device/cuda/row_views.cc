#include "device/cuda/row_views.h"

#include <algorithm>
#include <string>

#include "core/text.h"

namespace tilewright::cuda {
namespace {

/// Whether dimension `d` continues where `extent` steps of `steps[i]` in view i end.
bool Continues(std::span<const TensorView* const> views, std::size_t d,
               std::span<const std::int64_t> steps, std::int64_t extent) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i]->stride[d] != steps[i] * extent) return false;
  }
  return true;
}

std::string ShapeWords(const std::array<std::int64_t, 4>& s) {
  return Format("[{}, {}, {}, {}]", s[0], s[1], s[2], s[3]);
}

std::optional<Rejection> Refuse(Reason reason, std::string have, std::string need) {
  return Rejection{reason, std::move(have), std::move(need)};
}

}  // namespace

RowSpace JoinRows(std::span<const TensorView* const> views, std::span<RowStrides> strides) {
  constexpr std::size_t kMaxViews = 4;
  const TensorView& first = *views[0];
  RowSpace space{.cols = first.shape[0]};
  std::array<std::int64_t, kMaxViews> steps{};  // of the dimension that may still grow
  for (std::size_t i = 0; i < views.size(); ++i) {
    strides[i] = {.col = first.shape[0] > 1 ? views[i]->stride[0] : 1};
    steps[i] = strides[i].col;
  }
  std::int64_t* open = &space.cols;
  std::size_t used = 0;  // of the dimensions of rows
  for (std::size_t d = 1; d < 4; ++d) {
    if (first.shape[d] == 1) continue;
    if (Continues(views, d, steps, *open)) {
      *open *= first.shape[d];
      continue;
    }
    for (std::size_t i = 0; i < views.size(); ++i)
      steps[i] = strides[i].rows[used] = views[i]->stride[d];
    open = &space.extents[used++];
    *open = first.shape[d];
  }
  return space;
}

bool AlignedTo16(const TensorView& view, const RowStrides& strides) {
  auto bytes = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(view.data));
  for (const std::int64_t stride : strides.rows)
    bytes |= static_cast<std::uint64_t>(BytesOf(view.dtype, stride));
  return strides.col == 1 && bytes % 16 == 0;
}

std::optional<Rejection> CheckOperand(const char* operand, const TensorView& view, DataType type) {
  if (view.dtype != type) {
    return Refuse(Reason::kType, Format("{} {}", operand, DataTypeName(view.dtype)),
                  std::string(DataTypeName(type)));
  }
  if (view.data == nullptr) {
    return Refuse(Reason::kShape, Format("{} is null", operand), "device memory");
  }
  for (const std::int64_t stride : view.stride) {
    if (stride < 0) {
      return Refuse(Reason::kStriding, Format("{}: a stride of {}", operand, stride), "0 or more");
    }
  }
  const std::size_t element = GetTypeInfo(type).block_elements > 1 ? 2 : BytesOf(type, 1);
  if (reinterpret_cast<std::uintptr_t>(view.data) % element != 0) {
    return Refuse(Reason::kAlignment, Format("{} at {}", operand, view.data),
                  Format("a multiple of {} bytes", element));
  }
  return std::nullopt;
}

std::optional<Rejection> CheckOperand(const char* operand, const TensorView& view, DataType type,
                                      const std::array<std::int64_t, 4>& shape) {
  if (view.shape != shape) {
    return Refuse(Reason::kShape, Format("{} {}", operand, ShapeWords(view.shape)),
                  ShapeWords(shape));
  }
  return CheckOperand(operand, view, type);
}

}  // namespace tilewright::cuda
