#include "ops/gemm/cpu/int8/arrange.h"

#include <emmintrin.h>

#include <cstddef>
#include <cstring>

namespace tilewright::gemm_int8 {
namespace {

/// Sum of 16 codes. psadbw adds unsigned bytes, so 128 is added to each and taken off again.
std::int32_t Sum16(__m128i codes) {
  const __m128i raised = _mm_xor_si128(codes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i halves = _mm_sad_epu8(raised, _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_srli_si128(halves, 8))) - 16 * 128;
}

/// The codes pass through registers: a copy of the block would be read back before it is written.
template <class Block>
void Arrange(const void* a, std::size_t row_bytes, int rows, int blocks, std::uint8_t* tile) {
  for (int r = 0; r < rows; ++r) {
    const auto* from =
        static_cast<const std::uint8_t*>(a) + static_cast<std::size_t>(r) * row_bytes;
    std::uint8_t* x = tile;
    for (int b = 0; b < blocks; ++b, from += sizeof(BlockI8x32)) {
      const auto* codes = reinterpret_cast<const __m128i*>(from + offsetof(BlockI8x32, q));
      auto* to = reinterpret_cast<__m128i*>(x + kBlock * r);
      const __m128i low = _mm_loadu_si128(codes), high = _mm_loadu_si128(codes + 1);
      _mm_storeu_si128(to, low);
      _mm_storeu_si128(to + 1, high);
      float d;
      std::memcpy(&d, from + offsetof(BlockI8x32, d), sizeof d);
      PutRecord<Block>(d, Sum16(low), Sum16(high), rows, r, x);
      x += rows * RecordBytes(Block::kFormat);
    }
  }
}

}  // namespace

ArrangeFunction ArrangeFunctionOf(DataType weights) {
  ArrangeFunction function = nullptr;
  WithBlock(AllBlocks{}, weights, [&function]<class Block>() {
    if constexpr (HasInt8(Block::kFormat)) function = &Arrange<Block>;
  });
  return function;
}

}  // namespace tilewright::gemm_int8
