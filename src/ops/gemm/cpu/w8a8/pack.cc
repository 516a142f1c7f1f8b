#include "ops/gemm/cpu/w8a8/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/block_format.h"
#include "ops/gemm/cpu/w8a8/layout.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm_w8a8 {

std::optional<Rejection> CheckDepth(int k) {
  if (k <= kMostK) return std::nullopt;
  return Rejection{Reason::kShape, fmt::format("k = {}", k),
                   fmt::format("k <= {}, whose sums fit int32", kMostK)};
}

Status CheckPlainWeights(std::string_view kernel, DataType type, const MatrixLayout& b) {
  const int block = gemm::BlockElements(type);
  if (b.num == 1 && b.type == type && b.order == Order::kColMajor && b.pack == kPackPlain &&
      b.rows >= 1 && b.rows <= kMostK && b.cols >= 1 && b.ld >= b.rows && b.rows % block == 0 &&
      b.ld % block == 0) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} packs one plain column-major matrix of {}, k up to {} and ld >= k "
                          "multiples of {}; got {} of {}, pack {}, k = {}, n = {}, ld = {}",
                          kernel, DataTypeName(type), kMostK, block, b.num, DataTypeName(b.type),
                          PackName(b.pack), b.rows, b.cols, b.ld));
}

void PackPanelOf(DataType type, const void* plain, const MatrixLayout& b, int panel,
                 std::uint8_t* to) {
  const int k = b.rows, first = panel * kColumns, count = std::min(kColumns, b.cols - first);
  const std::size_t column_bytes = BytesOf(type, b.ld);
  const auto* bytes = static_cast<const std::uint8_t*>(plain);
  // Decoded exactly, then to f32: the same value whatever decodes.
  std::vector<double> exact(static_cast<std::size_t>(k));
  std::vector<float> columns(static_cast<std::size_t>(count) * exact.size());
  for (int c = 0; c < count; ++c) {
    const std::uint8_t* from = bytes + static_cast<std::size_t>(first + c) * column_bytes;
    // Every type of the catalog decodes.
    static_cast<void>(DecodeRow(type, from, k, exact.data()));
    std::transform(exact.begin(), exact.end(), columns.begin() + std::ptrdiff_t{c} * k,
                   [](double value) { return static_cast<float>(value); });
  }
  PackPanel(columns.data(), k, count, k, to);
}

}  // namespace tilewright::gemm_w8a8
