#pragma once

#include "device/cuda/kernels/types.cuh"
#include "ops/gemm/cuda/gemm_qw/scaled.cuh"
#include "ops/gemm/cuda/gemm_qw/scaled_q6_k.cuh"
#include "tilewright/cuda/gemm_qw_params.h"

// Rows of W in shared memory, as the copy engine has brought them, and what lanes unpack of them.

namespace tw {

/// Boxes of W of one k-tile each. `F`: Codes of its type; of k-tile `k_tile` of `k_tiles`
///   UnitOf   where its box begins, in elements of the map
///   SkipOf   bytes of the box in front of the k-tile
template <class F>
struct KTileBoxes {
  static constexpr int kTileBytes = tilewright::cuda::GemmQwTileBytes(F::kBytes, F::kBlock);
  static constexpr int kLineBytes = tilewright::cuda::GemmQwLineBytes(F::kBytes, F::kBlock);
  static constexpr int kUnitBytes = tilewright::cuda::GemmQwUnitBytes(F::kBytes);
  static constexpr bool kWhole = kTileBytes == kLineBytes;
  TW_DEVICE static int BeginOf(int k_tile, int k_tiles) {
    return tilewright::cuda::GemmQwBoxBegin(kTileBytes, kLineBytes, k_tile, k_tiles);
  }
  TW_DEVICE static int UnitOf(int k_tile, int k_tiles) {
    return kWhole ? k_tile * (kTileBytes / kUnitBytes) : BeginOf(k_tile, k_tiles) / kUnitBytes;
  }
  TW_DEVICE static int SkipOf(int k_tile, int k_tiles) {
    return kWhole ? 0 : k_tile * kTileBytes - BeginOf(k_tile, k_tiles);
  }
};

/// What a lane of a warp unpacks of a part of a k-tile: rows g and g + 8 of 16, kLineBytes from each to the next,
/// as the A of mma.cuh and wgmma. All lanes call each of its functions.
template <Type kType, int kParts, int kLineBytes>
struct ScaledRows {
  using Line = ScaledLine<kType, kParts>;
  using Part = ScaledPart<kType, 8 / kParts>;
  using Raw = typename Part::Raw;
  Line first;  // row g
  Part parts[2];
  TW_DEVICE Line LineOf(int i) const { return first.Behind(8 * i * kLineBytes); }
  /// `fits`: as ScaledPart::Plain has it.
  TW_DEVICE void SetPlain(int lane, bool& fits) {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) parts[i] = Part::Plain(LineOf(i), lane % 4, fits);
  }
  TW_DEVICE void SetDivided(int lane, PowerOfTwo (&powers)[2]) {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) parts[i] = Part::Divided(LineOf(i), lane % 4, powers[i]);
  }
  /// Of sub-block 0.
  TW_DEVICE void LoadFirst(int lane, Raw (&raw)[2]) const {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) raw[i] = parts[i].template Load<0>(LineOf(i), lane);
  }
  /// Of sub-block kJ; `before`: of the one in front of it.
  template <int kJ>
  TW_DEVICE void LoadNext(int lane, const Raw (&before)[2], Raw (&raw)[2]) const {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) raw[i] = parts[i].template Next<kJ>(LineOf(i), lane, before[i]);
  }
  /// Sub-block kJ, 16 k in each a[h].
  template <int kJ>
  TW_DEVICE static void WordsOfA(const Raw (&raw)[2], u32 (&a)[2][4]) {
    TW_UNROLL
    for (int i = 0; i < 2; ++i) {
      u32 pairs[2][2];
      Part::template Values<kJ>(raw[i], pairs);
      TW_UNROLL
      for (int h = 0; h < 2; ++h) {
        a[h][i] = pairs[h][0];
        a[h][i + 2] = pairs[h][1];
      }
    }
  }
};

}  // namespace tw
