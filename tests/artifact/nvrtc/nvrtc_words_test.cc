// Parsing of NVRTC's logs, of cubins and of ELF notes.

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "device/cuda/nvrtc_identity.h"
#include "device/cuda/nvrtc_log.h"

namespace tilewright::cuda {
namespace {

std::string Word(std::uint32_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// A note as linkers write it, padded to `alignment`.
std::string Note(std::string_view name, std::uint32_t type, std::string_view content,
                 std::size_t alignment = 4) {
  std::string note = Word(static_cast<std::uint32_t>(name.size())) +
                     Word(static_cast<std::uint32_t>(content.size())) + Word(type);
  const auto pad = [&] { note.append((alignment - note.size() % alignment) % alignment, '\0'); };
  note += name;
  if (alignment == 4) pad();
  if (alignment == 8) note.append((8 - name.size() % 8) % 8, '\0');
  note += content;
  pad();
  return note;
}

constexpr std::string_view kGnu("GNU\0", 4);

TEST(BuildId, IsFoundBehindOtherNotes) {
  EXPECT_EQ(BuildIdOfNotes(Note(kGnu, NT_GNU_BUILD_ID, "\x01\xab\xff"), 4), "01abff");
  EXPECT_EQ(BuildIdOfNotes(Note(kGnu, NT_GNU_ABI_TAG, "12345") +
                               Note(std::string_view("Longer name\0", 12), NT_GNU_BUILD_ID, "no") +
                               Note(kGnu, NT_GNU_BUILD_ID, "\x12\x34"),
                           4),
            "1234");
}

TEST(BuildId, IsEmptyWhereThereIsNone) {
  EXPECT_EQ(BuildIdOfNotes("", 4), "");
  EXPECT_EQ(BuildIdOfNotes("short", 4), "");
  EXPECT_EQ(BuildIdOfNotes(Note(kGnu, NT_GNU_ABI_TAG, "12345"), 4), "");
  EXPECT_EQ(BuildIdOfNotes(Note(kGnu, NT_GNU_BUILD_ID, ""), 4), "");
}

TEST(BuildId, LengthsBeyondTheSegmentAreNotFollowed) {
  for (const std::uint32_t huge : {0x7fffffffU, 0xfffffffcU, 0xffffffffU, 64U}) {
    EXPECT_EQ(BuildIdOfNotes(Word(huge) + Word(4) + Word(NT_GNU_BUILD_ID) + "GNU", 4), "");
    EXPECT_EQ(
        BuildIdOfNotes(Word(4) + Word(huge) + Word(NT_GNU_BUILD_ID) + std::string(kGnu) + "abc", 4),
        "");
  }
  const std::string whole = Note(kGnu, NT_GNU_BUILD_ID, "\x01\x02\x03\x04");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that a sanitizer sees a read behind it.
    const std::vector<char> part(whole.begin(),
                                 whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(BuildIdOfNotes(std::string_view(part.data(), part.size()), 4), "");
  }
}

// As NVRTC 13.0 prints it, of a unit with two kernels and a function.
constexpr std::string_view kLog =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n"
    "ptxas info    : Function properties for other\n"
    "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads\n"
    "ptxas info    : Used 8 registers, used 0 barriers\n"
    "ptxas info    : Compile time = 2.327 ms\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "ptxas         .     512 bytes stack frame, 684 bytes spill stores, 688 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 3 barriers, 640 bytes cumulative stack size, "
    "128 bytes smem\n"
    "ptxas info    : Compile time = 43.847 ms\n"
    "ptxas info    : Function properties for _Z1fPfi\n"
    "ptxas         .     0 bytes stack frame, 32 bytes spill stores, 28 bytes spill loads\n";

TEST(ResourceLog, AKernelCountsWhatItCallsAndNoOtherKernel) {
  const auto usage = ResourcesOfLog(kLog, "k");
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->registers, 32U);
  EXPECT_EQ(usage->barriers, 3U);
  EXPECT_EQ(usage->static_smem_bytes, 128U);
  EXPECT_EQ(usage->stack_bytes, 640U);
  EXPECT_EQ(usage->spill_store_bytes, 684U + 32U);
  EXPECT_EQ(usage->spill_load_bytes, 688U + 28U);
}

TEST(ResourceLog, OlderWordsAndConstantBanksAreUnderstood) {
  // As 12.9 prints it.
  const auto usage = ResourcesOfLog(
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Function properties for k\n"
      "    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 49152 bytes smem, 400 bytes cmem[0], "
      "16 bytes cmem[2]\n",
      "k");
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->registers, 40U);
  EXPECT_EQ(usage->static_smem_bytes, 49152U);
  EXPECT_EQ(usage->constant_bytes, 416U);
  EXPECT_EQ(usage->stack_bytes, 16U);
}

TEST(ResourceLog, ALogWithoutTheKernelTellsNothing) {
  EXPECT_FALSE(ResourcesOfLog(kLog, "unknown").has_value());
  EXPECT_FALSE(ResourcesOfLog("", "k").has_value());
  EXPECT_FALSE(ResourcesOfLog("ptxas info : Compiling entry function 'k", "k").has_value());
}

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  std::size_t found = 0;
  for (std::size_t at = out.find(from); at != std::string::npos;
       at = out.find(from, at + to.size()), ++found) {
    out.replace(at, from.size(), to);
  }
  EXPECT_NE(found, 0U) << from;
  return out;
}

