#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "device/cuda/launch.h"
#include "tilewright/device_spec.h"
#include "tilewright/gemm.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/operation.h"

namespace tilewright {

/// Where a kernel says that a CTA waited too long for another one.
struct ChainAlarm {
  unsigned int* word = nullptr;  ///< in memory that device and host see; becomes 1
  std::uint64_t wait_ns = 0;     ///< after which a wait is given up
};

/// Why a kernel of gemm_chain cannot compute these products one after the other: one to four, each as gemm_qw has it,
/// of at most tile_m rows, the same number in all; with bf16 results, and constant weights with at least a k-tile for
/// every multiprocessor. x of each but the first is y of the one in front of it, and may be normalised:
/// Prologue::kRmsNorm with weights of f32 at a multiple of 16 bytes. y overlaps neither x of its product
/// nor, unless it is the same, its addend. Looks at addresses, not behind them. nullopt when it can.
std::optional<Rejection> CheckChain(const KernelSpec& spec, std::span<const GemmArgs> products,
                                    const DeviceSpec& device);

/// Memory in which the CTAs hand things to each other: `barriers` is zero before a launch and after it.
WorkspaceSize GemmChainWorkspace(const KernelSpec& spec, std::span<const GemmArgs> products,
                                 const DeviceSpec& device);

/// The launch, which is cooperative, or CheckChain's reason. A launch whose CTAs have waited for longer than the alarm
/// allows ends with wrong results and leaves `barriers` as they must not be.
cuda::LaunchResult GemmChainLaunch(const KernelSpec& spec, std::span<const GemmArgs> products,
                                   const DeviceSpec& device, const Workspace& workspace,
                                   const ChainAlarm& alarm);

}  // namespace tilewright
