#include "engine/tune/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/block_format.h"
#include "core/random.h"
#include "core/tensor_access.h"
#include "core/text.h"

namespace tilewright {
namespace {

bool IsInteger(DataType type) {
  return type == DataType::kI8 || type == DataType::kU8 || type == DataType::kU4 ||
         type == DataType::kI32 || type == DataType::kI64;
}

bool AllOnes(const std::byte* bytes, std::size_t count) {
  return std::all_of(bytes, bytes + count, [](std::byte b) { return b == std::byte{0xff}; });
}

Status FillRow(DataType type, std::int64_t length, Random& random, std::vector<float>& values,
               std::byte* out) {
  if (IsInteger(type)) {
    for (std::size_t i = 0; i < BytesOf(type, length); ++i)
      out[i] = static_cast<std::byte>(random.Next() >> 56);
    return {};
  }
  for (float& value : values) value = static_cast<float>(random.Normal());
  return EncodeRow(type, values.data(), length, out);
}

}  // namespace

std::size_t BytesOf(const TensorView& contiguous) {
  return BytesOf(contiguous.dtype, contiguous.elements());
}

namespace {
/// More than any machine has, and no sum of bytes overflows.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
}  // namespace

Result<TrialTensor> RandomTensor(std::string_view name, TrialRole role, DataType type,
                                 std::array<std::int64_t, 4> shape, std::uint64_t seed) {
  constexpr std::int64_t kDistinct = 251;
  TrialTensor tensor{name, role, Contiguous(nullptr, type, shape), {}};
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > kMostElements) {
      return Fail(ErrorCode::kOutOfMemory, Format("no memory for {}: {} x {} x {} x {} elements",
                                                  name, shape[0], shape[1], shape[2], shape[3]));
    }
  }
  try {
    tensor.content.resize(BytesOf(tensor.view));
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kOutOfMemory,
                Format("no memory for {}: {} bytes", name, BytesOf(tensor.view)));
  }
  Random random(seed);
  const std::size_t row_bytes = BytesOf(type, shape[0]);
  std::vector<float> values(static_cast<std::size_t>(shape[0]));
  for (std::int64_t row = 0; row < RowCount(tensor.view); ++row) {
    std::byte* out = tensor.content.data() + static_cast<std::size_t>(row) * row_bytes;
    if (row >= kDistinct) {
      const auto from = static_cast<std::size_t>(random.Below(kDistinct));
      std::memcpy(out, tensor.content.data() + from * row_bytes, row_bytes);
    } else if (Status s = FillRow(type, shape[0], random, values, out); !s) {
      return Fail(s.error().code, Format("{}: {}", name, s.error().message));
    }
  }
  return tensor;
}

TrialTensor IntegerTensor(std::string_view name, std::span<const std::int32_t> values,
                          std::array<std::int64_t, 4> shape) {
  TrialTensor tensor{name, TrialRole::kRecent, Contiguous(nullptr, DataType::kI32, shape), {}};
  tensor.content.resize(values.size_bytes());
  std::memcpy(tensor.content.data(), values.data(), values.size_bytes());
  return tensor;
}

TrialTensor OutputTensor(std::string_view name, DataType type, std::array<std::int64_t, 4> shape) {
  return {name, TrialRole::kOutput, Contiguous(nullptr, type, shape), {}};
}

TrialPlaces PlacesInCache(std::int32_t rows, std::int32_t page_size) {
  const std::int32_t first = page_size / 2;
  TrialPlaces places;
  places.held = page_size > 0 ? page_size : rows + 1;
  places.page_count = page_size > 0 ? (first + rows - 1) / page_size + 1 : 1;
  for (std::int32_t r = 0; r < rows; ++r) places.positions.push_back(first + r);
  if (rows > 1) places.positions.back() = -1;  // padding
  places.slots.assign(places.positions.size(), 0);
  const auto last = static_cast<std::int32_t>(places.page_count - 1);
  for (std::int32_t p = 0; page_size > 0 && p <= last; ++p) places.pages.push_back(last - p);
  return places;
}

Result<std::vector<TrialTensor>> ScatterTensors(std::string_view rows_name,
                                                const TrialScatter& scatter,
                                                const TrialOptions& options) {
  const TrialPlaces places = PlacesInCache(scatter.rows, scatter.page_size);
  auto rows = RandomTensor(rows_name, TrialRole::kRecent, scatter.type_rows,
                           {scatter.head_dim, scatter.heads, scatter.rows, 1}, SeedOf(options, 1));
  if (!rows) return Fail(rows.error());
  auto cache = RandomTensor("cache", TrialRole::kUpdated, scatter.type_cache,
                            {scatter.head_dim, scatter.heads, places.held, places.page_count},
                            SeedOf(options, 2));
  if (!cache) return Fail(cache.error());
  std::vector<TrialTensor> tensors = {
      std::move(*rows), std::move(*cache),
      IntegerTensor("positions", places.positions, {scatter.rows, 1, 1, 1}),
      IntegerTensor("slots", places.slots, {scatter.rows, 1, 1, 1})};
  if (scatter.page_size > 0)
    tensors.push_back(IntegerTensor("pages", places.pages, {places.page_count, 1, 1, 1}));
  return tensors;
}

TensorView Slice(const TensorView& view, int dim, std::int64_t begin, std::int64_t count) {
  if (view.data == nullptr) return view;
  TensorView part = view;
  const auto d = static_cast<std::size_t>(dim);
  part.data = MutableAddressOf(view, begin * view.stride[d]);
  part.shape[d] = count;
  return part;
}

double EpsilonOf(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 0x1p-52;
    case DataType::kF16:
      return 0x1p-10;
    case DataType::kBF16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

std::string DifferenceOf(std::string_view name, std::int64_t row, DataType type, std::int64_t count,
                         const std::byte* got, const std::byte* want, const std::byte* before,
                         const Tolerance& tolerance) {
  const bool exact = tolerance.relative == 0 && tolerance.absolute == 0;
  const int block = GetTypeInfo(type).block_elements;
  const std::size_t size = BytesOf(type, block);
  std::vector<double> have(static_cast<std::size_t>(block)), oracle(have.size());
  for (std::int64_t i = 0; i < count; i += block) {
    const std::size_t at = static_cast<std::size_t>(i / block) * size;
    const std::byte* right = AllOnes(want + at, size) ? before + at : want + at;
    if (std::memcmp(got + at, right, size) == 0) continue;
    if (!DecodeRow(type, got + at, block, have.data()) ||
        !DecodeRow(type, right, block, oracle.data())) {
      return Format("{}[{}, {}] differs from what the oracle has", name, row, i);
    }
    for (std::size_t j = 0; j < have.size(); ++j) {
      const double allowed = tolerance.relative * std::fabs(oracle[j]) + tolerance.absolute;
      if (exact ? have[j] == oracle[j] : std::fabs(have[j] - oracle[j]) <= allowed) continue;
      return Format("{}[{}, {}] = {} where the oracle has {}", name, row,
                    i + static_cast<std::int64_t>(j), have[j], oracle[j]);
    }
    if (exact) return Format("{}[{}, {}] has other bytes than the oracle's", name, row, i);
  }
  return {};
}

std::string UnwrittenIn(std::string_view name, std::int64_t row, DataType type, std::int64_t count,
                        const std::byte* got) {
  if (!IsFloatType(type)) return {};
  std::vector<double> values(static_cast<std::size_t>(count));
  if (!DecodeRow(type, got, count, values.data())) return {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return Format("{}[{}, {}] is {}", name, row, i, values[i]);
  }
  return {};
}

}  // namespace tilewright
