// No damage goes undetected: it is rejected on opening, on loading, or by Verify, and nothing
// crashes (CI runs these under ASan and UBSan).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_format.h"
#include "artifact/bundle/bundle_test_util.h"
#include "core/random.h"

namespace tilewright {
namespace {

namespace f = bundle_format;
using test::SomeArtifacts;
using test::Trouble;
using ::testing::HasSubstr;

template <class T>
void Put(std::string& bytes, std::size_t at, T value) {
  std::string text;
  f::Append(text, value);
  bytes.replace(at, text.size(), text);
}
template <class T>
T Get(const std::string& bytes, std::size_t at) {
  return f::Load<T>(bytes.data() + at);
}
std::size_t CompatBytes(const std::string& bytes) {
  return Get<std::uint32_t>(bytes, f::kCompatBytesAt);
}
std::size_t KeysAt(const std::string& bytes) { return f::kHeaderBytes + CompatBytes(bytes); }
std::size_t RecordsAt(const std::string& bytes) {
  return KeysAt(bytes) + Get<std::uint32_t>(bytes, f::kEntryCountAt) * f::kKeyBytes;
}
std::size_t BlobsAt(const std::string& bytes) {
  return RecordsAt(bytes) + Get<std::uint32_t>(bytes, f::kEntryCountAt) * f::kRecordBytes;
}

std::string Small() {
  SomeArtifacts some;
  return *EncodeBundle(some.MakeSeveral(2));
}

/// Four kernels of the size that real ones have.
std::string RealSize() {
  SomeArtifacts some;
  std::vector<ArtifactData> artifacts;
  for (int i = 0; i < 4; ++i) {
    SomeArtifacts::Choice choice;
    choice.cubin_bytes = 40000 + 9000 * static_cast<std::size_t>(i);
    choice.ptx = test::RandomText(100 + static_cast<std::uint64_t>(i), 12000);
    choice.source = std::string(8000, 's');
    if (i == 3) choice.arch = {80, 0};
    artifacts.push_back(some.Make(i, choice));
  }
  return *EncodeBundle(artifacts);
}

TEST(BundleDamage, EveryBitFlipOfASmallOneIsFound) {
  std::string bytes = Small();
  ASSERT_LE(bytes.size(), 4096u);
  ASSERT_EQ(Trouble(bytes), "");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      EXPECT_NE(Trouble(bytes), "") << "byte " << at << " bit " << bit;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    }
  }
  EXPECT_EQ(Trouble(bytes), "");
}

TEST(BundleDamage, EveryTruncationIsRefusedByOpening) {
  const std::string bytes = Small();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly this size: ASan sees a read beyond it.
    const std::vector<char> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(Bundle::FromBytes({cut.data(), cut.size()})) << size;
  }
}

TEST(BundleDamage, TrailingGarbageIsRefused) {
  const std::string bytes = Small();
  for (const std::size_t more : {1, 64, 103, 104, 4096}) {
    EXPECT_FALSE(Bundle::FromBytes(bytes + std::string(more, '\0'))) << more;
  }
}

TEST(BundleDamage, TheFirstThingWrongIsNamed) {
  const std::string bytes = Small();
  const auto first = [&](std::size_t at, bool reseal) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    if (reseal) test::Reseal(damaged);
    return Trouble(damaged);
  };
  EXPECT_THAT(first(0, false), HasSubstr("TWBUNDLE"));
  EXPECT_THAT(first(8, false), HasSubstr("format"));
  EXPECT_THAT(first(f::kEntryCountAt, false), HasSubstr("manifest digest"));
  EXPECT_THAT(first(f::kEntryCountAt, true), HasSubstr("entries"));
  EXPECT_THAT(first(52, true), HasSubstr("reserved"));
  EXPECT_THAT(first(f::kSignatureBytesAt, false), HasSubstr("signature"));
  EXPECT_THAT(first(f::kHeaderBytes - 1, false), HasSubstr("reserved"));
  EXPECT_THAT(first(KeysAt(bytes), false), HasSubstr("index: its digest"));
  EXPECT_THAT(first(RecordsAt(bytes) + 36, true), HasSubstr("reserved"));
  const std::size_t payload = Get<std::uint64_t>(bytes, f::kPayloadOffsetAt);
  EXPECT_THAT(first(payload, false), HasSubstr("payload digest of its description"));
  EXPECT_THAT(first(BlobsAt(bytes) + 16, false), HasSubstr("index: its digest"));
  // The key of an entry is that of its request record, whatever the digests say.
  EXPECT_THAT(first(KeysAt(bytes) + 31, true),
              HasSubstr("digest of its request record does not match"));
}

