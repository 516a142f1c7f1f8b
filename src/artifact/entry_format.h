#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tilewright {

// The constants of the entry file (docs/artifact_entry.md), shared by writer and reader.

/// Binary, and damaged by any conversion of line ends.
inline constexpr std::string_view kEntryMagic = "\x89TWA\r\n\x1a\n";
inline constexpr std::uint16_t kEntryMajor = 1;
inline constexpr std::uint16_t kEntryMinor = 0;

// Offsets in the fixed part of the header.
inline constexpr std::size_t kEntryMajorAt = 8;
inline constexpr std::size_t kEntryMinorAt = 10;
inline constexpr std::size_t kEntryHeadBytesAt = 12;
inline constexpr std::size_t kEntryFileBytesAt = 16;
inline constexpr std::size_t kEntryFlagsAt = 24;
inline constexpr std::size_t kEntrySectionCountAt = 28;
inline constexpr std::size_t kEntryRequestAt = 32;
inline constexpr std::size_t kEntryActionAt = 64;
inline constexpr std::size_t kEntryMetadataBytesAt = 96;
inline constexpr std::size_t kEntryReservedAt = 100;
inline constexpr std::size_t kEntryTableAt = 104;

// A row of the section table: u32 tag, u32 zero, u64 offset, u64 bytes, SHA-256.
inline constexpr std::size_t kEntryRowBytes = 56;
inline constexpr std::size_t kEntryAlignment = 64;
inline constexpr std::size_t kEntryDigestBytes = 32;

// Limits, all far above what a kernel needs.
inline constexpr std::uint64_t kMaxEntryBytes = std::uint64_t{256} << 20;
inline constexpr std::uint32_t kMaxEntryHeadBytes = 1 << 20;
inline constexpr std::uint32_t kMaxEntrySections = 64;

/// A reader may skip an unknown section or metadata tag only if this bit is set.
inline constexpr std::uint32_t kOptionalSection = 0x80000000;
inline constexpr std::uint16_t kOptionalMetadata = 0x8000;

enum EntrySection : std::uint32_t {
  kSectionCubin = 1,
  kSectionPtx = 2,
  kSectionSource = 3,
  kSectionLog = 4,
};
inline constexpr std::uint32_t kEntrySections = 4;

enum EntryMetadata : std::uint16_t {
  kMetaRequestRecord = 1,
  kMetaActionRecord = 2,
  kMetaSymbol = 3,
  kMetaThreads = 4,
  kMetaDynamicSmem = 5,
  kMetaLaunchAbi = 6,
  kMetaRegisters = 7,
  kMetaStaticSmem = 8,
  kMetaConstant = 9,
  kMetaStack = 10,
  kMetaSpillStores = 11,
  kMetaSpillLoads = 12,
  kMetaBarriers = 13,
  kMetaMinDriver = 14,
  kMetaCompileMs = 15,  ///< bits of the double
};

inline constexpr std::uint64_t AlignEntry(std::uint64_t offset) {
  return (offset + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment;
}

}  // namespace tilewright
