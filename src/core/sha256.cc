#include "core/sha256.h"

#include <openssl/evp.h>

#include <memory>

namespace tilewright {

namespace {

// Looking up the algorithm costs as much as hashing a kilobyte, so it is done once per process.
const EVP_MD* Algorithm() {
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return kAlgorithm;
}

}  // namespace

Result<Sha256Digest> Sha256(std::initializer_list<std::string_view> parts) {
  thread_local const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(
      EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  bool ok = context != nullptr && Algorithm() != nullptr &&
            EVP_DigestInit_ex(context.get(), Algorithm(), nullptr) == 1;
  for (const std::string_view part : parts) {
    ok = ok && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  }
  Sha256Digest digest{};
  unsigned int length = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1 &&
       length == digest.size();
  if (!ok) return Fail(ErrorCode::kInternal, "SHA-256 is not available from libcrypto");
  return digest;
}

std::string HexOf(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<std::string> Sha256Hex(std::string_view bytes) {
  const Result<Sha256Digest> digest = Sha256(bytes);
  if (!digest) return Fail(digest.error());
  return HexOf(*digest);
}

}  // namespace tilewright
