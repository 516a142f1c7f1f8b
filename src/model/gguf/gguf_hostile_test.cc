// Damaged files: whatever the bytes are, the reader answers with a file or an error. Run with ASan
// and UBSan (label parse), these tests also show that no byte outside the file is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/allocation_probe.h"
#include "core/random.h"
#include "model/gguf/gguf_test_util.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using test::Bytes;
using test::RawGguf;

// Parses an exactly sized heap copy, so that a read past the end is one past an allocation, and
// reads all that it offers.
bool Survives(const Bytes& bytes) {
  const std::unique_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  const auto file = GgufFile::Parse({copy.get(), bytes.size()}, "test.gguf");
  if (!file) {
    EXPECT_FALSE(file.error().message.empty());
    return false;
  }
  test::ReadEverything(*file);
  return true;
}

TEST(GgufHostile, TheSampleItselfIsFine) { EXPECT_TRUE(Survives(test::SampleFile())); }

TEST(GgufHostile, EveryTruncationIsAnError) {
  const Bytes sample = test::SampleFile();
  for (std::size_t size = 0; size < sample.size(); ++size) {
    EXPECT_FALSE(
        Survives(Bytes(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(size))))
        << "cut to " << size << " of " << sample.size();
  }
}

TEST(GgufHostile, EveryBitFlipIsSurvived) {
  const Bytes sample = test::SampleFile();
  int refused = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes damaged = sample;
      damaged[i] ^= static_cast<std::byte>(1 << bit);
      refused += !Survives(damaged);
    }
  }
  EXPECT_GT(refused, 1000);  // most flips in lengths, types and places are found
}

TEST(GgufHostile, ExtremeNumbersAnywhereAreSurvived) {
  const Bytes sample = test::SampleFile();
  const std::uint64_t extremes[] = {0,
                                    1,
                                    31,
                                    32,
                                    0x7f,
                                    0xff,
                                    0xffff,
                                    0x7fffffff,
                                    0xffffffff,
                                    1ull << 32,
                                    1ull << 40,
                                    (1ull << 61) + 1,
                                    0x7fffffffffffffff,
                                    1ull << 63,
                                    0xfffffffffffffff0,
                                    ~0ull};
  for (std::size_t i = 0; i < sample.size(); ++i) {
    for (const std::uint64_t extreme : extremes) {
      Bytes damaged = sample;
      std::memcpy(damaged.data() + i, &extreme, std::min(sizeof(extreme), damaged.size() - i));
      Survives(damaged);
    }
  }
}

TEST(GgufHostile, RandomDamageIsSurvived) {
  const Bytes sample = test::SampleFile();
  for (std::uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Bytes damaged = sample;
    for (std::uint64_t edits = 1 + random.Below(6); edits > 0; --edits) {
      const auto at = static_cast<std::ptrdiff_t>(random.Below(damaged.size()));
      const auto length =
          std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(1 + random.Below(16)),
                                   static_cast<std::ptrdiff_t>(damaged.size()) - at);
      switch (random.Below(4)) {
        case 0:  // overwrite
          for (std::ptrdiff_t i = 0; i < length; ++i)
            damaged[static_cast<std::size_t>(at + i)] = static_cast<std::byte>(random());
          break;
        case 1:  // remove
          damaged.erase(damaged.begin() + at, damaged.begin() + at + length);
          break;
        case 2: {  // repeat a piece
          const Bytes piece(damaged.begin() + at, damaged.begin() + at + length);
          damaged.insert(damaged.begin() + at, piece.begin(), piece.end());
          break;
        }
        default:  // a small number where a count may stand
          damaged[static_cast<std::size_t>(at)] = static_cast<std::byte>(random.Below(20));
      }
      if (damaged.empty()) break;
    }
    Survives(damaged);
  }
}

TEST(GgufHostile, RandomBytesAfterTheHeaderAreSurvived) {
  for (std::uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    RawGguf raw;
    raw.Header(random.Below(4), random.Below(4));
    for (std::uint64_t i = random.Below(200); i > 0; --i) {
      // Mostly zeros, since lengths are eight bytes of which most must be zero to get anywhere.
      raw.Put(static_cast<std::uint8_t>(random.Below(4) == 0 ? random.Below(16) : 0));
    }
    Survives(raw.bytes);
  }
}

TEST(GgufHostile, HugeCountsAllocateNothingLarge) {
  const std::uint64_t huge[] = {1000,       1u << 20,         1ull << 32, 1ull << 40,
                                1ull << 60, (1ull << 61) + 1, ~0ull};
  for (const std::uint64_t count : huge) {
    SCOPED_TRACE(count);
    const RawGguf files[] = {
        RawGguf().Header(0, count).U32("k", 1),
        RawGguf().Header(count, 0).Tensor("t", {8}, 0, 0).Data(32),
        RawGguf().Header(0, 1).Put(count).Text("key"),
        RawGguf().Header(0, 1).Key("k", GgufType::kString).Put(count).Text("value"),
        RawGguf()
            .Header(0, 1)
            .Key("k", GgufType::kArray)
            .Array(GgufType::kU8, count)
            .Text("elements"),
        RawGguf()
            .Header(0, 1)
            .Key("k", GgufType::kArray)
            .Array(GgufType::kString, count)
            .String("element"),
        RawGguf()
            .Header(0, 1)
            .Key("k", GgufType::kArray)
            .Array(GgufType::kArray, count)
            .Array(GgufType::kU8, 0),
        RawGguf().Header(0, 1).Key("k", GgufType::kArray).Array(GgufType::kF64, count).Put(1.0),
        RawGguf().Header(1, 0).Put(count).Text("name").Data(32),
        RawGguf().Header(1, 0).Tensor("t", {static_cast<std::int64_t>(count), 1}, 0, 0).Data(32),
    };
    for (const RawGguf& raw : files) {
      AllocationProbe::ForgetLargest();
      const auto file = raw.Parse();
      EXPECT_FALSE(file);
      EXPECT_LT(AllocationProbe::Largest(), 8192u);
    }
  }
}

}  // namespace
}  // namespace tilewright
