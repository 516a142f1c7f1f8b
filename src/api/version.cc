#include <openssl/crypto.h>
#include <sqlite3.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#ifdef TILEWRIGHT_GEMM_ONEDNN
#include "ops/gemm/cpu/onednn/library.h"
#endif
#include "tilewright/tilewright.h"

namespace tilewright {

std::string_view Version() { return TILEWRIGHT_VERSION; }

std::vector<LibraryVersion> LibraryVersions() {
  char pcre2[64] = {};
  if (pcre2_config(PCRE2_CONFIG_VERSION, nullptr) < static_cast<int>(sizeof pcre2)) {
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
  }
  std::vector<LibraryVersion> libraries = {{"SQLite", sqlite3_libversion()},
                                           {"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING)},
                                           {"PCRE2", pcre2}};
#ifdef TILEWRIGHT_GEMM_ONEDNN
  constexpr std::size_t kPrefix = std::string_view("onednn-").size();
  libraries.push_back({"oneDNN", gemm::OneDnnFingerprint().substr(kPrefix)});
#endif
  return libraries;
}

}  // namespace tilewright
