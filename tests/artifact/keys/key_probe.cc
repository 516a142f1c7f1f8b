// Prints the keys of the fixed specs and of everything made from them, for key_matrix_test, which
// runs it in surroundings that must not matter.
//   key_probe keys [--reverse] [--threads N] [--comma-locale] [--twice]
//   key_probe entry FILE           writes the golden entry file
#include <clocale>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <locale>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "core/sha256.h"
#include "key_inputs.h"

namespace {

using namespace tilewright;        // NOLINT(google-build-using-namespace): a test program
using namespace tilewright::test;  // NOLINT(google-build-using-namespace)

/// Numbers as no key may show them: 1.234,5.
struct CommaPunct : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\1"; }
};

std::string Line(const KernelSpec& spec) {
  KeyInputs inputs = FixedInputs();
  inputs.spec = spec;
  const auto prepared = Prepare(inputs);
  const auto action = ActionOf(inputs);
  const auto entry = EntryOf(inputs, FakeOutput(3000, 500));
  if (!prepared || !action || !entry) return "failed";
  std::string options;
  for (const std::string& option : prepared->input.options) options += option + "\n";
  return prepared->input.request.key.Hex() + " " + action->key.Hex() + " " +
         prepared->input.symbol + " " + *Sha256Hex(*prepared->input.spec_header) + " " +
         *Sha256Hex(options) + " " + *Sha256Hex(*entry);
}

int Keys(int argc, char** argv) {
  bool reverse = false, twice = false;
  int threads = 1;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--reverse") reverse = true;
    if (word == "--twice") twice = true;
    if (word == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    if (word == "--comma-locale") {
      std::locale::global(std::locale(std::locale(), new CommaPunct));
    }
  }
  std::setlocale(LC_ALL, "");
  std::vector<KernelSpec> specs = FixedSpecs();
  if (reverse) specs = std::vector<KernelSpec>(specs.rbegin(), specs.rend());
  std::map<std::string, std::string> lines;
  std::mutex mutex;
  const auto work = [&](std::size_t first) {
    for (std::size_t i = first; i < specs.size(); i += static_cast<std::size_t>(threads)) {
      std::string line = Line(specs[i]);
      if (twice && Line(specs[i]) != line) line = "differs the second time";
      const std::lock_guard lock(mutex);
      lines[SpecName(specs[i])] = line;
    }
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(work, static_cast<std::size_t>(t));
  work(0);
  for (std::thread& thread : pool) thread.join();
  for (const auto& [name, line] : lines) std::printf("%s %s\n", name.c_str(), line.c_str());
  return 0;
}

int Entry(const char* path) {
  const auto entry = EntryOf(FixedInputs(), FakeOutput(1000, 100));
  if (!entry) return 1;
  std::ofstream out(path, std::ios::binary);
  out << *entry;
  return out.good() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "keys") return Keys(argc, argv);
  if (verb == "entry" && argc == 3) return Entry(argv[2]);
  std::fprintf(stderr, "usage: key_probe keys [options] | entry FILE\n");
  return 2;
}
