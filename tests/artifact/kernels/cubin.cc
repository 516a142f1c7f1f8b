#include "cubin.h"

#include <elf.h>

#include <cstring>

namespace tilewright::test {
namespace {

template <class T>
bool ReadAt(std::string_view bytes, std::uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

}  // namespace

CubinInfo ReadCubin(std::string_view cubin) {
  CubinInfo info;
  Elf64_Ehdr header;
  if (!ReadAt(cubin, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA) {
    return info;
  }
  // Since ABI version 8 (CUDA 13) the architecture is in bits 8 to 15, before in bits 0 to 7.
  const bool since_cuda_13 = header.e_ident[EI_ABIVERSION] >= 8;
  info.sm = static_cast<int>(since_cuda_13 ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
  for (unsigned s = 0; s < header.e_shnum; ++s) {
    Elf64_Shdr section;
    if (!ReadAt(cubin, header.e_shoff + s * sizeof section, section)) break;
    if (section.sh_type != SHT_SYMTAB || section.sh_entsize < sizeof(Elf64_Sym)) continue;
    Elf64_Shdr strings;
    if (!ReadAt(cubin, header.e_shoff + section.sh_link * sizeof strings, strings)) continue;
    for (std::uint64_t at = 0; at < section.sh_size; at += section.sh_entsize) {
      Elf64_Sym symbol;
      if (!ReadAt(cubin, section.sh_offset + at, symbol)) break;
      const std::uint64_t name = strings.sh_offset + symbol.st_name;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || name >= cubin.size()) continue;
      if (ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL) continue;
      info.functions.emplace_back(cubin.substr(name, cubin.substr(name).find('\0')));
    }
  }
  return info;
}

}  // namespace tilewright::test
