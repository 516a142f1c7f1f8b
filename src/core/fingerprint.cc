#include "core/fingerprint.h"

#include <algorithm>

namespace tilewright {

std::string_view TuFingerprint(std::string_view tu) {
  const std::span<const TuDigest> all = AllTuDigests();
  const auto found = std::lower_bound(
      all.begin(), all.end(), tu,
      [](const TuDigest& entry, std::string_view name) { return entry.tu < name; });
  return found != all.end() && found->tu == tu ? found->digest : std::string_view();
}

}  // namespace tilewright
