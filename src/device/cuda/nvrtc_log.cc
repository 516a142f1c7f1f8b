#include "device/cuda/nvrtc_log.h"

#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/text.h"

namespace tilewright::cuda {
namespace {

/// Cuts the first line off `text`; without its line break.
std::string_view NextLine(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

/// The number that ends right before `at`: 16 in "Used 16 registers" for the place of " registers".
/// nullopt where there is none.
std::optional<std::uint32_t> NumberBefore(std::string_view line, std::size_t at) {
  std::size_t start = at;
  while (start > 0 && line[start - 1] >= '0' && line[start - 1] <= '9') --start;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(line.data() + start, line.data() + at, value);
  if (error != std::errc() || end != line.data() + at) return std::nullopt;
  return value;
}

/// The number before the first `words` of the line; nullopt where they are not in it.
std::optional<std::uint32_t> Amount(std::string_view line, std::string_view words) {
  const std::size_t at = line.find(words);
  return at == std::string_view::npos ? std::nullopt : NumberBefore(line, at);
}

/// One that the log leaves out where it is 0.
std::uint32_t AmountOrZero(std::string_view line, std::string_view words) {
  return Amount(line, words).value_or(0);
}

/// "320 bytes cmem[0], 16 bytes cmem[4]": all banks together.
std::uint32_t ConstantBytes(std::string_view line) {
  constexpr std::string_view kWords = " bytes cmem[";
  std::uint32_t sum = 0;
  for (std::size_t at = line.find(kWords); at != std::string_view::npos;
       at = line.find(kWords, at + 1))
    sum += NumberBefore(line, at).value_or(0);
  return sum;
}

std::string_view Quoted(std::string_view text) {
  const std::size_t first = text.find('\'');
  if (first == std::string_view::npos) return {};
  const std::size_t second = text.find('\'', first + 1);
  return second == std::string_view::npos ? std::string_view()
                                          : text.substr(first + 1, second - first - 1);
}

constexpr std::string_view kEntry = "Compiling entry function ";
constexpr std::string_view kProperties = "Function properties for ";

bool NamesEntry(std::string_view log, std::string_view name) {
  while (!log.empty()) {
    const std::string_view line = NextLine(log);
    const std::size_t at = line.find(kEntry);
    if (at != std::string_view::npos && Quoted(line.substr(at)) == name) return true;
  }
  return false;
}

bool Contains(std::string_view line, std::string_view words) {
  return line.find(words) != std::string_view::npos;
}

/// Whether a line of a log is the front end's or the assembler's verdict on the source. Lines of
/// the source that are shown are indented.
bool BlamesTheSource(std::string_view line) {
  if (line.starts_with("ptxas")) {
    // "ptxas application ptx input, line 3; error   : ...", "ptxas fatal   : ..."; the latter also
    // counts those before, of which there are none where memory ran out.
    return (Contains(line, "error   :") || Contains(line, "fatal   :")) &&
           !Contains(line, "Ptx assembly aborted due to errors") &&
           !Contains(line, "Memory allocation failure");
  }
  if (line.starts_with(' ')) return false;
  return Contains(line, "): error") || Contains(line, "): Error:") ||
         line.starts_with("At end of source: error") ||
         (Contains(line, "): catastrophic error: ") &&
          (Contains(line, "#error directive") || Contains(line, "open source file")));
}

template <class T>
bool ReadAt(std::string_view bytes, std::size_t at, T& value) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at) return false;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return true;
}

std::string_view Part(std::string_view bytes, std::size_t at, std::size_t length) {
  return at <= bytes.size() && length <= bytes.size() - at ? bytes.substr(at, length)
                                                           : std::string_view();
}

std::string_view NameAt(std::string_view names, std::size_t at) {
  if (at >= names.size()) return {};
  const std::string_view rest = names.substr(at);
  return rest.substr(0, rest.find('\0'));
}

/// Sections of an ELF file, bounds checked.
class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes) {
    Elf64_Ehdr header;
    if (!ReadAt(bytes, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_shentsize != sizeof(Elf64_Shdr))
      return;
    offset_ = header.e_shoff;
    count_ = header.e_shnum;
    Elf64_Shdr names;
    if (Header(header.e_shstrndx, names)) names_ = Content(names);
  }
  std::size_t count() const { return count_; }
  bool Header(std::size_t i, Elf64_Shdr& header) const {
    return i < count_ && offset_ <= bytes_.size() &&
           ReadAt(bytes_, offset_ + i * sizeof(Elf64_Shdr), header);
  }
  std::string_view Content(const Elf64_Shdr& header) const {
    return header.sh_type == SHT_NOBITS ? std::string_view()
                                        : Part(bytes_, header.sh_offset, header.sh_size);
  }
  std::string_view Name(const Elf64_Shdr& header) const { return NameAt(names_, header.sh_name); }

