#pragma once

#include <string>
#include <string_view>

#include "artifact/dir/store_dir.h"

namespace tilewright {

inline constexpr std::size_t kMaxNegativeLogBytes = 64 << 10;
inline constexpr std::size_t kMaxNegativeBytes = 1 << 20;

/// The file of a refusal (docs/artifact_store.md, byte by byte). kInvalidArgument where the records
/// are too long for it.
Result<std::string> EncodeNegative(const ArtifactKey& action, const StoreDir::Negative& negative);

/// The inverse. Total; kCorrupt with the reason for anything that EncodeNegative(action, ...) would
/// not have written, the refusal of another key included.
Result<StoreDir::Negative> DecodeNegative(const ArtifactKey& action, std::string_view bytes);

}  // namespace tilewright
