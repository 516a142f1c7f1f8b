#pragma once

#include <cstring>

#include "core/formats/formats.h"
#include "core/random.h"

namespace tilewright {

/// Writes `count` random valid blocks: every code and every integer factor may occur, every f16 is
/// finite, and a power of two is from 2^-16 to 1/2 of the table's unit. `out` needs no alignment. `type` must be a block format.
inline void RandomBlocks(DataType type, std::int64_t count, Random& random, void* out) {
  const BlockFormat& format = *FindFormat(type);
  auto* bytes = static_cast<unsigned char*>(out);
  for (std::int64_t block = 0; block < count; ++block, bytes += format.bytes) {
    for (int i = 0; i < format.bytes; ++i)
      bytes[i] = static_cast<unsigned char>(random.Next() >> 56);
    if (format.scale == Factor::kPowerOfTwo) {
      bytes[format.scale_at] = static_cast<unsigned char>(112 + random.Below(16));
      continue;
    }
    for (const int at : {format.scale_at, format.min_at}) {
      if (at < 0) continue;
      const auto half = static_cast<std::uint16_t>(random.Next() & 0xbbff);
      std::memcpy(bytes + at, &half, sizeof half);
    }
  }
}

}  // namespace tilewright
