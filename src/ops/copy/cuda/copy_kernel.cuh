#pragma once

#include "device/cuda/kernels/block_values.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/types.cuh"
#include "device/cuda/kernels/vector.cuh"
#include "tilewright/cuda/copy_params.h"

// Copies: of bytes, from one float type to another, and of blocks to floats.

namespace tw {

using tilewright::cuda::CopyOperand;
using tilewright::cuda::CopyParams;

/// The row and the first unit of an item.
struct CopyItem {
  u32 i0, i1, i2;
  i64 unit;

  TW_DEVICE static CopyItem Of(const CopyParams& p, u32 item, int units) {
    const u32 row = item / p.row_items, outer = row / p.extents[0];
    return {row % p.extents[0], outer % p.extents[1], outer / p.extents[1],
            static_cast<i64>(item % p.row_items) * units};
  }
  /// In units.
  TW_DEVICE i64 RowIn(const CopyOperand& x) const {
    return i0 * x.row[0] + i1 * x.row[1] + i2 * x.row[2];
  }
  TW_DEVICE i64 In(const CopyOperand& x) const { return RowIn(x) + unit * x.col; }
};

/// Types: src and dst, not u8.
template <Type kTypeA, Type kTypeD>
struct Convert {
  static constexpr bool kBlocks = kIsBlock<kTypeA>;

  const CopyParams& p;

  TW_DEVICE void Eight(const CopyItem& item, float (&x)[8]) const {
    if constexpr (kBlocks) {
      using Values = BlockValues<kTypeA>;
      const i64 block = item.RowIn(p.from) / Values::kBlock + item.unit / Values::kBlock;
      Values::Eight(static_cast<const u8*>(p.src) + block * Values::kBytes,
                    static_cast<int>(item.unit % Values::kBlock) / 8, x);
    } else {
      LoadPack<kTypeA, 8>(p.src, item.In(p.from), x);
    }
  }

  TW_DEVICE void One(i64 from, i64 to) const {
    if constexpr (!kBlocks) {
      StoreElement<kTypeD>(p.dst, to, LoadElement<kTypeA>(p.src, from));
    }
  }

  TW_DEVICE void Run(u32 number) const {
    if (number >= p.items) return;
    const int units = tilewright::cuda::CopyUnits(kBlocks, false, p.wide);
    const CopyItem item = CopyItem::Of(p, number, units);
    const i64 from = item.In(p.from), to = item.In(p.to);
    if (units == 1) {
      One(from, to);
    } else if (kBlocks || item.unit + 8 <= p.cols) {
      float x[8];
      Eight(item, x);
      if (p.wide != 0) {
        StorePack<kTypeD, 8>(p.dst, to, x);
        return;
      }
      TW_UNROLL
      for (int i = 0; i < 8; ++i) StoreElement<kTypeD>(p.dst, to + i * p.to.col, x[i]);
    } else {
      for (int i = 0; item.unit + i < p.cols; ++i) One(from + i, to + i);
    }
  }
};

/// Units of some bytes each, as they are.
template <int kWarps>
struct CopyBytes {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kItems = tilewright::cuda::CopyItemsOfThread(true);

  const CopyParams& p;

  template <class Unit>
  TW_DEVICE void Units(u32 first) const {
    Unit units[kItems];
    i64 to[kItems];
    // All loads before the first store: the compiler must take a store for one to what is read
    // next.
    TW_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const u32 number = first + static_cast<u32>(i * kThreads);
      to[i] = -1;
      if (number >= p.items) continue;
      const CopyItem item = CopyItem::Of(p, number, 1);
      units[i] = static_cast<const Unit*>(p.src)[item.In(p.from)];
      to[i] = item.In(p.to);
    }
    TW_UNROLL
    for (int i = 0; i < kItems; ++i) {
      if (to[i] >= 0) static_cast<Unit*>(p.dst)[to[i]] = units[i];
    }
  }

  /// `first`: of the thread; the others follow a CTA's threads apart.
  TW_DEVICE void Run(u32 first) const {
    switch (p.unit_bytes) {
      case 16:
        return Units<U32x4>(first);
      case 8:
        return Units<U32x2>(first);
      case 4:
        return Units<u32>(first);
      case 2:
        return Units<u16>(first);
      default:
        return Units<u8>(first);
    }
  }
};

}  // namespace tw
