#pragma once

#include "device/cuda/launch.h"
#include "ops/attention/attention.h"
#include "tilewright/kernel_spec.h"

namespace tilewright::attention {

/// CTAs that share a row in a launch of an attention_split kernel: one for each split that a row
/// may reach into; or 1, where rows alone keep the multiprocessors of the device busy or the
/// partial results would take more than 16 MiB. The bits of a row do not depend on it.
int SplitsOf(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// Of that launch: partial results and counters; none where a CTA computes whole rows.
WorkspaceSize SplitWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// The launch of an attention_split kernel for arguments that DescOf takes. `spec` passed the
/// family's check; pointers are the device's, those of `workspace` too: as large as SplitWorkspace
/// says. Refused are other types than the spec's, another head dimension, elements of a row of q or
/// out that are not adjacent, and an address that is no multiple of its element.
cuda::LaunchResult AttentionSplitLaunch(const KernelSpec& spec, const Args& args,
                                        const DeviceSpec& device, const Workspace& workspace);

/// CTAs that share a row in a launch of an attention_decode kernel: as many as keep every
/// multiprocessor of the device busy, and no more than the context has rounds for.
int DecodeSplitsOf(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// Of that launch, as SplitWorkspace.
WorkspaceSize DecodeWorkspace(const KernelSpec& spec, const Desc& desc, const DeviceSpec& device);

/// As AttentionSplitLaunch, for an attention_decode kernel, with DecodeWorkspace.
cuda::LaunchResult AttentionDecodeLaunch(const KernelSpec& spec, const Args& args,
                                         const DeviceSpec& device, const Workspace& workspace);

/// The same for an attention_mma kernel, which needs no workspace; also refused are more query
/// heads of a key and value head than the tile has vectors.
cuda::LaunchResult AttentionMmaLaunch(const KernelSpec& spec, const Args& args);

/// The same for an attention_simt kernel, which takes any head dimension up to
/// cuda::kMaxAttentionHeadDim and needs no workspace.
cuda::LaunchResult AttentionSimtLaunch(const KernelSpec& spec, const Args& args);

/// The same for an attention_hopper kernel, whose CTAs stay: at most one for each multiprocessor of
/// the device. Also refused is a scale that is not positive. Where the copy engine cannot address
/// the caches, or pages are not whole boxes of 64 positions, a warp of each CTA copies them, slowly.
cuda::LaunchResult AttentionHopperLaunch(const KernelSpec& spec, const Args& args,
                                         const DeviceSpec& device);

}  // namespace tilewright::attention
