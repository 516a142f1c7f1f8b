#pragma once

#include "engine/compiled/launch_cost.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Predicted microseconds of a product on tiles of tensor cores (gemm_mma, gemm_hopper) and of CUDA
/// cores (gemm_simt), and of a few rows times a matrix (gemv_bf16, gemv_q; gemv_stream; gemv_int8;
/// gemm_q; gemm_qw; gemm_qr).
double EstimateMma(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateHopper(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateSimt(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateGemv(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateStream(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateInt8(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateGemmQ(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateGemmQw(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);
double EstimateGemmQr(const KernelSpec& spec, const GemmDesc& desc, const DeviceSpec& device);

}  // namespace tilewright
