#include "artifact/dir/negative_file.h"

#include <array>
#include <utility>

#include "artifact/field_codec.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::string_view kMagic = "TWNEGAT1";
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kDigestBytes = 32;

std::uint64_t Take(std::string_view& bytes, std::size_t count) {
  const std::uint64_t value = LoadLittleEndian(bytes.data(), count);
  bytes.remove_prefix(count);
  return value;
}

std::string_view AsText(const std::uint8_t* bytes, std::size_t count) {
  return {reinterpret_cast<const char*>(bytes), count};
}

}  // namespace

Result<std::string> EncodeNegative(const ArtifactKey& action, const StoreDir::Negative& negative) {
  const std::string_view log = std::string_view(negative.log).substr(0, kMaxNegativeLogBytes);
  const std::size_t total = kHeaderBytes + negative.action_record.size() +
                            negative.request_record.size() + log.size() + kDigestBytes;
  if (total > kMaxNegativeBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("a compiler failure of {} bytes: at most {} can be stored", total,
                       kMaxNegativeBytes));
  }
  std::string out;
  out.reserve(total);
  out.append(kMagic);
  out.append(AsText(action.bytes.data(), action.bytes.size()));
  AppendLittleEndian(out, static_cast<std::uint64_t>(negative.unix_s), 8);
  AppendLittleEndian(out, negative.action_record.size(), 4);
  AppendLittleEndian(out, negative.request_record.size(), 4);
  AppendLittleEndian(out, log.size(), 4);
  AppendLittleEndian(out, 0, 4);
  out.append(negative.action_record).append(negative.request_record).append(log);
  const Result<Sha256Digest> digest = Sha256(out);
  if (!digest) return Fail(digest.error());
  out.append(AsText(digest->data(), digest->size()));
  return out;
}

Result<StoreDir::Negative> DecodeNegative(const ArtifactKey& action, std::string_view bytes) {
  const auto corrupt = [](std::string why) { return Fail(ErrorCode::kCorrupt, std::move(why)); };
  if (bytes.size() < kHeaderBytes + kDigestBytes || !bytes.starts_with(kMagic)) {
    return corrupt(Format("{} bytes that are not a stored failure", bytes.size()));
  }
  const std::string_view stored_digest = bytes.substr(bytes.size() - kDigestBytes);
  std::string_view rest = bytes.substr(0, bytes.size() - kDigestBytes);
  const Result<Sha256Digest> digest = Sha256(rest);
  if (!digest) return Fail(digest.error());
  if (stored_digest != AsText(digest->data(), digest->size())) return corrupt("digest differs");
  rest.remove_prefix(kMagic.size());
  if (!rest.starts_with(AsText(action.bytes.data(), action.bytes.size()))) {
    return corrupt("the failure of another key");
  }
  rest.remove_prefix(action.bytes.size());
  StoreDir::Negative negative;
  negative.unix_s = static_cast<std::int64_t>(Take(rest, 8));
  std::array<std::uint64_t, 4> sizes{};
  for (std::uint64_t& size : sizes) size = Take(rest, 4);
  if (sizes[3] != 0 || sizes[0] + sizes[1] + sizes[2] != rest.size()) {
    return corrupt(Format("{} bytes after the header, not {} + {} + {}", rest.size(), sizes[0],
                          sizes[1], sizes[2]));
  }
  if (sizes[2] > kMaxNegativeLogBytes || bytes.size() > kMaxNegativeBytes) {
    return corrupt(Format("{} bytes with a log of {}: at most {} and {} are allowed", bytes.size(),
                          sizes[2], kMaxNegativeBytes, kMaxNegativeLogBytes));
  }
  negative.action_record = rest.substr(0, sizes[0]);
  negative.request_record = rest.substr(sizes[0], sizes[1]);
  negative.log = rest.substr(sizes[0] + sizes[1]);
  return negative;
}

}  // namespace tilewright
