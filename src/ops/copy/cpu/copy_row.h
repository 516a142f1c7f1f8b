#pragma once

#include "core/convert_row.h"
#include "core/formats/decode_blocks.h"
#include "ops/copy/cpu/copy_cpu.h"

namespace tilewright {
namespace {  // NOLINT(google-build-namespaces): one copy a kernel file, see core/simd.h

template <class Block>
void UnpackRow(const void* source, void* target, std::int64_t n) {
  DecodeBlocks<Block>(source, static_cast<float*>(target), n);
}
template <class... Blocks>
constexpr std::array<ConvertRow, kFormatCount> UnpackRows(BlockList<Blocks...>) {
  return {&UnpackRow<Blocks>...};
}

}  // namespace
}  // namespace tilewright
