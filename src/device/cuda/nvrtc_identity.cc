#include "device/cuda/nvrtc_identity.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "core/atomic_file.h"
#include "core/sha256.h"

namespace tilewright::cuda {
namespace {

std::size_t RoundUp(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

struct Wanted {
  ElfW(Addr) base;
  const ElfW(Dyn) * dynamic;
  std::string build_id;
};

/// Whether [start, start + bytes) lies in one readable segment of the library.
bool Mapped(const dl_phdr_info& info, ElfW(Addr) start, std::size_t bytes) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_R) != 0 && start >= segment.p_vaddr &&
        bytes <= segment.p_filesz && start - segment.p_vaddr <= segment.p_filesz - bytes)
      return true;
  }
  return false;
}

int Visit(dl_phdr_info* info, std::size_t, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  if (info->dlpi_addr != wanted.base) return 0;
  // Two objects share the base 0 where neither was moved; the dynamic section tells them apart.
  bool same = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    same = same || (segment.p_type == PT_DYNAMIC &&
                    info->dlpi_addr + segment.p_vaddr ==
                        reinterpret_cast<ElfW(Addr)>(static_cast<const void*>(wanted.dynamic)));
  }
  if (!same) return 0;
  for (int i = 0; i < info->dlpi_phnum && wanted.build_id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE || !Mapped(*info, segment.p_vaddr, segment.p_filesz)) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    wanted.build_id =
        BuildIdOfNotes(std::string_view(notes, segment.p_filesz), segment.p_align == 8 ? 8 : 4);
  }
  return 1;
}

}  // namespace

std::string BuildIdOfNotes(std::string_view notes, std::size_t alignment) {
  if (alignment != 8) alignment = 4;
  std::size_t at = 0;
  while (notes.size() - at >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes.data() + at, sizeof(note));
    at += sizeof(note);
    // Sizes are 32 bits wide and std::size_t has 64: the sums below cannot wrap.
    const std::size_t name_bytes = RoundUp(note.n_namesz, alignment);
    if (name_bytes > notes.size() - at || note.n_descsz > notes.size() - at - name_bytes) return {};
    const std::string_view name = notes.substr(at, note.n_namesz);
    const std::string_view content = notes.substr(at + name_bytes, note.n_descsz);
    if (note.n_type == NT_GNU_BUILD_ID && name == std::string_view("GNU\0", 4) && !content.empty())
      return Hex(content);
    at += name_bytes + RoundUp(note.n_descsz, alignment);
    if (at > notes.size()) return {};
  }
  return {};
}

Result<LoadedLibrary> DescribeLibrary(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr)
    return Fail(ErrorCode::kInternal, "the loader does not know its own library");
  LoadedLibrary library;
  library.path = map->l_name;
  Wanted wanted{.base = map->l_addr, .dynamic = map->l_ld, .build_id = {}};
  dl_iterate_phdr(Visit, &wanted);
  library.build_id = std::move(wanted.build_id);
  if (library.build_id.empty()) {
    const Result<std::string> bytes = ReadFile(library.path);
    if (!bytes) return Fail(bytes.error());
    const Result<std::string> digest = Sha256Hex(*bytes);
    if (!digest) return Fail(digest.error());
    library.build_id = "sha256:" + *digest;
  }
  return library;
}

}  // namespace tilewright::cuda
