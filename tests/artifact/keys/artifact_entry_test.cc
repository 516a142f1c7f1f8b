// An entry file is read as it was written or rejected with the reason, whatever its bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "artifact/entry_format.h"
#include "artifact/field_codec.h"
#include "core/random.h"
#include "core/sha256.h"
#include "entry_seal.h"
#include "key_inputs.h"
#include "tilewright/artifact.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

std::string SmallEntry() { return *test::EntryOf(test::FixedInputs(), test::FakeOutput(200, 20)); }
std::string RealisticEntry() {
  return *test::EntryOf(test::FixedInputs(), test::FakeOutput(110000, 38000));
}

void Put(std::string& file, std::size_t at, std::uint64_t value, std::size_t bytes) {
  std::string encoded;
  AppendLittleEndian(encoded, value, bytes);
  file.replace(at, bytes, encoded);
}
std::uint64_t Get(const std::string& file, std::size_t at, std::size_t bytes) {
  return LoadLittleEndian(file.data() + at, bytes);
}
std::size_t MetadataAt(const std::string& file) {
  return kEntryTableAt + Get(file, kEntrySectionCountAt, 4) * kEntryRowBytes;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// `file` with its metadata replaced, everything around it laid out and sealed anew.
std::string WithMetadata(const std::string& file, const std::string& metadata) {
  const std::size_t head_bytes = Get(file, kEntryHeadBytesAt, 4), start = MetadataAt(file);
  std::string head = file.substr(0, start) + metadata;
  head.resize(AlignEntry(head.size() + kEntryDigestBytes));
  std::string out = head + file.substr(head_bytes);
  Put(out, kEntryMetadataBytesAt, metadata.size(), 4);
  Put(out, kEntryHeadBytesAt, head.size(), 4);
  Put(out, kEntryFileBytesAt, out.size(), 8);
  for (std::uint64_t i = 0; i < Get(out, kEntrySectionCountAt, 4); ++i) {
    const std::size_t at = kEntryTableAt + i * kEntryRowBytes + 8;
    Put(out, at, Get(out, at, 8) + head.size() - head_bytes, 8);
  }
  test::SealEntry(out);
  return out;
}
std::string MetadataOf(const std::string& file) {
  return file.substr(MetadataAt(file), Get(file, kEntryMetadataBytesAt, 4));
}

ErrorCode CodeOf(const std::string& file) {
  const auto data = DecodeArtifact(file);
  EXPECT_FALSE(data);
  return data ? ErrorCode::kInternal : data.error().code;
}
std::string MessageOf(const std::string& file) {
  const auto data = DecodeArtifact(file);
  return data ? "it was read" : data.error().message;
}

TEST(ArtifactEntry, GivesBackWhatWasPutIn) {
  const test::KeyInputs inputs = test::FixedInputs();
  const CompileOutput output = test::FakeOutput(3000, 500);
  const auto prepared = test::Prepare(inputs);
  const std::string file = *test::EntryOf(inputs, output);
  const auto data = DecodeArtifact(file);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->spec, inputs.spec);
  EXPECT_EQ(data->request, prepared->input.request.key);
  EXPECT_EQ(data->request_record, prepared->input.request.bytes);
  EXPECT_EQ(data->action, test::ActionOf(inputs)->key);
  EXPECT_EQ(data->action_record, test::ActionOf(inputs)->bytes);
  EXPECT_EQ(data->compiler, inputs.compiler);
  EXPECT_EQ(data->symbol, prepared->input.symbol);
  EXPECT_EQ(data->launch.threads, 128u);
  EXPECT_EQ(data->launch.dynamic_smem_bytes, 4096u);
  EXPECT_EQ(data->launch_abi, inputs.launch_abi);
  EXPECT_EQ(data->resources, output.resources);
  EXPECT_EQ(data->min_driver, 13000u);
  EXPECT_EQ(data->compile_ms, output.compile_ms);
  EXPECT_EQ(data->cubin, output.cubin);
  EXPECT_EQ(data->ptx, output.ptx);
  EXPECT_EQ(data->source, *prepared->input.spec_header + test::FixedInputs().files["keys/unit.cu"]);
  EXPECT_EQ(data->log, output.log);
  const auto again = EncodeArtifact(*data);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, file) << "equal data give equal bytes";
}