 private:
  std::string_view bytes_, names_;
  std::size_t offset_ = 0, count_ = 0;
};

/// Place of `symbol` in the symbol table; 0 where it is not.
std::uint32_t SymbolIndex(const Elf& elf, std::string_view symbol) {
  Elf64_Shdr table, names;
  for (std::size_t i = 0; i < elf.count(); ++i) {
    if (!elf.Header(i, table) || table.sh_type != SHT_SYMTAB || !elf.Header(table.sh_link, names))
      continue;
    const std::string_view entries = elf.Content(table), words = elf.Content(names);
    Elf64_Sym entry;
    for (std::uint32_t s = 0; ReadAt(entries, s * sizeof(entry), entry); ++s)
      if (NameAt(words, entry.st_name) == symbol) return s;
  }
  return 0;
}

/// Attributes of .nv.info: format, code and a 16-bit value, or, in format 4, that many bytes. Those
/// read here are pairs (symbol, number).
struct Frames {
  bool told = false;  ///< that of the kernel
  bool empty = true;  ///< that of every function of the unit
};
void ReadInfo(std::string_view info, std::uint32_t symbol, ResourceUsage& usage, Frames& frames) {
  constexpr std::uint8_t kSized = 4, kFrameBytes = 0x11, kStackBytes = 0x12, kRegisters = 0x2f;
  std::size_t at = 0;
  std::uint8_t format = 0, code = 0;
  std::uint16_t size = 0;
  while (ReadAt(info, at, format) && ReadAt(info, at + 1, code) && ReadAt(info, at + 2, size)) {
    std::uint32_t which = 0, value = 0;
    if (format == kSized && ReadAt(info, at + 4, which) && ReadAt(info, at + 8, value)) {
      const bool stack = code == kFrameBytes || code == kStackBytes;
      if (code == kRegisters && which == symbol) usage.registers = value;
      if (stack && which == symbol) usage.stack_bytes = std::max(usage.stack_bytes, value);
      frames.told = frames.told || (code == kFrameBytes && which == symbol);
      frames.empty = frames.empty && !(stack && value != 0);
    }
    at += 4 + (format == kSized ? size : 0);
  }
}

}  // namespace

std::optional<ResourceUsage> ResourcesOfLog(std::string_view log, std::string_view symbol) {
  ResourceUsage usage;
  bool registers_told = false, frame_told = false, spills_told = true;
  bool awaited = false;  // the line about `function`, whose wording may differ
  std::uint32_t stores = 0, loads = 0;
  std::string_view entry, function;  // the functions that the next lines are about
  for (std::string_view rest = log; !rest.empty();) {
    const std::string_view line = NextLine(rest);
    if (const std::size_t at = line.find(kEntry); at != std::string_view::npos) {
      entry = Quoted(line.substr(at));
    } else if (const std::size_t name = line.find(kProperties); name != std::string_view::npos) {
      function = line.substr(name + kProperties.size());
      while (!function.empty() && (function.back() == '\r' || function.back() == ' '))
        function.remove_suffix(1);
      spills_told = spills_told && !awaited;
      awaited = function == symbol || !NamesEntry(log, function);
    } else if (const auto frame = Amount(line, " bytes stack frame")) {
      if (!std::exchange(awaited, false)) continue;
      if (function == symbol) {
        frame_told = true;
        usage.stack_bytes = std::max(usage.stack_bytes, *frame);
      }
      const auto stored = Amount(line, " bytes spill stores");
      const auto loaded = Amount(line, " bytes spill loads");
      spills_told = spills_told && stored && loaded;
      stores += stored.value_or(0);
      loads += loaded.value_or(0);
    } else if (const auto registers = Amount(line, " registers"); registers && entry == symbol) {
      registers_told = true;
      usage.registers = *registers;
      usage.barriers = AmountOrZero(line, " barriers");
      usage.static_smem_bytes = AmountOrZero(line, " bytes smem");
      usage.constant_bytes = ConstantBytes(line);
      usage.stack_bytes =
          std::max(usage.stack_bytes, AmountOrZero(line, " bytes cumulative stack size"));
    }
  }
  if (!registers_told) return std::nullopt;
  if (frame_told && spills_told && !awaited) {
    usage.spill_store_bytes = stores;
    usage.spill_load_bytes = loads;
  }
  return usage;
}

