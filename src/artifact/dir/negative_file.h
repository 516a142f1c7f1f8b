#pragma once

#include <string>
#include <string_view>

#include "artifact/dir/store_dir.h"

namespace tilewright {

inline constexpr std::size_t kMaxNegativeLogBytes = 64 << 10;
inline constexpr std::size_t kMaxNegativeBytes = 1 << 20;

/// The file of a remembered failure (docs/artifact_store.md, byte by byte). kInvalidArgument if the
/// records are too long for it.
Result<std::string> EncodeNegative(const ArtifactKey& action, const StoreDir::Negative& negative);

/// The inverse, for arbitrary bytes. kCorrupt with the reason for anything that EncodeNegative with
/// the same `action` could not have written.
Result<StoreDir::Negative> DecodeNegative(const ArtifactKey& action, std::string_view bytes);

}  // namespace tilewright