TEST(ArtifactEntry, CubinIsAlignedForAMapping) {
  for (const std::size_t bytes : {1, 63, 64, 65, 4095}) {
    const std::string file = *test::EntryOf(test::FixedInputs(), test::FakeOutput(bytes, 3));
    const auto data = DecodeArtifact(file);
    ASSERT_TRUE(data) << data.error().message;
    EXPECT_EQ(data->cubin.size(), bytes);
    EXPECT_EQ(static_cast<std::size_t>(data->cubin.data() - file.data()) % kEntryAlignment, 0u);
    EXPECT_EQ(file.size() % kEntryAlignment, 0u);
  }
}

TEST(ArtifactEntry, PtxSourceAndLogMayBeEmpty) {
  const std::string file = SmallEntry();
  ArtifactData data = *DecodeArtifact(file);
  data.ptx = data.source = data.log = "";
  data.compile_ms = 0;
  const auto bare = EncodeArtifact(data);
  ASSERT_TRUE(bare) << bare.error().message;
  const auto read = DecodeArtifact(*bare);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->cubin, data.cubin);
  EXPECT_EQ(read->log, "");
}

TEST(ArtifactEntry, TheCommittedFileIsReadAndWrittenTheSame) {
  const std::string file = ReadFile(TILEWRIGHT_TEST_DATA "/artifacts/entry.bin");
  const auto data = DecodeArtifact(file);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->spec, test::FixedSpecs()[0]);
  EXPECT_EQ(file, *test::EntryOf(test::FixedInputs(), test::FakeOutput(1000, 100)))
      << "the format or a key changed: see docs/artifact_entry.md, Versions";
}

TEST(ArtifactEntry, AnotherMajorVersionIsUnsupportedAndSaysSo) {
  for (const std::uint64_t major : {0, 2, 255, 65535}) {
    std::string file = ReadFile(TILEWRIGHT_TEST_DATA "/artifacts/entry.bin");
    Put(file, kEntryMajorAt, major, 2);
    test::SealEntry(file);
    EXPECT_EQ(CodeOf(file), ErrorCode::kUnsupported);
    EXPECT_THAT(MessageOf(file), HasSubstr("format " + std::to_string(major) + ".0"));
    EXPECT_THAT(MessageOf(file), HasSubstr("reads 1.x"));
  }
}

TEST(ArtifactEntry, OfAnotherKeySchemaIsUnsupportedAndSaysSo) {
  const std::string file = SmallEntry();
  std::string metadata = MetadataOf(file);
  metadata[2 * kFieldHeaderBytes] = 9;  // the schema is the first field of the first field
  const std::string_view record =
      std::string_view(metadata).substr(kFieldHeaderBytes, Get(metadata, 3, 4));
  const auto key = Sha256(record);
  std::string other = WithMetadata(file, metadata);
  other.replace(kEntryRequestAt, 32, std::string(key->begin(), key->end()));
  test::SealEntry(other);
  EXPECT_EQ(CodeOf(other), ErrorCode::kUnsupported);
  EXPECT_THAT(MessageOf(other), HasSubstr("schema 9; this version knows 2"));
}

TEST(ArtifactEntry, OfTheFirstKeySchemaIsUnsupportedNotCorrupt) {
  // As the version before this schema wrote it: launch shape and limits were not in its key.
  const std::string file = ReadFile(TILEWRIGHT_TEST_DATA "/artifacts/entry_schema1.bin");
  EXPECT_EQ(CodeOf(file), ErrorCode::kUnsupported);
  EXPECT_THAT(MessageOf(file), HasSubstr("schema 1; this version knows 2"));
}

