#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "artifact/bundle/ed25519.h"
#include "temp_folder.h"
#include "tilewright/bundle.h"

namespace tilewright {
namespace {

using test::SomeArtifacts;
using test::TempFolder;
using ::testing::HasSubstr;

std::string TakePem(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return pem;
}
std::string PrivatePem(EVP_PKEY* key, const char* password = nullptr) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, password == nullptr ? nullptr : EVP_aes_128_cbc(), nullptr, 0,
                           nullptr, const_cast<char*>(password));
  return TakePem(bio);
}
std::string PublicPem(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PUBKEY(bio, key);
  return TakePem(bio);
}

/// A key pair in two files, of 32 bytes that are the private key.
struct KeyFiles {
  KeyFiles(const TempFolder& folder, const std::string& name, const std::string& seed) {
    EVP_PKEY* key = EVP_PKEY_new_raw_private_key(
        EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(seed.data()), 32);
    secret = folder.Write(name + ".pem", PrivatePem(key));
    open = folder.Write(name + ".pub", PublicPem(key));
    encrypted = folder.Write(name + ".locked.pem", PrivatePem(key, "password"));
    EVP_PKEY_free(key);
  }
  std::string secret, open, encrypted;
};

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}
template <std::size_t n>
std::string TextOf(const std::array<std::uint8_t, n>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// RFC 8032, 7.1, TEST 3.
TEST(Ed25519, SignsTheKnownAnswer) {
  TempFolder folder;
  const KeyFiles key(folder, "rfc",
                     FromHex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"));
  const std::string message = "\xaf\x82";
  const Result<Ed25519Signed> made = SignEd25519(key.secret, message);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(TextOf(made->key),
            FromHex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"));
  EXPECT_EQ(TextOf(made->signature),
            FromHex("6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
                    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"));
  EXPECT_TRUE(VerifyEd25519(made->key, made->signature, message));
  EXPECT_FALSE(VerifyEd25519(made->key, made->signature, "\xaf\x83"));
  EXPECT_EQ(*ReadPublicKey(key.open), made->key);
  EXPECT_EQ(PublicKeyText(made->key),
            "ed25519:fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
}

TEST(Ed25519, AKeyFileThatIsNoneIsToldByNameAndReason) {
  TempFolder folder;
  const KeyFiles key(folder, "k", std::string(32, 'k'));
  const auto refusal = [](const std::string& file) {
    const Result<Ed25519Signed> made = SignEd25519(file, "m");
    EXPECT_FALSE(made);
    EXPECT_THAT(made.error().message, HasSubstr(file));
    return made.error();
  };
  EXPECT_EQ(refusal(folder.Path("absent.pem")).code, ErrorCode::kNotFound);
  for (const std::string& file : {folder.Write("text", "hello"), folder.Write("zero", ""), key.open,
                                  folder.Write("huge", std::string(1 << 20, 'x')),
                                  folder.Write("cut", test::ReadWhole(key.secret).substr(0, 60))}) {
    EXPECT_EQ(refusal(file).code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refusal(file).message, HasSubstr("not a PEM private key"));
  }
  // Nobody is asked for the password: this would hang a build.
  EXPECT_THAT(refusal(key.encrypted).message, HasSubstr("encrypted"));
  EVP_PKEY* curve = EVP_EC_gen("P-256");
  const std::string other = folder.Write("p256.pem", PrivatePem(curve));
  const std::string other_public = folder.Write("p256.pub", PublicPem(curve));
  EVP_PKEY_free(curve);
  EXPECT_THAT(refusal(other).message, HasSubstr("id-ecPublicKey, not Ed25519"));
  EXPECT_THAT(ReadPublicKey(other_public).error().message, HasSubstr("not Ed25519"));
  EXPECT_THAT(ReadPublicKey(key.secret).error().message, HasSubstr("not a PEM public key"));
}

class SignedBundle : public ::testing::Test {
 protected:
  SignedBundle() {
    BundleWriteOptions options;
    options.sign_key_file = ours_.secret;
    const std::vector<ArtifactData> artifacts = some_.MakeSeveral(3);
    Result<std::string> made = EncodeBundle(artifacts, options), plain = EncodeBundle(artifacts);
    if (made && plain) {
      signed_ = *made;
      unsigned_ = *plain;
    }
  }
  static Result<std::shared_ptr<const Bundle>> Open(std::string_view bytes,
                                                    std::vector<std::string> trusted) {
    return Bundle::FromBytes(bytes, {std::move(trusted)});
  }

  TempFolder folder_;
  SomeArtifacts some_;
  KeyFiles ours_{folder_, "ours", std::string(32, 'a')};
  KeyFiles theirs_{folder_, "theirs", std::string(32, 'b')};
  std::string signed_, unsigned_;
};

TEST_F(SignedBundle, IsAcceptedByWhoTrustsItsKey) {
  ASSERT_EQ(signed_.size(), unsigned_.size() + 104);
  for (const auto& trusted :
       std::vector<std::vector<std::string>>{{}, {ours_.open}, {theirs_.open, ours_.open}}) {
    const auto bundle = Open(signed_, trusted);
    ASSERT_TRUE(bundle) << bundle.error().message;
    EXPECT_EQ((*bundle)->signer(), *ReadPublicKey(ours_.open));
    EXPECT_TRUE((*bundle)->Verify().is_signed);
    EXPECT_TRUE((*bundle)->Verify().troubles.empty());
  }
  const auto bundle = Bundle::Open(folder_.Write("s.twb", signed_), {{ours_.open}});
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ((*bundle)->Verify().good, 3u);
}

TEST_F(SignedBundle, IsRefusedByWhoTrustsAnother) {
  const auto bundle = Open(signed_, {theirs_.open});
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bundle.error().message, HasSubstr("not one of the 1 trusted keys"));
}

TEST_F(SignedBundle, AnUnsignedOneIsRefusedWhereATrustedKeyIsDemanded) {
  const auto bundle = Open(unsigned_, {ours_.open});
  ASSERT_FALSE(bundle);
  EXPECT_EQ(bundle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bundle.error().message, HasSubstr("not signed"));
  EXPECT_FALSE((*Open(unsigned_, {}))->signer());
  EXPECT_FALSE((*Open(unsigned_, {}))->Verify().is_signed);
}

TEST_F(SignedBundle, ATrustedKeyThatCannotBeReadIsAnError) {
  EXPECT_EQ(Open(signed_, {ours_.open, folder_.Path("absent")}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Open(signed_, {ours_.secret}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SignedBundle, SigningChangesNeitherContentNorName) {
  EXPECT_EQ((*Open(signed_, {}))->Digest(), (*Open(unsigned_, {}))->Digest());
  EXPECT_EQ(signed_.substr(192, unsigned_.size() - 192), unsigned_.substr(192));
  BundleWriteOptions options;
  options.sign_key_file = ours_.secret;
  EXPECT_EQ(*EncodeBundle(some_.MakeSeveral(3), options), signed_);
}

TEST_F(SignedBundle, ASignatureOfAnotherBundleDoesNotServe) {
  BundleWriteOptions options;
  options.sign_key_file = ours_.secret;
  std::string other = *EncodeBundle(some_.MakeSeveral(2), options);
  other.replace(other.size() - 104, 104, signed_.substr(signed_.size() - 104));
  for (const auto& trusted : std::vector<std::vector<std::string>>{{}, {ours_.open}}) {
    const auto bundle = Open(other, trusted);
    ASSERT_FALSE(bundle);
    EXPECT_EQ(bundle.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(bundle.error().message, HasSubstr("signature"));
  }
}

// Somebody who changes the content and corrects all digests still lacks the key.
TEST_F(SignedBundle, AChangedAndResealedContentFailsTheSignature) {
  std::string forged = signed_;
  forged[(*Open(signed_, {}))->entry(0).offset] ^= 1;
  EXPECT_TRUE(Open(forged, {}));  // a payload is not read by opening
  test::Reseal(forged);
  EXPECT_FALSE(Open(forged, {}));
  EXPECT_FALSE(Open(forged, {ours_.open}));
}

TEST_F(SignedBundle, EveryFlipInTheSignatureIsRefused) {
  for (std::size_t at = signed_.size() - 104; at < signed_.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = signed_;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_FALSE(Open(damaged, {})) << at << " bit " << bit;
    }
  }
}

}  // namespace
}  // namespace tilewright
