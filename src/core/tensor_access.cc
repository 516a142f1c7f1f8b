#include "core/tensor_access.h"

#include "core/text.h"

namespace tilewright {

double ReadF64(DataType type, const void* data, std::int64_t index) {
  switch (type) {
    case DataType::kF32:
      return static_cast<const float*>(data)[index];
    case DataType::kF16:
      return F16ToF32(static_cast<const std::uint16_t*>(data)[index]);
    case DataType::kBF16:
      return BF16ToF32(static_cast<const std::uint16_t*>(data)[index]);
    case DataType::kF64:
      return static_cast<const double*>(data)[index];
    case DataType::kI32:
      return static_cast<const std::int32_t*>(data)[index];
    default:
      return 0;
  }
}

void WriteF64(DataType type, void* data, std::int64_t index, double value) {
  switch (type) {
    case DataType::kF32:
      static_cast<float*>(data)[index] = static_cast<float>(value);
      break;
    // Via f32: rounding twice differs from rounding once by less than 2^-29 units in the last
    // place, and only near ties.
    case DataType::kF16:
      static_cast<std::uint16_t*>(data)[index] = F32ToF16(static_cast<float>(value));
      break;
    case DataType::kBF16:
      static_cast<std::uint16_t*>(data)[index] = F32ToBF16(static_cast<float>(value));
      break;
    case DataType::kF64:
      static_cast<double*>(data)[index] = value;
      break;
    default:
      break;
  }
}

std::string ShapeText(const TensorView& view) {
  return Format("[{}, {}, {}, {}]", view.shape[0], view.shape[1], view.shape[2], view.shape[3]);
}

Status CheckView(std::string_view what, const TensorView& view) {
  for (int d = 0; d < 4; ++d) {
    if (view.shape[d] < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{}: shape {} has a negative size", what, ShapeText(view)));
    }
    if (view.shape[d] > 1 && view.stride[d] < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("{}: stride[{}] = {} is negative", what, d, view.stride[d]));
    }
  }
  if (view.shape[0] > 1 && view.stride[0] != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: stride[0] = {}, must be 1", what, view.stride[0]));
  }
  if (view.data == nullptr && view.elements() != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: shape {} without memory", what, ShapeText(view)));
  }
  return {};
}

Status CheckSameShape(std::string_view what, const TensorView& view, std::string_view like_what,
                      const TensorView& like) {
  if (view.shape == like.shape) return {};
  return Fail(ErrorCode::kInvalidArgument, Format("{} has shape {}, must be that of {}, {}", what,
                                                  ShapeText(view), like_what, ShapeText(like)));
}

Status CheckInts(std::string_view what, const TensorView& view, std::int64_t count) {
  if (view.dtype != DataType::kI32 || view.shape[0] < count || (count > 1 && view.stride[0] != 1) ||
      (count > 0 && view.data == nullptr)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: {} {}, must be {} adjacent i32", what, DataTypeName(view.dtype),
                       ShapeText(view), count));
  }
  return {};
}

}  // namespace tilewright