TEST(ArtifactEntry, OfAnotherLaunchShapeThanItsKeyIsRefused) {
  const std::string file = SmallEntry();
  for (const int member : {0, 1}) {
    ArtifactData data = *DecodeArtifact(file);
    ++(member == 0 ? data.launch.threads : data.launch.dynamic_smem_bytes);
    const auto written = EncodeArtifact(data);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(written.error().message, HasSubstr("the request record has"));
    // And one that somebody sealed all the same.
    std::string metadata = MetadataOf(file);
    std::string field, other;
    const auto value = member == 0 ? data.launch.threads : data.launch.dynamic_smem_bytes;
    const auto tag = static_cast<std::uint16_t>(member == 0 ? kMetaThreads : kMetaDynamicSmem);
    FieldWriter(field).U32(tag, value - 1);
    FieldWriter(other).U32(tag, value);
    const std::size_t at = metadata.find(field, metadata.find("tw_keys_"));
    ASSERT_NE(at, std::string::npos);
    metadata.replace(at, field.size(), other);
    EXPECT_EQ(CodeOf(WithMetadata(file, metadata)), ErrorCode::kCorrupt);
  }
}

TEST(ArtifactEntry, UnknownSpillsStayUnknown) {
  const std::string known = SmallEntry();
  ArtifactData data = *DecodeArtifact(known);
  data.resources.spill_load_bytes = std::nullopt;
  const std::string file = *EncodeArtifact(data);
  const auto read = DecodeArtifact(file);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->resources, data.resources);
  EXPECT_EQ(read->resources.SpillBytes(), std::nullopt);
}

TEST(ArtifactEntry, EverySingleBitFlipIsRefused) {
  const std::string file = SmallEntry();
  ASSERT_LE(file.size(), 4096u);
  ASSERT_TRUE(DecodeArtifact(file));
  std::string flipped = file;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(DecodeArtifact(flipped)) << "bit " << bit;
    flipped[bit / 8] = file[bit / 8];
  }
}

TEST(ArtifactEntry, EveryTruncationIsRefused) {
  const std::string file = SmallEntry();
  for (std::size_t n = 0; n < file.size(); ++n) {
    // A copy of exactly this size, so that a read beyond it is seen by the sanitizer.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
    ASSERT_FALSE(DecodeArtifact(std::string_view(cut.data(), cut.size()))) << n;
  }
}

TEST(ArtifactEntry, EveryTruncationIsRefusedEvenWhenItsLengthAndDigestsAreRight) {
  const std::string file = SmallEntry();
  for (std::size_t n = kEntryTableAt; n < file.size(); ++n) {
    std::string cut = file.substr(0, n);
    Put(cut, kEntryFileBytesAt, n, 8);
    test::SealEntry(cut);
    ASSERT_FALSE(DecodeArtifact(cut)) << n;
  }
}

TEST(ArtifactEntry, TrailingGarbageIsRefused) {
  const std::string file = SmallEntry();
  for (std::size_t n = 1; n <= 130; ++n) {
    for (const char fill : {'\0', 'x'}) {
      std::string longer = file + std::string(n, fill);
      EXPECT_EQ(CodeOf(longer), ErrorCode::kCorrupt) << n;
      Put(longer, kEntryFileBytesAt, longer.size(), 8);
      test::SealEntry(longer);
      EXPECT_EQ(CodeOf(longer), ErrorCode::kCorrupt) << n << " with the length put right";
    }
  }
}

TEST(ArtifactEntry, MessagesNameWhatIsWrong) {
  const std::string file = SmallEntry();
  const auto message = [&](const std::function<void(std::string&)>& change, bool seal) {
    std::string changed = file;
    change(changed);
    if (seal) test::SealEntry(changed);
    return MessageOf(changed);
  };
  const std::size_t cubin_at = Get(file, kEntryTableAt + 8, 8);
  EXPECT_THAT(message([&](std::string& f) { f[cubin_at] ^= 1; }, false),
              HasSubstr("cubin digest differs"));
  EXPECT_THAT(message([](std::string& f) { f[kEntryRequestAt] ^= 1; }, false),
              HasSubstr("header digest differs"));
  EXPECT_THAT(message([](std::string& f) { f[0] = 'x'; }, false), HasSubstr("magic"));
  EXPECT_THAT(message([](std::string& f) { f.resize(10); }, false), HasSubstr("10 bytes"));
  EXPECT_THAT(message([](std::string& f) { Put(f, kEntryHeadBytesAt, 1 << 20, 4); }, false),
              HasSubstr("header length 1048576 beyond the file's"));
  EXPECT_THAT(message([](std::string& f) { Put(f, kEntryFlagsAt, 4, 4); }, true),
              HasSubstr("flags 0x4"));
}

