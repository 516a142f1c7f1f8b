#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/mbarrier.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/warp.cuh"
#include "ops/gemm/cuda/gemv/int8_codes.cuh"
#include "tilewright/cuda/gemv_params.h"

// The ring through which a warp of gemv_int8 reads its rows of W: kRows rows at a time, in segments of
// kSegmentValues, kStages - 1 of them ahead of use, across the ends of rows. Every lane copies by
// cp.async, from rows anywhere; or (kBulk) one lane starts a bulk copy for each row, which count at an
// mbarrier for each stage: whole segments at multiples of 16 bytes only. Lines are marked to leave L2
// first: what is read once a token pushes out neither activations nor the KV cache.

namespace tw {

template <Type kTypeW, bool kGated, int kRows, int kWarps, int kSegmentValues, int kStages,
          bool kBulk>
struct GemvInt8Ring {
  using F = Int8Codes<kTypeW>;
  static constexpr int kColumns = kGated ? kRows / 2 : kRows;  // of y that a warp makes at a time
  static constexpr int kAlign = tilewright::cuda::GemvRowAlignment(F::kBytes);
  static constexpr int kSegmentBytes = kSegmentValues / F::kBlock * F::kBytes;
  static_assert(kSegmentBytes % 16 == 0, "all segments of a row begin at the same byte of 16");
  static constexpr int kRowBytes =
      tilewright::cuda::GemvInt8RowBytes(kSegmentBytes, kBulk ? 16 : kAlign);
  static constexpr int kStageBytes = kRows * kRowBytes;
  static constexpr int kLast = (kStages - 1) * kStageBytes;

  const tilewright::cuda::GemvParams& p;
  u8* ring;    // shared: of this warp, [kStages][kRows][kRowBytes]
  u32 landed;  // kBulk, shared: of this warp, an mbarrier for each stage
  u64 policy;  // of lines that are read once
  int lane;
  int segments, row_bytes;  // of a row
  int end;                  // of the units of this CTA
  bool whole;               // rows are whole segments at multiples of 16 bytes

  /// Where the copies are: segment `segment` of the rows of unit `unit`, to the stage at byte `to`.
  struct Cursor {
    int unit, segment, to;
    u32 landed;             // kBulk: the mbarrier of the stage
    const u8* from[kRows];  // of this lane, in each row
  };
  /// The stage that is read next.
  struct Stage {
    int at;      // bytes from the ring to it
    u32 landed;  // kBulk: its mbarrier
    u32 parity;  // of the phase in which it is filled
  };

  /// Row `r` of W of a unit.
  TW_DEVICE int RowOf(int unit, int r) const {
    if constexpr (kGated) {
      constexpr int kBlock = tilewright::cuda::kGemvGatedBlock;
      const int column = unit * kColumns + r % kColumns;
      return column / kBlock * (2 * kBlock) + r / kColumns * kBlock + column % kBlock;
    }
    return unit * kRows + r;
  }
  TW_DEVICE const u8* AddressOf(int row) const {
    return static_cast<const u8*>(p.w) + static_cast<i64>(row) * p.w_row_bytes;
  }
  TW_DEVICE static int Low(const u8* address) {
    return kAlign == 16 ? 0
                        : static_cast<int>(static_cast<u32>(reinterpret_cast<u64>(address)) % 16);
  }

  /// Row `r` of W of a unit; rows that W does not have are its last one.
  TW_DEVICE const u8* AddressIn(int unit, int r) const {
    const int row = RowOf(unit, r);
    return AddressOf(row < p.n ? row : p.n - 1);
  }
  TW_DEVICE void SetRows(Cursor& at) const {
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) at.from[r] = AddressIn(at.unit, r) + 16 * lane;
  }
  TW_DEVICE static int NextStage(int stage) { return stage == kLast ? 0 : stage + kStageBytes; }

  /// Starts the copy of a segment, if there still is one, and moves on.
  TW_DEVICE void Copy(Cursor& at) const {
    if (at.unit < end) {
      if constexpr (kBulk) {
        CopyBulk(at);
      } else if (whole) {
        // Not SmemAddress(ring) + at.to: see CpAsync16Once.
        const u32 to = SmemAddress(ring + at.to) + static_cast<u32>(16 * lane);
        TW_UNROLL
        for (int r = 0; r < kRows; ++r) {
          TW_UNROLL
          for (int c = 0; c < kSegmentBytes / 16; c += 32) {
            if (16 * (c + 32) <= kSegmentBytes || 16 * (c + lane) < kSegmentBytes)
              CpAsync16Once(to + static_cast<u32>(r * kRowBytes + 16 * c), at.from[r] + 16 * c,
                            policy);
          }
          at.from[r] += kSegmentBytes;
        }
      } else if (reinterpret_cast<u64>(p.w) % 16 == 0) {
        TW_UNROLL
        for (int r = 0; r < kRows; ++r)
          CopyEnd(at.from[r], at.segment * kSegmentBytes, ring + (at.to + r * kRowBytes));
      } else {
        TW_NO_UNROLL
        for (int r = 0; r < kRows; ++r)
          CopyRow(AddressIn(at.unit, r), at.segment * kSegmentBytes,
                  ring + (at.to + r * kRowBytes));
      }
    }
    if constexpr (kBulk)
      at.landed = at.to == kLast ? landed : at.landed + 8;
    else
      CpAsyncCommit();
    at.to = NextStage(at.to);
    if (++at.segment < segments) return;
    at.segment = 0;
    at.unit += kWarps;
    SetRows(at);
  }

