#include "ops/gemm/cpu/int8/pack.h"

#include <algorithm>
#include <cstring>

#include "core/formats/formats.h"

namespace tilewright::gemm_int8 {
namespace {

/// Two halves of a vector of sixteen codes, four quads of consecutive k, the first in the low word.
struct Halves {
  explicit Halves(CodeVec codes) { std::memcpy(this, &codes, sizeof codes); }
  std::uint64_t low, high;
};

void PutQuad(std::uint8_t* line, int column, std::uint64_t quad) {
  const auto value = static_cast<std::uint32_t>(quad);
  std::memcpy(line + 4 * column, &value, sizeof value);
}
/// A quad of each of four lines.
void PutQuads(std::uint8_t* lines, int column, CodeVec quads) {
  const Halves halves(quads);
  PutQuad(lines, column, halves.low);
  PutQuad(lines + 64, column, halves.low >> 32);
  PutQuad(lines + 128, column, halves.high);
  PutQuad(lines + 192, column, halves.high >> 32);
}

/// As LoadCodes, in two loads: some formats store eight codes at a time, and a load of what two stores
/// wrote waits for both (q5_0 packed at 1.0 GB/s instead of 3).
CodeVec LoadByHalves(const std::uint8_t* p) {
  typedef std::uint64_t Pair __attribute__((vector_size(16)));
  Pair pair = {};
  for (int i = 0; i < 2; ++i) {
    std::uint64_t half;
    std::memcpy(&half, p + 8 * i, sizeof half);
    asm("" : "+r"(half));  // or the compiler makes one load of both
    pair[i] = half;
  }
  return reinterpret_cast<CodeVec>(pair);
}

/// Bit `kBit` of the codes of quad i, as bit i of every byte.
template <int kBit>
std::uint64_t BitsOfQuads(CodeVec first, CodeVec second) {
  constexpr CodeVec kPlaces = {1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8};
  constexpr std::uint8_t kMask = 1 << kBit;
  const auto one = [](CodeVec codes) -> CodeVec {
    return reinterpret_cast<CodeVec>((codes & kMask) != 0) & kPlaces;
  };
  const Halves halves(one(first) | one(second) << 4);
  const std::uint64_t both = halves.low | halves.high;
  return both | both >> 32;
}

/// The 32 codes of one column of a block.
template <int kBits>
void PackCodes(const std::uint8_t* codes, int column, std::uint8_t* out) {
  const auto load = kBits == 5 ? &LoadByHalves : &LoadCodes;
  const CodeVec first = load(codes), second = load(codes + 16);
  if constexpr (kBits == 8) {
    PutQuads(out, column, first);
    PutQuads(out + 256, column, second);
    return;
  }
  std::uint8_t* rest = out;
  if constexpr (kBits >= 4) {
    PutQuads(rest, column, (first & 15) | second << 4);
    rest += 256;
  }
  if constexpr (kBits == 6 || kBits < 4) {
    constexpr int kFrom = kBits == 6 ? 4 : 0;
    const Halves halves((first >> kFrom & 3) | (second >> kFrom & 3) << 4);
    PutQuad(rest, column, halves.low | halves.low >> 32 << 2);
    PutQuad(rest + 64, column, halves.high | halves.high >> 32 << 2);
    rest += 128;
  }
  if constexpr (kBits == 5 || kBits == 3)
    PutQuad(rest, column, BitsOfQuads<kBits - 1>(first, second));
}

/// Blocks of 32 k of a panel that are packed for one column after the other, so that what they become,
/// of which each column writes a part of every cache line, stays in the L1 cache: at most 18 KiB. Whole
/// columns of 14336 k packed q4_0 at 2.5 GB/s instead of 4.6, q6_k at 2.2 instead of 2.8 (one thread of
/// a Xeon, best of 24).
constexpr int kRun = 32;

/// Where a run of a column goes.
struct Run {
  std::uint8_t* panel;
  int column;
  int first, count;  ///< blocks of 32 k, whole blocks of the file
  int blocks;        ///< of the panel
};

/// `count` blocks of 32 k of one column of a panel; `row`: where the file has the first of them.
template <class Block>
void PackColumn(const std::uint8_t* row, const Run& run) {
  constexpr BlockFormat kFormat = Block::kFormat;
  constexpr int kInside = kFormat.elements / kBlock;
  constexpr int kFactorBytes = kInside * IntegerBytes(kFormat) + HalfBytes(kFormat);
  const int column = run.column;
  std::uint8_t* codes = run.panel + static_cast<std::size_t>(CodeBytes(kFormat)) *
                                        static_cast<std::size_t>(run.first);
  std::uint8_t* factors =
      run.panel +
      static_cast<std::size_t>(CodeBytes(kFormat)) * static_cast<std::size_t>(run.blocks) +
      static_cast<std::size_t>(kFactorBytes) * static_cast<std::size_t>(run.first / kInside);
  const auto put_integers = [&](const std::int16_t* integers) {
    for (int s = 0; s < kBlock / kFormat.sub_block; ++s, factors += kPanelColumns)
      factors[column] = static_cast<std::uint8_t>(integers[s]);
  };
  const auto put_half = [&](std::uint16_t half) {
    std::memcpy(factors + 2 * column, &half, sizeof half);
    factors += 2 * kPanelColumns;
  };
  for (int done = 0; done < run.count; done += kInside, row += sizeof(Block)) {
    UnpackedBlock unpacked;
    if constexpr (PanelCodeBits(kFormat) == 8) {
      // Where it lies: loads of codes from a copy wait for the two stores that made it (1.9 GB/s
      // instead of 5.8). All others are slower so, up to a third.
      Unpack(*reinterpret_cast<const Block*>(row), unpacked);
    } else {
      Block block;
      std::memcpy(&block, row, sizeof block);
      Unpack(block, unpacked);
    }
    for (int b = 0; b < kInside; ++b, codes += CodeBytes(kFormat)) {
      PackCodes<PanelCodeBits(kFormat)>(unpacked.codes + kBlock * b, column, codes);
      const int s = b * kBlock / kFormat.sub_block;
      if constexpr (kFormat.PairsIntegers()) {
        for (int i = s; i < s + kBlock / kFormat.sub_block; ++i)
          unpacked.scales[i] =
              static_cast<std::int16_t>(unpacked.scales[i] | unpacked.mins[i] << 4);
        put_integers(unpacked.scales + s);
      } else {
        if constexpr (kFormat.scale == Factor::kF16TimesInt) put_integers(unpacked.scales + s);
        if constexpr (kFormat.min == Factor::kF16TimesInt) put_integers(unpacked.mins + s);
      }
    }
    if constexpr (kFormat.scale == Factor::kPowerOfTwo) {
      factors[column] = static_cast<std::uint8_t>(unpacked.scale);
      factors += kPanelColumns;
    } else {
      put_half(unpacked.scale);
    }
    if constexpr (kFormat.min != Factor::kNone) put_half(unpacked.min);
  }
}

using PackFunction = void (*)(const std::uint8_t* row, const Run& run);

PackFunction PackFunctionOf(DataType type) {
  PackFunction function = nullptr;
  WithBlock(AllBlocks{}, type, [&function]<class Block>() {
    if constexpr (HasInt8(Block::kFormat)) function = &PackColumn<Block>;
  });
  return function;
}

}  // namespace

void PackPanels(const BlockFormat& format, const void* plain, std::int64_t n, std::int64_t k,
                std::size_t row_bytes, void* packed, Stream stream) {
  const int blocks = static_cast<int>(k / kBlock);
  const std::size_t panel_bytes = PanelBytes(format, blocks);
  const auto panels = static_cast<int>((n + kPanelColumns - 1) / kPanelColumns);
  const PackFunction pack = PackFunctionOf(format.type);
  stream.exec().Run(panels, [&](int index, int) {
    auto* start =
        static_cast<std::uint8_t*>(packed) + static_cast<std::size_t>(index) * panel_bytes;
    const std::int64_t first_row = static_cast<std::int64_t>(index) * kPanelColumns;
    const auto columns = static_cast<int>(std::min<std::int64_t>(kPanelColumns, n - first_row));
    // Columns that there are not, and what the panel is larger than its blocks.
    const std::size_t padding = columns == kPanelColumns ? 64 : panel_bytes;
    std::memset(start + panel_bytes - padding, 0, padding);
    for (int first = 0; first < blocks; first += kRun) {
      const int count = std::min(kRun, blocks - first);
      const std::size_t offset = BytesOf(format.type, std::int64_t{kBlock} * first);
      for (int column = 0; column < columns; ++column) {
        const auto* row = static_cast<const std::uint8_t*>(plain) +
                          static_cast<std::size_t>(first_row + column) * row_bytes;
        pack(row + offset, {start, column, first, count, blocks});
      }
    }
  });
}

}  // namespace tilewright::gemm_int8
