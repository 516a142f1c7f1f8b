// Writes the files that gguf_fuzz starts from: gguf_seeds FOLDER.
#include <filesystem>
#include <string>

#include "model/gguf/gguf_test_util.h"

int main(int argc, char** argv) {
  using tilewright::GgufType;
  using tilewright::test::RawGguf;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  std::filesystem::create_directories(folder);
  tilewright::test::WriteBytes(folder + "/everything", tilewright::test::SampleFile());
  tilewright::test::WriteBytes(folder + "/empty", RawGguf().Header(0, 0).bytes);
  tilewright::test::WriteBytes(folder + "/one_key",
                               RawGguf().Header(0, 1).U32("general.alignment", 64).bytes);
  tilewright::test::WriteBytes(folder + "/one_tensor",
                               RawGguf().Header(1, 0, 2).Tensor("t", {32, 2}, 8, 0).Data(68).bytes);
  tilewright::test::WriteBytes(folder + "/strings", RawGguf()
                                                        .Header(0, 1)
                                                        .Key("k", GgufType::kArray)
                                                        .Array(GgufType::kString, 2)
                                                        .String("a")
                                                        .String("b")
                                                        .bytes);
  return 0;
}