TEST(ResourceLog, SpillsInOtherWordsAreUnknownAndNeverZero) {
  // Of the kernel, of what it calls, of both; the registers are still understood.
  for (const auto& [from, to] : {
           std::pair("684 bytes spill stores", "684 bytes stored for want of registers"),
           std::pair("688 bytes spill loads", "688 octets relus"),
           std::pair("684 bytes spill stores", "many bytes spill stores"),
           std::pair("684 bytes spill stores", "99999999999 bytes spill stores"),
           std::pair("32 bytes spill stores", "32 B spilled"),
           std::pair("512 bytes stack frame, 684", "512 octets de pile, 684"),
           std::pair("0 bytes stack frame, 32", "0 octets de pile, 32"),
           std::pair("Function properties for k\n", "Proprietes de la fonction k\n"),
       }) {
    const auto usage = ResourcesOfLog(Replaced(kLog, from, to), "k");
    ASSERT_TRUE(usage.has_value()) << from;
    EXPECT_EQ(usage->registers, 32U) << from;
    EXPECT_FALSE(usage->SpillBytes().has_value()) << to;
  }
  EXPECT_EQ(ResourcesOfLog(kLog, "k")->SpillBytes(), 684U + 32U + 688U + 28U);
  const auto foreign = ResourcesOfLog(Replaced(kLog, "8 bytes stack frame, 4", "8 octets, 4"), "k");
  EXPECT_TRUE(foreign->SpillBytes().has_value()) << "another kernel's line does not matter";
}

TEST(ResourceLog, ARegisterCountThatIsNotUnderstoodIsNoCount) {
  EXPECT_FALSE(ResourcesOfLog(Replaced(kLog, "Used 32 registers", "32 registres"), "k"));
  EXPECT_FALSE(ResourcesOfLog(Replaced(kLog, "Used 32 registers", "Used some registers"), "k"));
}

TEST(ResourceLog, TimesAreLeftOutAndTheRestKept) {
  const std::string stable = StableLog(kLog);
  EXPECT_EQ(stable.find("Compile time"), std::string::npos);
  EXPECT_NE(stable.find("Used 32 registers"), std::string::npos);
  EXPECT_NE(stable.find("28 bytes spill loads\n"), std::string::npos);
  EXPECT_EQ(ResourcesOfLog(stable, "k"), ResourcesOfLog(kLog, "k"));
  EXPECT_EQ(StableLog("ptxas info    : Compile time = 1 ms\n\n"), "");
  EXPECT_EQ(StableLog("warning: no line break"), "warning: no line break\n");
}