  /// Lane 0: the segment of all rows.
  TW_DEVICE void CopyBulk(Cursor& at) const {
    if (lane != 0) return;
    MbarrierArriveExpectTx(at.landed, kRows * kSegmentBytes);
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BulkCopyOnce(SmemAddress(ring) + static_cast<u32>(at.to + r * kRowBytes), at.from[r],
                   kSegmentBytes, at.landed, policy);
      at.from[r] += kSegmentBytes;
    }
  }

  /// Chunks of 16 aligned bytes that hold bytes `first` .. of a row and end with the row. `from`: the
  /// row, 16 bytes a lane further; the matrix begins at a multiple of 16.
  TW_DEVICE void CopyEnd(const u8* from, int first, u8* to_row) const {
    constexpr int kChunks = (kSegmentBytes + 16 - kAlign + 15) / 16;
    const int skip = Low(from);
    from += first - skip;
    const u32 to = SmemAddress(to_row) + static_cast<u32>(16 * lane);
    const int segment_left = row_bytes - first < kSegmentBytes ? row_bytes - first : kSegmentBytes;
    const int row_left = row_bytes - first + skip - 16 * lane;
    TW_UNROLL
    for (int c = 0; c < kChunks; c += 32) {
      const int left = row_left - 16 * c;
      if (16 * (c + lane) < segment_left + skip)
        CpAsync16(to + static_cast<u32>(16 * c), from + 16 * c, left < 16 ? left : 16);
    }
  }

  /// The same of a matrix that begins anywhere; no byte outside of it is read.
  TW_DEVICE void CopyRow(const u8* row, int first, u8* to_row) const {
    constexpr int kChunks = (kSegmentBytes + 16 - kAlign + 15) / 16;
    const int skip = Low(row);
    const u8* from = row + (first - skip + 16 * lane);
    const u32 to = SmemAddress(to_row) + static_cast<u32>(16 * lane);
    TW_NO_UNROLL
    for (int c = 0; c < kChunks; c += 32, from += 512) {
      const int at = 16 * (c + lane) - skip;  // of the segment
      const int left = row_bytes - first - at;
      if (left <= 0 || at >= kSegmentBytes) continue;
      if (kAlign < 16 && from < static_cast<const u8*>(p.w)) {
        // The matrix begins within these 16 bytes.
        TW_NO_UNROLL
        for (int unit = -at; unit < 16; unit += 2) {
          *reinterpret_cast<u16*>(to_row + (at + skip + unit)) =
              static_cast<u16>(Load16Bits(from + unit));
        }
        continue;
      }
      CpAsync16(to + static_cast<u32>(16 * c), from, left < 16 ? left : 16);
    }
  }

  /// Starts the first copies, of unit `first` and following. All lanes call it.
  TW_DEVICE Cursor Start(int first) const {
    if constexpr (kBulk) {
      if (lane == 0) {
        TW_UNROLL
        for (int i = 0; i < kStages; ++i) MbarrierInit(landed + 8 * i, 1);
        FenceBarrierInit();
      }
      WarpBarrier();
    }
    Cursor at{first, 0, 0, landed, {}};
    SetRows(at);
    TW_NO_UNROLL
    for (int i = 0; i < kStages - 1; ++i) Copy(at);
    return at;
  }
  TW_DEVICE Stage FirstStage() const { return {0, landed, 0}; }

  /// Waits for a segment, if there is one in it, and starts the copy of another to the stage that was
  /// read before. All lanes call it.
  TW_DEVICE void Take(const Stage& stage, bool filled, Cursor& copied) const {
    if constexpr (kBulk) {
      if (filled) MbarrierWait(stage.landed, stage.parity);
    } else {
      CpAsyncWait<kStages - 2>();  // this lane's part of the segment has landed
    }
    WarpBarrier();  // all parts have, and all lanes have read the stage before
    Copy(copied);
  }
  TW_DEVICE void Advance(Stage& stage) const {
    if constexpr (kBulk) {
      stage.landed = stage.at == kLast ? landed : stage.landed + 8;
      stage.parity ^= stage.at == kLast ? 1u : 0u;
    }
    stage.at = NextStage(stage.at);
  }
  /// Bytes of 16 before the rows of a unit.
  TW_DEVICE void SkipsOf(int unit, int (&skips)[kRows]) const {
    TW_UNROLL
    for (int r = 0; r < kRows; ++r) skips[r] = kBulk ? 0 : Low(AddressIn(unit, r));
  }
};

}  // namespace tw
