#include "artifact/bundle/ed25519.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>
#include <utility>

#include "core/atomic_file.h"
#include "core/sha256.h"
#include "core/text.h"

namespace tilewright {
namespace {

struct FreeOpenssl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
template <class T>
using Owned = std::unique_ptr<T, FreeOpenssl>;

// A key file has a few hundred bytes; a large file was named by mistake.
constexpr std::size_t kMaxPemBytes = 1 << 16;

// Never prompts: by default OpenSSL asks on the terminal for the password of an encrypted key.
int NoPassword(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

using ReadPem = EVP_PKEY* (*)(BIO*, EVP_PKEY**, pem_password_cb*, void*);

/// The Ed25519 key of a PEM file; `what` is "private" or "public".
Result<Owned<EVP_PKEY>> ReadKey(const std::string& file, ReadPem read, std::string_view what) {
  const Result<std::string> pem = ReadFile(file, kMaxPemBytes);
  if (!pem) {
    if (pem.error().code != ErrorCode::kExhausted) return Fail(pem.error());
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: larger than {} bytes: not a PEM {} key", file, kMaxPemBytes, what));
  }
  const Owned<BIO> bio(BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  bool asked = false;
  Owned<EVP_PKEY> key(bio ? read(bio.get(), nullptr, NoPassword, &asked) : nullptr);
  ERR_clear_error();  // the queue belongs to the caller's thread: leave no errors of ours in it
  if (asked) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("{}: the {} key is encrypted; a key without a password is needed", file, what));
  }
  if (!key) {
    return Fail(ErrorCode::kInvalidArgument, Format("{}: not a PEM {} key", file, what));
  }
  if (EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519) {
    const char* name = OBJ_nid2sn(EVP_PKEY_id(key.get()));
    return Fail(ErrorCode::kInvalidArgument,
                Format("{}: the {} key is {}, not Ed25519 (openssl genpkey -algorithm ed25519)",
                       file, what, name == nullptr ? "of another algorithm" : name));
  }
  return key;
}

Result<Ed25519Public> PublicOf(EVP_PKEY* key) {
  Ed25519Public raw{};
  std::size_t size = raw.size();
  if (EVP_PKEY_get_raw_public_key(key, raw.data(), &size) != 1 || size != raw.size()) {
    ERR_clear_error();
    return Fail(ErrorCode::kInternal, "libcrypto cannot export a raw Ed25519 public key");
  }
  return raw;
}

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string PublicKeyText(const Ed25519Public& key) { return "ed25519:" + HexOf(key); }

Result<Ed25519Public> ReadPublicKey(const std::string& pem_file) {
  const auto key = ReadKey(pem_file, PEM_read_bio_PUBKEY, "public");
  if (!key) return Fail(key.error());
  return PublicOf(key->get());
}

Result<Ed25519Signed> SignEd25519(const std::string& pem_file, std::string_view message) {
  const auto key = ReadKey(pem_file, PEM_read_bio_PrivateKey, "private");
  if (!key) return Fail(key.error());
  const Result<Ed25519Public> own = PublicOf(key->get());
  if (!own) return Fail(own.error());
  Ed25519Signed out{*own, {}};
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  std::size_t size = out.signature.size();
  // Ed25519 hashes the message itself, so no digest is given.
  const bool done =
      context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key->get()) == 1 &&
      EVP_DigestSign(context.get(), out.signature.data(), &size, Bytes(message), message.size()) ==
          1 &&
      size == out.signature.size();
  if (!done) {
    ERR_clear_error();
    return Fail(ErrorCode::kInternal, pem_file + ": libcrypto cannot sign with this key");
  }
  return out;
}

bool VerifyEd25519(const Ed25519Public& key, const Ed25519Signature& signature,
                   std::string_view message) {
  const Owned<EVP_PKEY> imported(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  const bool right =
      imported && context &&
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, imported.get()) == 1 &&
      EVP_DigestVerify(context.get(), signature.data(), signature.size(), Bytes(message),
                       message.size()) == 1;
  ERR_clear_error();
  return right;
}

}  // namespace tilewright
