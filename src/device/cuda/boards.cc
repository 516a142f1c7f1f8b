#include "device/cuda/boards.h"

#include "device/cuda/rates.h"

namespace tilewright::cuda {
namespace {

struct Board {
  const char* name;
  int compute_capability, sm_count;
  int smem_kib;  // opt-in shared memory of a CTA
  int l2_mib;
  BoardClocks clocks;
};

// From the vendor's data sheets and programming guide: multiprocessors, L2, boost clock, half of
// the memory's data rate, bus.
constexpr Board kBoards[] = {
    {"NVIDIA A100-SXM4-80GB", 80, 108, 163, 40, {1'410'000, 1'593'000, 5120}},
    {"NVIDIA A30", 80, 56, 163, 24, {1'440'000, 1'215'000, 3072}},
    {"NVIDIA GeForce RTX 3090", 86, 82, 99, 6, {1'695'000, 9'751'000, 384}},
    {"NVIDIA GeForce RTX 4090", 89, 128, 99, 72, {2'520'000, 10'501'000, 384}},
    {"NVIDIA L4", 89, 58, 99, 48, {2'040'000, 6'251'000, 192}},
    {"NVIDIA H200", 90, 132, 227, 60, {1'980'000, 3'201'000, 6144}},
    {"NVIDIA H100 PCIe", 90, 114, 227, 50, {1'755'000, 1'593'000, 5120}},
    {"NVIDIA B200", 100, 148, 227, 126, {1'965'000, 3'996'000, 8192}},
    {"NVIDIA GeForce RTX 5090", 120, 170, 99, 96, {2'407'000, 14'001'000, 512}},
    {"NVIDIA GeForce RTX 5060 Ti", 120, 36, 99, 32, {2'572'000, 14'001'000, 128}},
};

}  // namespace

std::vector<DeviceSpec> TypicalBoards() {
  std::vector<DeviceSpec> specs;
  for (const Board& board : kBoards) {
    DeviceSpec spec;
    spec.kind = DeviceKind::kCuda;
    spec.name = board.name;
    spec.compute_capability = board.compute_capability;
    spec.sm_count = board.sm_count;
    spec.smem_bytes = std::int64_t{board.smem_kib} << 10;
    spec.l2_bytes = spec.llc_bytes = std::int64_t{board.l2_mib} << 20;
    static_cast<DeviceRates&>(spec) = BoardRates(spec, board.clocks);
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace tilewright::cuda