TEST(Diagnosis, IsTheLineThatSaysWhatIsWrongWithTheSource) {
  for (const char* line :
       {"dir/unit.cu(1): error: identifier \"foo\" is undefined",
        "unit.cu(3): error #20: identifier is undefined",
        "At end of source: error: expected a \"}\"",
        "unit.cu(1): Error: Formal parameter space overflowed (40008 bytes required) in function k",
        "unit.cu(1): catastrophic error: #error directive: own words",
        "unit.cu(1): catastrophic error: cannot open source file \"x.h\"",
        "unit.cu(1): catastrophic error: could not open source file \"x.h\" (no directories)",
        "ptxas application ptx input, line 27; error   : Unknown modifier '.instr'",
        "ptxas application ptx input, line 26; fatal   : Parsing error near '.file': syntax error",
        "ptxas fatal   : Unresolved extern function '_Z1fi'"}) {
    const std::string log = std::string("unit.cu(1): warning #14-D: extra text\n") + line +
                            "\n  shown(\"source\");\n       ^\n";
    EXPECT_EQ(Diagnosis(log), line);
    EXPECT_FALSE(TellsOfNoMemory(log));
  }
}

TEST(Diagnosis, IsNoneWhereTheSourceIsNotToBlame) {
  for (const char* log :
       {"", "unit.cu(2): catastrophic error: out of memory\n",
        "1 catastrophic error detected in the compilation of \"unit.cu\".\n",
        "ptxas fatal   : Ptx assembly aborted due to errors\n",
        "ptxas fatal   : Memory allocation failure\n",
        "unit.cu(1): warning #1-D: last line\n  f(\"(1): error: shown\");\n",
        "ptxas info    : Used 40 registers, used 1 barriers, 50176 bytes smem\n"}) {
    EXPECT_EQ(Diagnosis(log), "") << log;
  }
  EXPECT_TRUE(TellsOfNoMemory("unit.cu(2): catastrophic error: out of memory\n"));
}

TEST(Diagnosis, TooMuchStaticSharedMemoryShowsInTheAmountOnly) {
  EXPECT_EQ(Diagnosis("ptxas info    : 0 bytes gmem\n"
                      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                      "ptxas info    : Used 10 registers, used 1 barriers, 400000 bytes smem\n"),
            "error: 400000 bytes of static shared memory, of which a CTA has 49152");
}

/// An ELF file with the sections that ResourcesOfCubin reads: a kernel "k" with 40 registers, a
/// frame of 24 bytes, 512 bytes of shared and 0x230 + 64 of constant memory.
std::string Cubin(std::uint32_t frame = 24, std::uint32_t other_frame = 0) {
  const auto pair = [](char code, std::uint32_t symbol, std::uint32_t value) {
    return std::string("\x04", 1) + code + std::string("\x08\0", 2) + Word(symbol) + Word(value);
  };
  struct Section {
    std::string name, content;
    std::uint32_t type = SHT_PROGBITS, link = 0;
    std::uint64_t size = 0;  // of SHT_NOBITS
  };
  const auto symbol = [](std::uint32_t name) {
    Elf64_Sym entry{};
    entry.st_name = name;
    return std::string(reinterpret_cast<const char*>(&entry), sizeof(entry));
  };
  std::vector<Section> sections = {
      {"", "", SHT_NULL, 0, 0},
      {".shstrtab", "", SHT_STRTAB, 0, 0},
      {".strtab", std::string("\0other\0k\0", 9), SHT_STRTAB, 0, 0},
      {".symtab", symbol(0) + symbol(1) + symbol(7), SHT_SYMTAB, 2, 0},
      {".nv.info",
       std::string("\x03\x37\x7d\0", 4) + pair(0x2f, 1, 99) + pair(0x11, 1, other_frame) +
           pair(0x2f, 2, 40) + pair(0x11, 2, frame),
       SHT_LOPROC, 0, 0},
      {".nv.shared.k", "", SHT_NOBITS, 0, 512},
      {".nv.shared.other", "", SHT_NOBITS, 0, 4096},
      {".nv.constant0.k", std::string(0x230, 'c'), SHT_PROGBITS, 0, 0},
      {".nv.constant3", std::string(64, 'c'), SHT_PROGBITS, 0, 0},
  };
  std::vector<std::uint32_t> names;
  for (const Section& section : sections) {
    names.push_back(static_cast<std::uint32_t>(sections[1].content.size()));
    sections[1].content += section.name + std::string(1, '\0');
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = 1;
  std::string file(sizeof(header), '\0'), table;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    Elf64_Shdr entry{};
    entry.sh_name = names[i];
    entry.sh_type = sections[i].type;
    entry.sh_link = sections[i].link;
    entry.sh_offset = file.size();
    entry.sh_size = sections[i].size != 0 ? sections[i].size : sections[i].content.size();
    table.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
    file += sections[i].content;
  }
  header.e_shoff = file.size();
  std::memcpy(file.data(), &header, sizeof(header));
  return file + table;
}

