#pragma once

#include "core/formats/decode_blocks.h"
#include "ops/embedding/cpu/embedding_cpu.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

void DecodeF32(const void* row, float* out, std::int64_t n) {
  __builtin_memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
}

void DecodeF16(const void* row, float* out, std::int64_t n) {
  const auto* in = static_cast<const std::uint16_t*>(row);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreVec(out + i, LoadF16(in + i));
  for (; i < n; ++i) out[i] = F16ToF32(in[i]);
}

void DecodeBF16(const void* row, float* out, std::int64_t n) {
  const auto* in = static_cast<const std::uint16_t*>(row);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreVec(out + i, LoadBF16(in + i));
  for (; i < n; ++i) out[i] = BF16ToF32(in[i]);
}

template <class... Blocks>
constexpr EmbeddingDecoders MakeDecoders(BlockList<Blocks...>) {
  return {.f32 = &DecodeF32,
          .f16 = &DecodeF16,
          .bf16 = &DecodeBF16,
          .blocks = {&DecodeBlocks<Blocks>...}};
}
constexpr EmbeddingDecoders kDecoders = MakeDecoders(AllBlocks{});

}  // namespace
}  // namespace tilewright
