#pragma once

#include "device/cuda/kernels/hopper_emulation.h"

// For tests only: wgmma_registers.cuh, copies of four dimensions on
// the CPU, beside hopper_emulation.h.

namespace tw {

/// What a tensor map says of a tensor of four dimensions.
struct HostTensorMap4D {
  u8* base = nullptr;
  i64 size[4] = {};
  i64 stride[3] = {};  // bytes, of dimensions 1 and up
  int box[4] = {};
};

/// Boxes of 64 elements of 16 bits in dimension 0; zeros outside of the tensor.
inline void TmaLoad4D(u32 smem, const void* map, u32 barrier, int x, int y, int z, int w) {
  const HostTensorMap4D& tensor = *static_cast<const HostTensorMap4D*>(map);
  const auto& box = tensor.box;
  if (!emulation::Legal(smem, 1024) || box[0] != 64 || box[1] != 1 || box[3] != 1) {
    emulation::fault = true;
    return;
  }
  const auto within = [&](i64 at, int dimension) { return at >= 0 && at < tensor.size[dimension]; };
  for (int line = 0; line < box[2]; ++line) {
    for (int i = 0; i < 64; ++i) {
      u8* to =
          emulation::Shared(emulation::Swizzled(smem + static_cast<u32>(line * 128 + i * 2)), 2);
      const bool inside = within(x + i, 0) && within(y, 1) && within(z + line, 2) && within(w, 3);
      if (inside) {
        std::memcpy(to,
                    tensor.base + (x + i) * 2 + y * tensor.stride[0] +
                        (z + line) * tensor.stride[1] + w * tensor.stride[2],
                    2);
      } else {
        std::memset(to, 0, 2);
      }
    }
  }
  emulation::Progress(barrier, 0, -128 * box[2]);
}

template <int kPending, int kCount>
void WgmmaWaitFor(float (&)[kCount]) {}

template <Type kType, int kN, int kAdd>
void WgmmaShared(float (&d)[kN / 2], u64 a, u64 b) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  for (int i = 0; i < kN / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
    const int col = i / 4 * 8 + thread % 4 * 2 + i % 2;
    float sum = kAdd != 0 ? d[i] : 0.0f;
    for (int k = 0; k < 64; ++k) {
      // Each instruction has descriptors of its own, 16 of k further.
      const u64 step = static_cast<u64>(k / 16) * 2;
      sum += WgmmaElement<kType>(a + step, 0, row, k % 16) *
             WgmmaElement<kType>(b + step, 0, col, k % 16);
    }
    d[i] = sum;
  }
}

template <Type kType, int kN, int kTransB = 1>
void WgmmaRegisters(float (&d)[kN / 2], const u32* a, u64 b) {
  const emulation::Shown mine{.address = 0, .a = {a[0], a[1], a[2], a[3]}, .b = {}};
  const emulation::Shown* lanes = emulation::Exchange(mine);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < kN / 2; ++i) {
    const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
    float sum = d[i];
    for (int k = 0; k < 16; ++k) {
      const u32 word = lanes[lane / 4 * 4 + k % 8 / 2].a[i / 2 % 2 + k / 8 * 2];
      const float left = k % 2 == 0 ? LowToF32<kType>(word) : HighToF32<kType>(word);
      sum += left * WgmmaElement<kType>(b, kTransB, col, k);
    }
    d[i] = sum;
  }
}

inline u64 WgmmaPlainDescriptor(u32 smem, u32 leading_bytes, u32 stride_bytes) {
  return WgmmaDescriptor(smem, leading_bytes, stride_bytes) & ~(static_cast<u64>(3) << 62);
}
template <int kCount>
void WgmmaWaitForAll(float (&)[kCount]) {}
template <int kN>
void WgmmaRegistersKMajor(float (&d)[kN / 2], const u32 (&a)[4], u64 b) {
  WgmmaRegisters<Type::kF16, kN, 0>(d, a, b);
}

}  // namespace tw
