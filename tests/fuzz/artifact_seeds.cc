// Writes the files that artifact_fuzz starts from: artifact_seeds FOLDER.
#include <filesystem>
#include <fstream>
#include <string>

#include "key_inputs.h"

namespace {

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  return out.good();
}

}  // namespace

int main(int argc, char** argv) {
  using tilewright::test::EntryOf;
  using tilewright::test::FakeOutput;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  tilewright::test::KeyInputs inputs = tilewright::test::FixedInputs();
  bool ok = true;
  int n = 0;
  for (const tilewright::KernelSpec& spec : tilewright::test::FixedSpecs()) {
    inputs.spec = spec;
    const std::string number = std::to_string(n++);
    ok = ok && Write(folder + "/entry_" + number, *EntryOf(inputs, FakeOutput(64, 16)));
    ok = ok && Write(folder + "/request_" + number, tilewright::test::RequestOf(inputs)->bytes);
    ok = ok && Write(folder + "/name_" + number, tilewright::SpecName(spec));
  }
  ok = ok && Write(folder + "/action", tilewright::test::ActionOf(inputs)->bytes);
  for (const auto& [name, text] : inputs.files) {
    ok = ok && Write(folder + "/source_" + std::to_string(n++), text);
  }
  ok = ok &&
       Write(folder + "/source_odd",
             "%: include /* x */ <a.h>\n#inc\\\nlude \"b.h\"\nR\"q(\n#include \"c.h\")q\" 1'0\n");
  return ok ? 0 : 1;
}
