#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::test {

/// What the ELF image of a cubin says of itself.
struct CubinInfo {
  int sm = 0;                          ///< major * 10 + minor of the header's flags
  std::vector<std::string> functions;  ///< global functions of the symbol table
};

/// Empty functions and sm 0 for bytes that are no 64-bit ELF image.
CubinInfo ReadCubin(std::string_view cubin);

}  // namespace tilewright::test