TEST(ArtifactEntry, ImpossibleLengthsAreRefusedWhateverTheDigests) {
  const std::string file = SmallEntry();
  const std::uint64_t bad32[] = {0,  1,          31,         63,         64,
                                 65, 0x7fffffff, 0x80000000, 0xffffffc0, 0xffffffff};
  for (const std::size_t at :
       {kEntryHeadBytesAt, kEntrySectionCountAt, kEntryMetadataBytesAt, kEntryReservedAt}) {
    for (const std::uint64_t value : bad32) {
      if (Get(file, at, 4) == value) continue;
      std::string changed = file;
      Put(changed, at, value, 4);
      test::SealEntry(changed);
      EXPECT_FALSE(DecodeArtifact(changed)) << at << " = " << value;
    }
  }
  const std::uint64_t bad64[] = {0,          1,          64,    file.size() - 1, file.size() + 1,
                                 1ull << 32, 1ull << 63, ~0ull, ~0ull - 63};
  for (std::uint64_t i = 0; i < kEntrySections; ++i) {
    const std::size_t row = kEntryTableAt + i * kEntryRowBytes;
    for (const std::size_t at : {row + 8, row + 16}) {
      for (const std::uint64_t value : bad64) {
        // 64 bytes would only take zeros of the padding into the section.
        if (Get(file, at, 8) == value || (at == row + 16 && value == 64)) continue;
        std::string changed = file;
        Put(changed, at, value, 8);
        test::SealEntry(changed);
        EXPECT_FALSE(DecodeArtifact(changed)) << at << " = " << value;
      }
    }
  }
  for (const std::uint64_t value : bad64) {
    std::string changed = file;
    Put(changed, kEntryFileBytesAt, value, 8);
    test::SealEntry(changed);
    EXPECT_FALSE(DecodeArtifact(changed)) << value;
  }
}

TEST(ArtifactEntry, MetadataLengthsThatRunOverAreRefused) {
  const std::string file = SmallEntry();
  const std::string metadata = MetadataOf(file);
  FieldReader reader(metadata);
  std::size_t at = 0;
  while (!reader.AtEnd()) {
    const Field field = *reader.Next();
    for (const std::uint64_t length :
         {std::uint64_t{0}, field.value.size() - 1, field.value.size() + 1, metadata.size() - at,
          std::size_t{0x7fffffff}, std::size_t{0xffffffff}}) {
      std::string changed = metadata;
      Put(changed, at + 3, length, 4);
      EXPECT_FALSE(DecodeArtifact(WithMetadata(file, changed))) << field.tag << " " << length;
    }
    at += kFieldHeaderBytes + field.value.size();
  }
}

TEST(ArtifactEntry, MissingDoubledAndUnorderedMetadataIsRefused) {
  const std::string file = SmallEntry();
  const std::string metadata = MetadataOf(file);
  ASSERT_TRUE(DecodeArtifact(WithMetadata(file, metadata))) << "an unchanged copy is read";
  std::vector<std::string> fields;
  for (FieldReader reader(metadata); !reader.AtEnd();) {
    const Field field = *reader.Next();
    const std::size_t at = static_cast<std::size_t>(field.value.data() - metadata.data());
    fields.push_back(
        metadata.substr(at - kFieldHeaderBytes, kFieldHeaderBytes + field.value.size()));
  }
  const auto joined = [](const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += part;
    return out;
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    auto without = fields, twice = fields, swapped = fields;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), fields[i]);
    std::swap(swapped[i], swapped[(i + 1) % fields.size()]);
    EXPECT_EQ(CodeOf(WithMetadata(file, joined(without))), ErrorCode::kCorrupt) << i;
    EXPECT_EQ(CodeOf(WithMetadata(file, joined(twice))), ErrorCode::kCorrupt) << i;
    EXPECT_EQ(CodeOf(WithMetadata(file, joined(swapped))), ErrorCode::kCorrupt) << i;
  }
}