ResourceUsage ResourcesOfCubin(std::string_view cubin, std::string_view symbol) {
  ResourceUsage usage;
  const Elf elf(cubin);
  const std::uint32_t index = SymbolIndex(elf, symbol);
  if (index == 0) return usage;
  const std::string shared = ".nv.shared." + std::string(symbol);
  Frames frames;
  Elf64_Shdr header;
  for (std::size_t i = 0; i < elf.count(); ++i) {
    if (!elf.Header(i, header)) continue;
    const std::string_view name = elf.Name(header);
    if (name == ".nv.info") ReadInfo(elf.Content(header), index, usage, frames);
    if (name == shared) usage.static_smem_bytes = static_cast<std::uint32_t>(header.sh_size);
    // ".nv.constant0.KERNEL": its parameters and literals; ".nv.constant3": variables of the unit.
    if (name == ".nv.constant3" || (name.starts_with(".nv.constant") && name.size() > 13 &&
                                    name[13] == '.' && name.substr(14) == symbol))
      usage.constant_bytes += static_cast<std::uint32_t>(header.sh_size);
  }
  // Spilled values are in the frame of the function that spills them.
  if (frames.told && frames.empty) usage.spill_store_bytes = usage.spill_load_bytes = 0;
  return usage;
}

ResourceUsage ResourcesOf(std::string_view log, std::string_view cubin, std::string_view symbol) {
  const ResourceUsage seen = ResourcesOfCubin(cubin, symbol);
  std::optional<ResourceUsage> told = ResourcesOfLog(log, symbol);
  if (!told) return seen;
  // Since 13.0 the log says nothing of constant memory.
  if (told->constant_bytes == 0) told->constant_bytes = seen.constant_bytes;
  if (!told->SpillBytes()) {
    told->spill_store_bytes = seen.spill_store_bytes;
    told->spill_load_bytes = seen.spill_load_bytes;
    told->stack_bytes = std::max(told->stack_bytes, seen.stack_bytes);
  }
  return *told;
}

std::string Diagnosis(std::string_view log) {
  // What a CTA may have on every architecture, and what the system takes from sm_90 on.
  constexpr std::uint32_t kMaxStaticSmem = 48 << 10, kSystemSmem = 1 << 10;
  std::uint32_t smem_bytes = 0;
  while (!log.empty()) {
    const std::string_view line = NextLine(log);
    if (BlamesTheSource(line)) return std::string(line);
    if (line.starts_with("ptxas info")) {
      smem_bytes = std::max(smem_bytes, AmountOrZero(line, " bytes smem"));
    }
  }
  if (smem_bytes <= kMaxStaticSmem + kSystemSmem) return {};
  return Format("error: {} bytes of static shared memory, of which a CTA has {}", smem_bytes,
                kMaxStaticSmem);
}

bool TellsOfNoMemory(std::string_view log) {
  return Contains(log, "out of memory") || Contains(log, "Memory allocation failure");
}

std::string StableLog(std::string_view log) {
  std::string stable;
  while (!log.empty()) {
    const std::string_view line = NextLine(log);
    if (line.starts_with("ptxas info") && line.find("Compile time = ") != std::string_view::npos)
      continue;
    stable += line;
    stable += '\n';
  }
  while (stable == "\n" || stable.ends_with("\n\n")) stable.pop_back();
  return stable;
}

}  // namespace tilewright::cuda
