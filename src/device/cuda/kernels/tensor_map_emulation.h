#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "core/block_format.h"
#include "device/cuda/kernels/hopper_emulation.h"
#include "device/cuda/launch.h"

// For tests only: tensor maps of the emulated copy engine. Include it before any .cuh.

namespace tw::emulation {

/// A MapEncoder: what the driver would make of a matrix, for hopper_emulation.h.
inline tilewright::Status EncodeMap(const tilewright::cuda::TensorMapDesc& desc,
                                    std::span<std::byte, tilewright::cuda::kTensorMapBytes> out) {
  const auto bytes = static_cast<int>(tilewright::BytesOf(desc.type, 1));
  const HostTensorMap map{reinterpret_cast<u8*>(desc.address),
                          {static_cast<i64>(desc.dims[0]), static_cast<i64>(desc.dims[1])},
                          static_cast<i64>(desc.strides[0]) / bytes,
                          {static_cast<int>(desc.box[0]), static_cast<int>(desc.box[1])},
                          bytes,
                          desc.swizzled};
  static_assert(sizeof map <= tilewright::cuda::kTensorMapBytes);
  std::memcpy(out.data(), &map, sizeof map);
  return {};
}

}  // namespace tw::emulation