TEST(ArtifactEntry, UnknownOptionalMetadataIsSkippedOtherIsUnsupported) {
  const std::string file = SmallEntry();
  std::string optional = MetadataOf(file), demanded = optional;
  FieldWriter(optional).Text(kOptionalMetadata | 77, "of a later minor version");
  FieldWriter(demanded).Text(77, "of a later minor version");
  const std::string later = WithMetadata(file, optional);
  const auto data = DecodeArtifact(later);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->cubin, DecodeArtifact(file)->cubin);
  EXPECT_EQ(CodeOf(WithMetadata(file, demanded)), ErrorCode::kUnsupported);
  FieldWriter(optional).Text(kOptionalMetadata | 77, "of a later minor version");
  EXPECT_EQ(CodeOf(WithMetadata(file, optional)), ErrorCode::kCorrupt) << "twice";
}

TEST(ArtifactEntry, ALaterMinorVersionIsRead) {
  std::string file = SmallEntry();
  Put(file, kEntryMinorAt, 7, 2);
  test::SealEntry(file);
  EXPECT_TRUE(DecodeArtifact(file));
}

TEST(ArtifactEntry, UnknownSectionsAreSkippedWhenTheyMayBe) {
  const std::string file = SmallEntry();
  const auto with_section = [&](std::uint32_t tag) {
    const std::size_t head_bytes = Get(file, kEntryHeadBytesAt, 4);
    std::string row;
    AppendLittleEndian(row, tag, 4);
    row.resize(8);
    std::string head =
        file.substr(0, MetadataAt(file)) + row + std::string(48, '\0') + MetadataOf(file);
    head.resize(AlignEntry(head.size() + kEntryDigestBytes));
    std::string out = head + file.substr(head_bytes);
    const std::size_t at = MetadataAt(file);
    Put(out, at + 8, out.size(), 8);
    Put(out, at + 16, 5, 8);
    out += std::string("later") + std::string(59, '\0');
    Put(out, kEntrySectionCountAt, kEntrySections + 1, 4);
    Put(out, kEntryHeadBytesAt, head.size(), 4);
    Put(out, kEntryFileBytesAt, out.size(), 8);
    for (std::uint64_t i = 0; i < kEntrySections; ++i) {
      const std::size_t offset = kEntryTableAt + i * kEntryRowBytes + 8;
      Put(out, offset, Get(out, offset, 8) + head.size() - head_bytes, 8);
    }
    test::SealEntry(out);
    return out;
  };
  const std::string later = with_section(kOptionalSection | 9);
  ASSERT_TRUE(DecodeArtifact(later)) << MessageOf(later);
  EXPECT_EQ(DecodeArtifact(later)->cubin, DecodeArtifact(file)->cubin);
  EXPECT_EQ(CodeOf(with_section(9)), ErrorCode::kUnsupported);
  EXPECT_EQ(CodeOf(with_section(kSectionLog)), ErrorCode::kCorrupt) << "a section twice";
  EXPECT_EQ(CodeOf(with_section(0)), ErrorCode::kCorrupt);
  std::string spoiled = later;
  spoiled[spoiled.size() - 64] ^= 1;  // the skipped section's first byte
  EXPECT_EQ(CodeOf(spoiled), ErrorCode::kCorrupt);
}

TEST(ArtifactEntry, PaddingHidesNothing) {
  const std::string file = SmallEntry();
  const std::size_t head_bytes = Get(file, kEntryHeadBytesAt, 4);
  std::vector<std::size_t> gaps;
  for (std::size_t at = MetadataAt(file) + Get(file, kEntryMetadataBytesAt, 4);
       at < head_bytes - kEntryDigestBytes; ++at) {
    gaps.push_back(at);
  }
  for (std::uint64_t i = 0; i < kEntrySections; ++i) {
    const std::size_t row = kEntryTableAt + i * kEntryRowBytes;
    const std::uint64_t end = Get(file, row + 8, 8) + Get(file, row + 16, 8);
    for (std::uint64_t at = end; at < AlignEntry(end); ++at) gaps.push_back(at);
  }
  ASSERT_GT(gaps.size(), 50u);
  for (const std::size_t at : gaps) {
    std::string changed = file;
    changed[at] = 1;
    test::SealEntry(changed);
    EXPECT_EQ(CodeOf(changed), ErrorCode::kCorrupt) << at;
  }
}

