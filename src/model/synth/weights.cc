#include "model/synth/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/block_format.h"
#include "core/numeric.h"

namespace tilewright::synth {
namespace {

constexpr int kTable = 1 << 16;

// Width of a code in standard deviations.
constexpr float kStepQ4 = 0.36f;
constexpr float kStepQ8 = 4.0f / 127;
constexpr float kStepQ6 = 3.0f / 32;
constexpr float kCentreQ6Scale = 100;  // the 8-bit scales of q6_k are around +-100

// About N(0, 1) and within +-6: the sum of twelve uniform values has variance 1.
float NormalOf(Random& random) {
  std::int64_t sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<std::int64_t>(random.Next() >> 40);
  constexpr std::int64_t kHalf = 6ll << 24;
  return static_cast<float>(static_cast<double>(sum - kHalf) * 0x1p-24);
}

int Code(Random& random, float step, float centre, int most) {
  return std::clamp(static_cast<int>(std::lround(NormalOf(random) / step + centre)), 0, most);
}

// 16 random bits at a time.
class Bits {
 public:
  explicit Bits(Random& random) : random_(random) {}
  std::uint32_t Next() {
    if (left_ == 0) {
      word_ = random_.Next();
      left_ = 4;
    }
    const auto bits = static_cast<std::uint32_t>(word_ & 0xffff);
    word_ >>= 16;
    --left_;
    return bits;
  }
  // In [0.75, 1.25).
  float Jitter() { return 0.75f + static_cast<float>(Next()) * (0.5f / 65536); }

 private:
  Random& random_;
  std::uint64_t word_ = 0;
  int left_ = 0;
};

template <class Block, class Make>
void FillBlocks(std::span<std::byte> out, Make make) {
  for (std::size_t at = 0; at + sizeof(Block) <= out.size(); at += sizeof(Block)) {
    Block block;
    make(block);
    std::memcpy(out.data() + at, &block, sizeof(Block));
  }
}

void MakeQ6(Bits& bits, const std::vector<std::uint8_t>& codes, float deviation, BlockQ6_K& block) {
  block.d = F32ToF16(deviation * kStepQ6 / kCentreQ6Scale);
  for (std::int8_t& scale : block.scales) {
    const float magnitude = kCentreQ6Scale * bits.Jitter();
    scale = static_cast<std::int8_t>(bits.Next() % 2 == 0 ? magnitude : -magnitude);
  }
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 32; ++l) {
      std::uint32_t q[4];
      for (std::uint32_t& code : q) code = codes[bits.Next()];
      block.ql[64 * half + l] = static_cast<std::uint8_t>((q[0] & 15) | ((q[2] & 15) << 4));
      block.ql[64 * half + 32 + l] = static_cast<std::uint8_t>((q[1] & 15) | ((q[3] & 15) << 4));
      block.qh[32 * half + l] = static_cast<std::uint8_t>((q[0] >> 4) | ((q[1] >> 4) << 2) |
                                                          ((q[2] >> 4) << 4) | ((q[3] >> 4) << 6));
    }
  }
}

}  // namespace

bool WeightMaker::Supports(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kQ4_0:
    case DataType::kQ4_1:
    case DataType::kQ8_0:
    case DataType::kQ6_K:
      return true;
    default:
      return false;
  }
}

WeightMaker::WeightMaker(DataType type, std::uint64_t seed) : type_(type) {
  Random random(seed);
  if (!GetTypeInfo(type).block_quantised) {
    normal_.resize(kTable);
    for (float& value : normal_) value = NormalOf(random);
    return;
  }
  codes_.resize(kTable);
  for (std::uint8_t& code : codes_) {
    switch (type) {
      case DataType::kQ4_0: {
        const int low = Code(random, kStepQ4, 8, 15);
        code = static_cast<std::uint8_t>(low | Code(random, kStepQ4, 8, 15) << 4);
        break;
      }
      case DataType::kQ4_1: {
        const int low = Code(random, kStepQ4, 7.5f, 15);
        code = static_cast<std::uint8_t>(low | Code(random, kStepQ4, 7.5f, 15) << 4);
        break;
      }
      case DataType::kQ8_0:
        code = static_cast<std::uint8_t>(Code(random, kStepQ8, 127, 254) - 127);
        break;
      default:
        code = static_cast<std::uint8_t>(Code(random, kStepQ6, 32, 63));
    }
  }
}

void WeightMaker::Fill(Random& random, float mean, float deviation,
                       std::span<std::byte> out) const {
  Bits bits(random);
  switch (type_) {
    case DataType::kF32:
      FillBlocks<float>(out,
                        [&](float& value) { value = mean + deviation * normal_[bits.Next()]; });
      return;
    case DataType::kF16:
      FillBlocks<std::uint16_t>(
          out, [&](std::uint16_t& value) { value = F32ToF16(deviation * normal_[bits.Next()]); });
      return;
    case DataType::kBF16:
      FillBlocks<std::uint16_t>(
          out, [&](std::uint16_t& value) { value = F32ToBF16(deviation * normal_[bits.Next()]); });
      return;
    case DataType::kQ4_0:
      FillBlocks<BlockQ4_0>(out, [&](BlockQ4_0& block) {
        block.d = F32ToF16(deviation * kStepQ4 * bits.Jitter());
        for (std::uint8_t& code : block.qs) code = codes_[bits.Next()];
      });
      return;
    case DataType::kQ4_1:
      FillBlocks<BlockQ4_1>(out, [&](BlockQ4_1& block) {
        const float d = deviation * kStepQ4 * bits.Jitter();
        block.d = F32ToF16(d);
        block.m = F32ToF16(-7.5f * d * (0.75f + 0.25f * bits.Jitter()));
        for (std::uint8_t& code : block.qs) code = codes_[bits.Next()];
      });
      return;
    case DataType::kQ8_0:
      FillBlocks<BlockQ8_0>(out, [&](BlockQ8_0& block) {
        block.d = F32ToF16(deviation * kStepQ8 * bits.Jitter());
        for (std::int8_t& code : block.qs) code = static_cast<std::int8_t>(codes_[bits.Next()]);
      });
      return;
    default:
      FillBlocks<BlockQ6_K>(out, [&](BlockQ6_K& block) { MakeQ6(bits, codes_, deviation, block); });
  }
}

}  // namespace tilewright::synth
