#include "device/cuda/rates.h"

namespace tilewright::cuda {
namespace {

/// Operations of one multiprocessor in one cycle; a multiplication and an addition are two.
struct SmRates {
  int compute_capability;
  int f32;   // CUDA cores
  int bf16;  // tensor cores, dense, f32 sums
  int i8;    // tensor cores, dense, int32 sums
};

// By rising compute capability. From the vendor's architecture papers: published peak over
// multiprocessors and boost clock (A100 312 TFLOP/s, L40S 362, H100 989, B200 2250, RTX PRO 6000
// 504).
constexpr SmRates kSmRates[] = {
    {80, 128, 2048, 4096}, {86, 256, 1024, 2048},   {89, 256, 1024, 2048},
    {90, 256, 4096, 8192}, {100, 256, 8192, 16384}, {120, 256, 1024, 2048},
};

const SmRates* FindRates(int compute_capability) {
  const SmRates* found = nullptr;
  for (const SmRates& row : kSmRates) {
    const bool same_generation = row.compute_capability / 10 == compute_capability / 10;
    if (same_generation && row.compute_capability <= compute_capability) found = &row;
  }
  return found;
}

}  // namespace

DeviceRates BoardRates(const DeviceSpec& board, const BoardClocks& clocks) {
  DeviceRates rates{.read_gb_s = 0, .f32_gflop_s = 0, .i8_gop_s = 0};
  // Two transfers a cycle: memory clocks are reported as the half of the data rate.
  rates.read_gb_s = 2.0 * clocks.memory_khz * clocks.bus_bits / 8 * 1e-6;
  const SmRates* sm = FindRates(board.compute_capability);
  if (sm == nullptr) return rates;
  const double giga_cycles = static_cast<double>(board.sm_count) * clocks.sm_khz * 1e-6;
  // GeForce boards add f32 sums at half the rate of the professional ones with the same chip.
  const bool geforce = board.name.find("GeForce") != std::string::npos;
  rates.f32_gflop_s = giga_cycles * sm->f32;
  rates.bf16_gflop_s = giga_cycles * (geforce ? sm->bf16 / 2 : sm->bf16);
  rates.i8_gop_s = giga_cycles * sm->i8;
  return rates;
}

}  // namespace tilewright::cuda
