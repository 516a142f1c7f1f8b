// Writes the files that store_dir_fuzz starts from: store_dir_seeds FOLDER.
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>

#include "artifact/dir/counters_file.h"
#include "artifact/dir/negative_file.h"
#include "key_inputs.h"

namespace {

using tilewright::CountersFile;
using tilewright::StoreDir;

void Write(const std::string& path, char kind, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.put(kind);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A file of counters as a store makes it.
std::string NewCounters() {
  std::string made;
  std::mutex mutex;
  CountersFile::Folder folder;
  folder.create = [&](const std::string&, std::string_view bytes) {
    made = bytes;
    return -1;
  };
  folder.quarantine = [](const std::string&, const tilewright::Filesystem::Stat&) { return false; };
  const tilewright::Trust trust{.trusted = StoreDir::Trusted::kGroup};
  (void)CountersFile(tilewright::SystemFilesystem(), "/nonexistent/counters", trust, folder, mutex)
      .Open();
  return made;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  tilewright::test::KeyInputs inputs = tilewright::test::FixedInputs();
  int n = 0;
  for (const tilewright::KernelSpec& spec : tilewright::test::FixedSpecs()) {
    inputs.spec = spec;
    const auto action = tilewright::test::ActionOf(inputs);
    const auto request = tilewright::test::RequestOf(inputs);
    if (!action || !request) return 1;
    for (const char* log : {"", "unit.cu(3): error: no such instruction\n2 errors\n"}) {
      const auto bytes = tilewright::EncodeNegative(
          action->key, StoreDir::Negative{log, 1'790'000'000, action->bytes, request->bytes});
      if (!bytes) return 1;
      const std::string number = std::to_string(n++);
      for (const char kind : {'\0', '\1'}) {
        Write(folder + "/refusal_" + number + (kind == 0 ? "" : "_resealed"), kind, *bytes);
      }
    }
  }
  const auto empty = tilewright::EncodeNegative({}, {});
  if (!empty) return 1;
  Write(folder + "/refusal_empty", '\1', *empty);
  const std::string counters = NewCounters();
  if (counters.size() != CountersFile::kBytes) return 1;
  Write(folder + "/counters", '\2', counters);
  Write(folder + "/counters_full", '\2',
        counters.substr(0, 32) + std::string(counters.size() - 32, '\x7f'));
  Write(folder + "/counters_short", '\2', counters.substr(0, 100));
  return 0;
}
