// Any bytes are an artifact, a record, a spec's name, a source ... or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "artifact/include_scan.h"
#include "entry_seal.h"
#include "tilewright/artifact.h"
#include "tilewright/artifact_key.h"

namespace {

/// What is read is written with the same meaning.
void Entry(std::string_view bytes) {
  const auto data = tilewright::DecodeArtifact(bytes);
  if (!data) return;
  const auto again = tilewright::EncodeArtifact(*data);
  if (!again) std::abort();
  const auto twice = tilewright::DecodeArtifact(*again);
  if (!twice || twice->request != data->request || twice->action != data->action ||
      twice->cubin != data->cubin || twice->log != data->log) {
    std::abort();
  }
}

void Record(std::string_view bytes) {
  const auto fields = tilewright::DecodeKeyRecord(bytes);
  const auto spec = tilewright::SpecOfRequestRecord(bytes);
  if (spec && !fields) std::abort();
  if (!spec) return;
  const auto again = tilewright::ParseSpecName(tilewright::SpecName(*spec));
  if (!again || *again != *spec) std::abort();
  const auto differences = tilewright::DiffKeyRecords(bytes, bytes);
  if (!differences || !differences->empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Entry(bytes);
  // Again with its digests put right: no mutation finds a SHA-256 by itself.
  std::string sealed(bytes);
  tilewright::test::SealEntry(sealed);
  Entry(sealed);
  Record(bytes);
  const auto spec = tilewright::ParseSpecName(bytes);
  if (spec && tilewright::SpecName(*spec) != bytes) std::abort();
  const auto includes = tilewright::ScanIncludes(bytes);
  if (includes && includes->size() > size) std::abort();
  return 0;
}