TEST(BundleDamage, EntriesOutOfOrderAndDuplicatesAreRefused) {
  const std::string bytes = Small();
  const std::size_t keys = KeysAt(bytes);
  std::string swapped = bytes;
  swapped.replace(keys, 32, bytes, keys + 32, 32);
  swapped.replace(keys + 32, 32, bytes, keys, 32);
  test::Reseal(swapped);
  EXPECT_THAT(Trouble(swapped), HasSubstr("not in ascending order"));
  std::string twice = bytes;
  twice.replace(keys + 32, 32, bytes, keys, 32);
  test::Reseal(twice);
  EXPECT_THAT(Trouble(twice), HasSubstr("not in ascending order"));
}

TEST(BundleDamage, OverlappingAndStrayPayloadsAreRefused) {
  const std::string bytes = Small();
  const std::size_t blob = BlobsAt(bytes) + f::kBlobBytes;
  const auto offset = Get<std::uint64_t>(bytes, blob), size = Get<std::uint64_t>(bytes, blob + 8);
  const auto with = [&](std::uint64_t new_offset, std::uint64_t new_size) {
    std::string damaged = bytes;
    Put(damaged, blob, new_offset);
    Put(damaged, blob + 8, new_size);
    test::Reseal(damaged);
    return Trouble(damaged);
  };
  ASSERT_EQ(with(offset, size), "");
  for (const std::uint64_t other :
       {std::uint64_t{0}, offset - 64, offset + 64, offset + 1, std::uint64_t{bytes.size()},
        ~std::uint64_t{0}, ~std::uint64_t{63}}) {
    EXPECT_THAT(with(other, size), HasSubstr("index: blob 1")) << other;
  }
  for (const std::uint64_t other : {std::uint64_t{0}, std::uint64_t{bytes.size()},
                                    ~std::uint64_t{0}, ~std::uint64_t{0} - offset + 1}) {
    EXPECT_THAT(with(offset, other), HasSubstr("index: blob")) << other;
  }
  EXPECT_THAT(with(offset, size + 64), HasSubstr("index: blob"));
}

TEST(BundleDamage, HugeCountsAreRefusedBeforeAnythingIsAllocated) {
  const std::string bytes = Small();
  for (const std::size_t at : {f::kContentBytesAt, f::kIndexBytesAt, f::kPayloadOffsetAt,
                               f::kEntryCountAt, f::kBlobCountAt, f::kCompatBytesAt}) {
    for (const std::uint32_t value : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      for (const std::size_t half : {0, 4}) {
        if (half == 4 && at >= f::kEntryCountAt) continue;
        std::string damaged = bytes;
        Put(damaged, at + half, value);
        if (damaged == bytes) continue;
        test::Reseal(damaged);
        EXPECT_NE(Trouble(damaged), "") << at << " = " << value;
      }
    }
  }
  // The lists of the compat block: architectures, launch ABIs, compilers, a text's length.
  for (const std::size_t at : {0, 8, 24, 28}) {
    std::string damaged = bytes;
    Put(damaged, f::kHeaderBytes + at, 0xffffffffu);
    test::Reseal(damaged);
    EXPECT_THAT(Trouble(damaged), HasSubstr("compat block")) << at;
  }
}

TEST(BundleDamage, RecordsThatPointNowhereAreRefused) {
  const std::string bytes = Small();
  const auto with = [&](std::size_t field, std::uint32_t value) {
    std::string damaged = bytes;
    Put(damaged, RecordsAt(bytes) + field, value);
    test::Reseal(damaged);
    return Trouble(damaged);
  };
  EXPECT_THAT(with(16, 1), HasSubstr("compiler 1 of 1"));
  EXPECT_THAT(with(4, 80), HasSubstr("compat block"));
  EXPECT_THAT(with(8, 4), HasSubstr("compat block"));
  EXPECT_THAT(with(12, 12000), HasSubstr("compat block"));
  EXPECT_THAT(with(20, f::kNoBlob), HasSubstr("no description"));
  EXPECT_THAT(with(24, 99), HasSubstr("out of order"));
  EXPECT_THAT(with(24, f::kNoBlob), HasSubstr("no cubin"));
  // Parts exchanged: the description of an entry is no cubin.
  EXPECT_NE(with(24, 0), "");
}

