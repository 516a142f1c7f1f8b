// Any bytes are a bundle or an error. The first byte says whether the digests are made right again
// before, which lets the fuzzer reach what they guard; what verifies must encode to itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"
#include "tilewright/bundle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tilewright::ArtifactData;
  using tilewright::Bundle;
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) tilewright::test::Reseal(bytes);
  const std::string trouble = tilewright::test::Trouble(bytes);
  if (!trouble.empty()) return 0;
  const auto bundle = Bundle::FromBytes(bytes);
  std::vector<ArtifactData> artifacts;
  for (std::size_t i = 0; i < (*bundle)->size(); ++i) artifacts.push_back(*(*bundle)->Load(i));
  const auto again = tilewright::EncodeBundle(artifacts);
  const bool this_minor = bytes[12] == 0 && bytes[13] == 0 && bytes[14] == 0 && bytes[15] == 0;
  if (!again || (this_minor && !(*bundle)->signer() && *again != bytes)) std::abort();
  return 0;
}
