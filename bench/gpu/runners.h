#pragma once

#include <string_view>

#include "gpu/harness.h"
#include "tilewright/kernel_family.h"

namespace tilewright::gpu_check {

/// Every family of the library.
Result<KernelFamilies> CheckedFamilies();

/// The runner of a family, or nullptr.
RunFamily FindRunner(std::string_view family);

void RunGemmMma(const Job& job, KernelReport& report);
void RunGemmHopper(const Job& job, KernelReport& report);
void RunGemmQ(const Job& job, KernelReport& report);
void RunGemvBf16(const Job& job, KernelReport& report);
void RunGemvQuantised(const Job& job, KernelReport& report);
void RunGemvStream(const Job& job, KernelReport& report);
void RunGemvInt8(const Job& job, KernelReport& report);
void RunRmsNorm(const Job& job, KernelReport& report);
void RunRopeKv(const Job& job, KernelReport& report);

}  // namespace tilewright::gpu_check
