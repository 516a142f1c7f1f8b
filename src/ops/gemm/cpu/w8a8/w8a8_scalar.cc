#include "ops/gemm/cpu/w8a8/epilogue.h"
#include "ops/gemm/cpu/w8a8/rounding.h"

namespace tilewright::gemm_w8a8 {
namespace {

void Multiply(const Task& task) {
  const int steps = CeilDiv(task.k, kStepK);
  for (int first = 0; first < task.columns; first += kColumns) {
    const std::uint8_t* panel =
        task.b + static_cast<std::size_t>(first / kColumns) * PanelBytes(task.k);
    for (int r = 0; r < task.rows; ++r) {
      const std::uint8_t* row = task.a +
                                static_cast<std::size_t>(r / kTileRowCount) * TileBytes(task.k) +
                                r % kTileRowCount * kStepK;
      std::int32_t sums[kColumns] = {};
      for (int step = 0; step < steps; ++step) {
        for (int i = 0; i < kStepK; ++i) {
          const auto x = static_cast<std::int8_t>(row[step * kStepBytes + i]);
          const std::uint8_t* codes = panel + step * kStepBytes + i / 4 * 64 + i % 4;
          for (int c = 0; c < kColumns; ++c) sums[c] += x * static_cast<std::int8_t>(codes[4 * c]);
        }
      }
      StoreRow(sums, EndOf(panel, task.k).scales, task.row_scales[r], task.columns - first,
               task.d + r * task.ldd + first);
    }
  }
}

constexpr IsaOps kOps = {TILEWRIGHT_TU, PackRows<0>, Multiply, FinishRows};

}  // namespace

void PackPanel(const float* columns, std::int64_t ld, int count, int k, std::uint8_t* panel) {
  __builtin_memset(panel, 0, PanelBytes(k));
  auto& end = *reinterpret_cast<PanelEnd*>(panel + TileBytes(k));
  for (int c = 0; c < count; ++c) {
    std::int32_t sum = 0;
    const auto put = [&](int first, const std::int8_t* codes, int in_step) {
      for (int i = 0; i < in_step; ++i) {
        const int at = first + i;
        sum += codes[i];
        panel[static_cast<std::size_t>(at / 4) * 64 + static_cast<std::size_t>(4 * c + at % 4)] =
            static_cast<std::uint8_t>(codes[i]);
      }
    };
    end.scales[c] = RoundByOneScale(columns + c * ld, k, put);
    end.sums[c] = sum;
  }
}

const IsaOps& OpsScalar() { return kOps; }

}  // namespace tilewright::gemm_w8a8