TEST(ResourceCubin, TellsWhatTheLogMayNot) {
  const ResourceUsage usage = ResourcesOfCubin(Cubin(), "k");
  EXPECT_EQ(usage.registers, 40U);
  EXPECT_EQ(usage.stack_bytes, 24U);
  EXPECT_EQ(usage.static_smem_bytes, 512U);
  EXPECT_EQ(usage.constant_bytes, 0x230U + 64U);
  EXPECT_EQ(usage.SpillBytes(), std::nullopt) << "some of the frame may be spills";
  EXPECT_EQ(ResourcesOfCubin(Cubin(), "absent"), ResourceUsage());
}

TEST(ResourceCubin, WithoutAFrameNothingIsSpilled) {
  EXPECT_EQ(ResourcesOfCubin(Cubin(0), "k").SpillBytes(), 0U);
  EXPECT_EQ(ResourcesOfCubin(Cubin(0, 8), "k").SpillBytes(), std::nullopt) << "what it calls";
  EXPECT_EQ(ResourcesOfCubin("not a cubin", "k").SpillBytes(), std::nullopt);
}

TEST(Resources, OfALogInOtherWordsAreTheCubins) {
  const std::string log = Replaced(kLog, "spill", "rebut");
  EXPECT_EQ(ResourcesOf(log, Cubin(0), "k").SpillBytes(), 0U);
  EXPECT_EQ(ResourcesOf(log, Cubin(0), "k").stack_bytes, 640U);
  EXPECT_EQ(ResourcesOf(log, Cubin(24), "k").SpillBytes(), std::nullopt);
  EXPECT_EQ(ResourcesOf("entirely different", Cubin(0), "k").registers, 40U);
  EXPECT_EQ(ResourcesOf("entirely different", Cubin(0), "k").SpillBytes(), 0U);
  EXPECT_EQ(ResourcesOf("entirely different", "and no cubin", "k").SpillBytes(), std::nullopt);
  EXPECT_EQ(ResourcesOf(kLog, Cubin(24), "k").SpillBytes(), 684U + 32U + 688U + 28U)
      << "what the log tells counts";
  EXPECT_EQ(ResourcesOf(kLog, Cubin(24), "k").constant_bytes, 0x230U + 64U);
}

TEST(ResourceCubin, DamagedFilesAreReadWithinTheirBounds) {
  const std::string whole = Cubin();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<char> part(whole.begin(),
                                 whole.begin() + static_cast<std::ptrdiff_t>(length));
    // The section table is the last part: a cut file lacks some of it.
    EXPECT_NE(ResourcesOfCubin(std::string_view(part.data(), part.size()), "k"),
              ResourcesOfCubin(whole, "k"));
  }
  Random random(1);
  std::size_t same = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<char> bytes(whole.begin(), whole.end());
    for (int flips = 0; flips < 1 + i % 4; ++flips) {
      const std::size_t at = random.Next() % bytes.size();
      bytes[at] = static_cast<char>(random.Next() >> 56);
    }
    const ResourceUsage usage = ResourcesOfCubin(std::string_view(bytes.data(), bytes.size()), "k");
    same += usage == ResourcesOfCubin(whole, "k") ? 1 : 0;
  }
  EXPECT_GT(same, 0U);  // most of the file is content that is not read
}

}  // namespace
}  // namespace tilewright::cuda