TEST(ArtifactEntry, PartsOfTwoEntriesMakeNone) {
  test::KeyInputs other_inputs = test::FixedInputs();
  other_inputs.spec.tile_m = 64;
  const std::string a = SmallEntry();
  std::string b = *test::EntryOf(other_inputs, test::FakeOutput(200, 20));
  ASSERT_EQ(a.size(), b.size());
  const std::size_t head_bytes = Get(a, kEntryHeadBytesAt, 4);
  // The same payload under another header, and the keys of one over the records of the other.
  EXPECT_EQ(CodeOf(a.substr(0, head_bytes) + b.substr(head_bytes)), ErrorCode::kCorrupt);
  for (const std::size_t at : {kEntryRequestAt, kEntryActionAt}) {
    std::string swapped = a;
    swapped.replace(at, 32, b, at, 32);
    test::SealEntry(swapped);
    EXPECT_EQ(CodeOf(swapped), ErrorCode::kCorrupt);
    EXPECT_THAT(MessageOf(swapped), HasSubstr("record digest differs"));
  }
}

TEST(ArtifactEntry, AForgedCollisionIsRefused) {
  // The key of one kernel, the record and code of another, all digests right.
  test::KeyInputs other_inputs = test::FixedInputs();
  other_inputs.spec.tile_m = 64;
  const std::string a = SmallEntry();
  std::string forged = *test::EntryOf(other_inputs, test::FakeOutput(200, 20));
  forged.replace(kEntryRequestAt, 64, a, kEntryRequestAt, 64);
  test::SealEntry(forged);
  EXPECT_EQ(CodeOf(forged), ErrorCode::kCorrupt);

  // A request record and an action record that belong to different kernels.
  const auto request = test::RequestOf(test::FixedInputs());
  const auto action = test::ActionOf(other_inputs);
  const auto prepared = test::Prepare(test::FixedInputs());
  ArtifactData data = *DecodeArtifact(a);
  data.action_record = action->bytes;
  const auto encoded = EncodeArtifact(data);
  ASSERT_FALSE(encoded);
  EXPECT_EQ(encoded.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(encoded.error().message, HasSubstr(request->key.Hex()));
}

TEST(ArtifactEntry, HeaderFieldsThatDisagreeWithTheRecordsAreRefused) {
  const std::string file = SmallEntry();
  const std::string metadata = MetadataOf(file);
  const auto changed_text = [&](std::string_view from, std::string_view to) {
    std::string changed = metadata;
    changed.replace(changed.rfind(from), from.size(), to);
    return MessageOf(WithMetadata(file, changed));
  };
  EXPECT_THAT(changed_text("tw_keys_", "tw_kezs_"), HasSubstr("symbol"));
  const auto changed_number = [&](std::uint16_t tag, std::uint64_t value) {
    std::string changed = metadata;
    for (FieldReader reader(metadata); !reader.AtEnd();) {
      const Field field = *reader.Next();
      if (field.tag != tag) continue;
      Put(changed, static_cast<std::size_t>(field.value.data() - metadata.data()), value,
          field.value.size());
    }
    return MessageOf(WithMetadata(file, changed));
  };
  EXPECT_THAT(changed_number(kMetaLaunchAbi, 9), HasSubstr("launch_abi = 9"));
  for (const std::uint64_t bits : {0x7ff8000000000000ull, 0x7ff0000000000000ull,
                                   0xbff0000000000000ull, 0x8000000000000000ull}) {
    EXPECT_THAT(changed_number(kMetaCompileMs, bits), HasSubstr("compile_ms"));
  }
  EXPECT_EQ(changed_number(kMetaRegisters, 41), "it was read") << "nothing else was changed";
}

TEST(ArtifactEntry, WhatCannotBeReadIsNotWritten) {
  const std::string file = SmallEntry();
  const ArtifactData good = *DecodeArtifact(file);
  const auto refused = [&](const std::function<void(ArtifactData&)>& spoil) {
    ArtifactData data = good;
    spoil(data);
    const auto encoded = EncodeArtifact(data);
    return !encoded && encoded.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](ArtifactData& d) { d.cubin = ""; }));
  EXPECT_TRUE(refused([](ArtifactData& d) { d.symbol = "main"; }));
  EXPECT_TRUE(refused([](ArtifactData& d) { ++d.launch_abi; }));
  EXPECT_TRUE(refused([](ArtifactData& d) { d.compile_ms = -1; }));
  EXPECT_TRUE(refused([](ArtifactData& d) { d.compile_ms = std::nan(""); }));
  EXPECT_TRUE(refused([](ArtifactData& d) { d.request_record = "x"; }));
  EXPECT_TRUE(refused([](ArtifactData& d) { d.action_record = d.request_record; }));
  EXPECT_FALSE(refused([](ArtifactData& d) { d.spec = KernelSpec(); })) << "taken from the record";
  CompileOutput empty = test::FakeOutput(1, 0);
  empty.cubin.clear();
  EXPECT_EQ(test::EntryOf(test::FixedInputs(), empty).error().code, ErrorCode::kInvalidArgument);
}

