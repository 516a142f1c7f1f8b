#pragma once

#include "device/cuda/kernels/async_copy.cuh"
#include "device/cuda/kernels/dependent_launch.cuh"
#include "device/cuda/kernels/numeric.cuh"
#include "device/cuda/kernels/shared_memory.cuh"
#include "device/cuda/kernels/tanh.cuh"
#include "device/cuda/kernels/types.cuh"
#include "tilewright/cuda/attention_params.h"

// Tiles of a KV cache in shared memory: where the positions of a sequence lie, contiguous or in
// pages, and copies of some of them.

namespace tw {

using tilewright::cuda::AttentionParams;

/// Byte offset of the 16-byte chunk `chunk` of line `line` in a tile of lines of `chunks` chunks, a
/// multiple of 8. Chunks are permuted so that eight consecutive lines have one chunk number in
/// eight different groups of four banks: neither ldmatrix nor lanes that each read their own line
/// meet a bank conflict.
TW_DEVICE constexpr u32 KvOffset(int line, int chunk, int chunks) {
  return static_cast<u32>(line * chunks + (chunk ^ (line & 7))) * 16;
}

/// The positions that a row sees: `first` to `limit` - 1.
struct SeenRange {
  int first, limit;
};
TW_DEVICE SeenRange SeenBy(int position, int window) {
  return {window > 0 && position >= window ? position - window + 1 : 0, position + 1};
}

/// One key and value head of one sequence.
struct SequenceCache {
  const int* table;  ///< its physical pages; null: contiguous
  i64 start;         ///< elements before the head's first in a page; of the sequence if contiguous
  i64 position_stride, page_stride;
  int page_size, physical_pages;
  u32 page_inverse;

  /// What 1 / page_size is to Find, where it is needed before the slot is known.
  static TW_DEVICE u32 PageInverse(const AttentionParams& p) {
    return p.page_size > 0 ? 0xffffffffu / static_cast<u32>(p.page_size) : 0u;
  }
  TW_DEVICE SequenceCache(const AttentionParams& p, int slot, int kv_head)
      : SequenceCache(p, slot, kv_head, PageInverse(p)) {}
  TW_DEVICE SequenceCache(const AttentionParams& p, int slot, int kv_head, u32 inverse)
      : table(p.pages != nullptr ? p.pages + slot * p.pages_slot : nullptr),
        start(kv_head * p.kv_head + (p.pages != nullptr ? 0 : slot * p.kv_page)),
        position_stride(p.kv_position),
        page_stride(p.kv_page),
        page_size(p.page_size),
        physical_pages(p.physical_pages),
        page_inverse(inverse) {}

  /// The page of a position by its number in the sequence.
  TW_DEVICE int LogicalPage(int position) const {
    // A product with the inverse is at most one too small: positions are below 2^31.
    const int page = static_cast<int>(u64{static_cast<u32>(position)} * page_inverse >> 32);
    return position - page * page_size >= page_size ? page + 1 : page;
  }
  /// Sets `offset`, in elements, to where a position lies; false if its page does not exist.
  TW_DEVICE bool Find(int position, i64& offset) const {
    if (table == nullptr) return FindIn(0, position, offset);
    return FindIn(table[LogicalPage(position)], position, offset);
  }
  /// The same with the physical page of the position; of any number if the cache is contiguous.
  TW_DEVICE bool FindIn(int page, int position, i64& offset) const {
    if (table == nullptr) {
      offset = start + position * position_stride;
      return true;
    }
    const int row = position - LogicalPage(position) * page_size;
    offset = start + page * page_stride + row * position_stride;
    return page >= 0 && page < physical_pages;
  }
};

/// [kPositions] lines of a head, in 16-byte chunks by KvOffset, copied by kThreads threads.
template <Type kType, int kHeadDim, int kPositions, int kThreads>
struct KvTile {
  static constexpr int kElement = FloatBytes<kType>();
  static constexpr int kChunks = kHeadDim * kElement / 16;
  static constexpr int kBytes = kPositions * kChunks * 16;
  static constexpr int kStep = kThreads / kChunks;  // lines between a thread's chunks
  static_assert(kChunks % 8 == 0 && kThreads % kChunks == 0 && kPositions % kStep == 0, "tile");

  /// Whether 16-byte copies of both caches are aligned.
  static TW_DEVICE bool Aligned(const AttentionParams& p) {
    const u64 strides = static_cast<u64>(p.kv_head | p.kv_position | p.kv_page) * kElement;
    return ((reinterpret_cast<u64>(p.k_cache) | reinterpret_cast<u64>(p.v_cache) | strides) % 16) ==
           0;
  }

