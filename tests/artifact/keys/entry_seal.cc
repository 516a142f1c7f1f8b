#include "entry_seal.h"

#include <algorithm>
#include <string_view>

#include "artifact/entry_format.h"
#include "artifact/field_codec.h"
#include "core/sha256.h"

namespace tilewright::test {
namespace {

void PutDigest(std::string& file, std::size_t at, std::string_view of) {
  const auto digest = Sha256(of);
  if (digest) file.replace(at, digest->size(), std::string(digest->begin(), digest->end()));
}

}  // namespace

void SealEntry(std::string& file) {
  if (file.size() < kEntryTableAt) return;
  const auto at = [&](std::size_t offset, std::size_t bytes) {
    return LoadLittleEndian(file.data() + offset, bytes);
  };
  const std::uint64_t sections =
      std::min<std::uint64_t>(at(kEntrySectionCountAt, 4), kMaxEntrySections);
  for (std::uint64_t i = 0; i < sections; ++i) {
    const std::size_t row = kEntryTableAt + i * kEntryRowBytes;
    if (row + kEntryRowBytes > file.size()) break;
    const std::uint64_t offset = at(row + 8, 8), bytes = at(row + 16, 8);
    if (offset > file.size() || bytes > file.size() - offset) continue;
    PutDigest(file, row + 24, std::string_view(file).substr(offset, bytes));
  }
  const std::uint64_t head = at(kEntryHeadBytesAt, 4);
  if (head < kEntryTableAt + kEntryDigestBytes || head > file.size()) return;
  const std::size_t covered = head - kEntryDigestBytes;
  PutDigest(file, covered, std::string_view(file).substr(0, covered));
}

}  // namespace tilewright::test