/// One to four changes of the kinds that files suffer.
std::string Mutated(Random& random, const std::string& file) {
  const auto below = [&](std::uint64_t n) { return random.Next() % n; };
  std::string out = file;
  for (std::uint64_t n = 1 + below(4); n > 0 && !out.empty(); --n) {
    // Half of the changes hit the header, where the decisions are.
    const std::size_t limit = below(2) == 0 ? std::min<std::size_t>(out.size(), 3072) : out.size();
    const std::size_t at = below(limit);
    switch (below(7)) {
      case 0:
        out[at] = static_cast<char>(out[at] ^ (1 << below(8)));
        break;
      case 1:
        out[at] = static_cast<char>(random.Next());
        break;
      case 2:
        out.resize(at);
        break;
      case 3:
        out.insert(at, std::string(1 + below(80), static_cast<char>(random.Next())));
        break;
      case 4:
        out.erase(at, 1 + below(80));
        break;
      case 5: {
        const std::size_t from = below(out.size());
        out.replace(at, 64, out, from, 64);
        break;
      }
      default:
        for (std::size_t i = at; i < std::min(out.size(), at + 8); ++i) {
          out[i] = below(2) == 0 ? '\0' : '\xff';
        }
    }
  }
  return out;
}

TEST(ArtifactEntry, TwentyThousandMutationsOfARealisticFileAreRefusedOrHarmless) {
  const std::string file = RealisticEntry();
  ASSERT_GT(file.size(), 148000u);
  ASSERT_TRUE(DecodeArtifact(file));
  Random random(4);
  int sealed_and_read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string mutated = Mutated(random, file);
    const bool sealed = i % 2 == 1;
    if (sealed) {
      if (i % 4 == 1 && mutated.size() > kEntryTableAt) {
        Put(mutated, kEntryFileBytesAt, mutated.size(), 8);
      }
      test::SealEntry(mutated);
    }
    const auto data = DecodeArtifact(mutated);
    if (!data) {
      ASSERT_TRUE(data.error().code == ErrorCode::kCorrupt ||
                  data.error().code == ErrorCode::kUnsupported)
          << data.error().message;
      continue;
    }
    // Somebody who seals it anew may change the code; he cannot change what it claims to be.
    ASSERT_TRUE(sealed || mutated == file) << i;
    const auto again = EncodeArtifact(*data);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(data->request, test::RequestOf(test::FixedInputs())->key);
    ++sealed_and_read;
  }
  EXPECT_GT(sealed_and_read, 1000) << "mutations should also reach what lies behind the digests";
}

TEST(ArtifactEntry, ReadingItCostsLittleMoreThanItsDigest) {
  using Clock = std::chrono::steady_clock;
  const std::string file = RealisticEntry();
  // By turns, and the best of each: what slows the machine down for a while slows both. Measured:
  // 1.1 times; hashing anything twice would be twice.
  auto best = Clock::duration::max(), digest = Clock::duration::max();
  for (int i = 0; i < 300; ++i) {
    auto start = Clock::now();
    ASSERT_TRUE(DecodeArtifact(file));
    best = std::min(best, Clock::now() - start);
    start = Clock::now();
    ASSERT_TRUE(Sha256(file));
    digest = std::min(digest, Clock::now() - start);
  }
  EXPECT_LE(best, 4 * digest);
}

}  // namespace
}  // namespace tilewright
