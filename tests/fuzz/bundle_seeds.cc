// Writes the files that bundle_fuzz starts from: bundle_seeds FOLDER.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_test_util.h"

namespace {

void Write(const std::string& path, const std::vector<tilewright::ArtifactData>& artifacts,
           const tilewright::BundleWriteOptions& options = {}) {
  const auto bundle = tilewright::EncodeBundle(artifacts, options);
  if (!bundle) return;
  for (const char how : {'\0', '\1'}) {  // as it is, and resealed after each mutation
    std::ofstream out(path + (how == 0 ? "" : "_resealed"), std::ios::binary);
    out.put(how);
    out.write(bundle->data(), static_cast<std::streamsize>(bundle->size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  tilewright::test::SomeArtifacts some;
  Write(folder + "/empty", {});
  Write(folder + "/one", some.MakeSeveral(1));
  Write(folder + "/three", some.MakeSeveral(3));
  tilewright::test::SomeArtifacts::Choice ampere;
  ampere.arch = {80, 0};
  ampere.compiler.version = "12.9";
  ampere.min_driver = 12090;
  ampere.cubin = "a cubin that two kernels share";
  auto mixed = some.MakeSeveral(2);
  mixed.push_back(some.Make(5, ampere));
  mixed.push_back(some.Make(6, ampere));
  Write(folder + "/mixed", mixed);
  tilewright::BundleWriteOptions bare;
  bare.with_ptx = bare.with_source = false;
  Write(folder + "/bare", mixed, bare);
  return 0;
}