TEST(BundleDamage, ACompatBlockThatClaimsTooMuchIsFoundByVerify) {
  SomeArtifacts some;
  SomeArtifacts::Choice newer;
  newer.min_driver = 13010;
  std::string bytes = *EncodeBundle(std::vector<ArtifactData>{some.Make(1), some.Make(2, newer)});
  const std::size_t lowest = f::kHeaderBytes + 4 + 4 + 4 + 4;
  ASSERT_EQ(Get<std::uint32_t>(bytes, lowest), 13000u);
  Put<std::uint32_t>(bytes, lowest, 11000);
  test::Reseal(bytes);
  EXPECT_THAT(Trouble(bytes), HasSubstr("compat block lists something that no entry has"));
}

TEST(BundleDamage, NonZeroPaddingIsFound) {
  std::string bytes = Small();
  const std::size_t blob = BlobsAt(bytes);
  const auto end = Get<std::uint64_t>(bytes, blob) + Get<std::uint64_t>(bytes, blob + 8);
  ASSERT_NE(end % 64, 0u);
  bytes[end] = 1;
  EXPECT_THAT(Trouble(bytes), HasSubstr("padding"));
}

/// One random change: flipped bits, overwritten ranges, moved ranges, extreme numbers.
void Mutate(Random& random, std::string& bytes) {
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random.Next() % std::uint64_t{n});
  };
  // Half of the changes hit header and index, which are a small part of the file.
  const std::size_t head = Get<std::uint64_t>(bytes, f::kPayloadOffsetAt);
  const std::size_t area = below(2) == 0 ? head : bytes.size();
  const std::size_t at = below(area), size = 1 + below(std::min<std::size_t>(64, area - at));
  switch (below(5)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      for (std::size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(random.Next() >> 56);
      break;
    case 2:
      bytes.replace(at, size, bytes.substr(below(bytes.size() - size), size));
      break;
    case 3:
      std::memset(bytes.data() + at, below(2) == 0 ? 0 : 0xff, size);
      break;
    default:
      if (at + 4 <= bytes.size()) {
        Put(bytes, at, Get<std::uint32_t>(bytes, at) + static_cast<std::uint32_t>(below(3)) - 1);
      }
  }
}

TEST(BundleDamage, TwentyThousandMutationsOfARealSizeAreFound) {
  const std::string sound = RealSize();
  ASSERT_GT(sound.size(), 200000u);
  ASSERT_EQ(Trouble(sound), "");
  Random random(20240607);
  std::string bytes = sound;
  std::size_t unchanged = 0;
  for (int i = 0; i < 20000; ++i) {
    Mutate(random, bytes);
    if (bytes == sound) {
      ++unchanged;
      continue;
    }
    if (i % 16 == 0) {
      const std::size_t cut = random.Next() % bytes.size();
      ASSERT_NE(Trouble(std::string_view(bytes).substr(0, cut)), "") << "cut at " << cut;
    }
    ASSERT_NE(Trouble(bytes), "") << "mutation " << i;
    bytes = sound;
  }
  EXPECT_LT(unchanged, 4000u);
}

// If the digests are corrected after a change, the result can be a valid bundle with other content.
// Then it is what EncodeBundle would have written, since the format is canonical.
TEST(BundleDamage, WhatVerifiesAfterResealingIsWhatWouldBeWritten) {
  const std::string sound = Small();
  Random random(7);
  std::size_t accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = sound;
    Mutate(random, bytes);
    if (bytes == sound) continue;
    test::Reseal(bytes);
    if (Trouble(bytes) != "") continue;
    ++accepted;
    const auto bundle = Bundle::FromBytes(bytes);
    std::vector<ArtifactData> artifacts;
    for (std::size_t k = 0; k < (*bundle)->size(); ++k) artifacts.push_back(*(*bundle)->Load(k));
    const Result<std::string> again = EncodeBundle(artifacts);
    ASSERT_TRUE(again) << "mutation " << i << ": " << again.error().message;
    // A newer minor version is read as this one and written as this one.
    if (Get<std::uint32_t>(bytes, 12) == f::kMinor) {
      ASSERT_EQ(*again, bytes) << "mutation " << i;
    }
  }
  EXPECT_GT(accepted, 1000u);
}

}  // namespace
}  // namespace tilewright