  /// A chunk at any address of an element.
  static TW_DEVICE void CopyElements(u32 smem, const u8* from) {
    u32 word[4];
    TW_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kElement == 4) {
        word[i] = reinterpret_cast<const u32*>(from)[i];
      } else {
        const u16* halves = reinterpret_cast<const u16*>(from);
        word[i] = halves[2 * i] | static_cast<u32>(halves[2 * i + 1]) << 16;
      }
    }
    StoreShared16(smem, word[0], word[1], word[2], word[3]);
  }

  /// Starts the copy of positions `from` and up to `smem`: zeros for those that are not seen, whose
  /// pages nobody looks up, and for those whose pages do not exist zeros too, or NaN: of keys, whose
  /// scores are then NaN for the rows that see them and for no other.
  template <bool kNanIfMissing>
  static TW_DEVICE void Copy(u32 smem, const void* cache, const SequenceCache& sequence, int from,
                             const SeenRange& seen, bool aligned) {
    const u8* base = static_cast<const u8*>(cache);
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int first_line = static_cast<int>(threadIdx.x) / kChunks;
    constexpr int kLines = kPositions / kStep;
    constexpr int kAtOnce = kLines < 4 ? kLines : 4;  // look-ups of pages under way
    static_assert(kLines % kAtOnce == 0, "whole rounds");
    if (aligned) {
      TW_NO_UNROLL
      for (int i = 0; i < kLines; i += kAtOnce) {
        TW_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          CopyChunk<true, kNanIfMissing>(smem, base, sequence, from, first_line + (i + j) * kStep,
                                         chunk, seen);
        }
      }
    } else {
      TW_NO_UNROLL
      for (int i = 0; i < kLines; ++i) {
        CopyChunk<false, kNanIfMissing>(smem, base, sequence, from, first_line + i * kStep, chunk,
                                        seen);
      }
    }
  }
  template <bool kAligned, bool kNanIfMissing>
  static TW_DEVICE void CopyChunk(u32 smem, const u8* base, const SequenceCache& sequence, int from,
                                  int line, int chunk, const SeenRange& seen) {
    const u32 to = smem + KvOffset(line, chunk, kChunks);
    const int position = from + line;
    i64 offset = 0;
    if (position < seen.first || position >= seen.limit) {
      StoreShared16(to, 0, 0, 0, 0);
    } else if (!sequence.Find(position, offset)) {
      constexpr u32 kMissing = kNanIfMissing ? ~0u : 0u;
      StoreShared16(to, kMissing, kMissing, kMissing, kMissing);
    } else if constexpr (kAligned) {
      CpAsync16(to, base + offset * kElement + 16 * chunk);
    } else {
      CopyElements(to, base + offset * kElement + 16 * chunk);
    }
  }

  /// The elements of 16 bytes.
  static constexpr int kPack = 16 / kElement;
  static TW_DEVICE void Unpack(const u32 (&words)[4], float* out) {
    TW_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (kElement == 4) {
        out[i] = FloatOf(words[i]);
      } else {
        out[2 * i] = LowToF32<kType>(words[i]);
        out[2 * i + 1] = HighToF32<kType>(words[i]);
      }
    }
  }
};

/// The larger; the other one if one is NaN.
TW_DEVICE float LargerOf(float a, float b) {
#if defined(__CUDACC__)
  return fmaxf(a, b);
#else
  return __builtin_fmaxf(a, b);
#endif
}

/// The exponent of a position that is not seen.
TW_DEVICE float MinusInfinity() { return FloatOf(0xff800000u); }

/// Scores are multiplied by it: powers of two are cheaper than those of e.
inline constexpr float kLog2E = 1.44269504f;

/// What makes exponents of scores: of products of queries and keys; or of what CapScores leaves,
/// which is in units of the soft cap.
TW_DEVICE float ExponentScale(const AttentionParams& p) {
  return (p.softcap > 0.0f ? p.softcap : p.scale) * kLog2E;
}

/// Where there is a soft cap, products of queries and keys become tanh(scaled product / cap). It
/// comes before what a row does not see is left out: a capped minus infinity would be a number.
template <int kCount>
TW_DEVICE void CapScores(const AttentionParams& p, float (&s)[kCount]) {
  if (p.softcap > 0.0f) {
    TW_UNROLL
    for (int i = 0; i < kCount; ++i) s[i] = TanhOf(s[i] * p.capped_scale);
  }
}

/// The same for products with queries that were scaled before: the factor of those queries, and
/// exponents from the products.
TW_DEVICE float QueryScale(const AttentionParams& p) {
  return p.softcap > 0.0f ? p.capped_scale : p.scale * kLog2E;
}
TW_DEVICE float ExponentOf(const AttentionParams& p, float product) {
  return p.softcap > 0.0f ? TanhOf(product) * (p.softcap * kLog2E) : product;
}

}  // namespace tw
