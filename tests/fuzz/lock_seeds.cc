// Writes the lock files that lock_fuzz starts from into the folder given: none, two devices, a merge of two files,
// and words that have to be escaped.

#include <fstream>
#include <string>
#include <vector>

#include "tilewright/kernel_lock.h"

namespace {

using tilewright::KernelLock;
using tilewright::Pins;

void Pin(KernelLock& lock, const std::string& device, const std::string& problem,
         const std::string& kernel) {
  lock.by_device[device].by_problem[Pins::Key("gemm", problem)] = {kernel, "swizzle=0 splits=1"};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  KernelLock one, two;
  Pin(one, "cpu/AMD EPYC/avx512/2 threads", "m=1 n=576 k=576 pack_b=any", "gemm.f32_q4_1_f32.tn");
  Pin(one, "cuda/NVIDIA H200/sm_90", "m=8 n=576 k=576 pack_b=any", "gemm_hopper.bf16");
  Pin(two, "cpu/\"quoted\"\\ \t\xc3\xa9", "m=2", "gemm.\x01");
  std::vector<std::string> seeds = {KernelLock().Text(), one.Text(), two.Text(),
                                    one.Text() + two.Text() + "\r\n\n" + one.Text(),
                                    "<<<<<<< ours\n" + one.Text()};
  int count = 0;
  for (const std::string& seed : seeds) {
    std::ofstream(std::string(argv[1]) + "/seed" + std::to_string(count++), std::ios::binary)
        << seed;
  }
  return 0;
}
