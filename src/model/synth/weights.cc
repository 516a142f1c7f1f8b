#include "model/synth/weights.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/block_format.h"
#include "core/numeric.h"

namespace tilewright::synth {
namespace {

constexpr int kTable = 1 << 16;

// Number of normal values from which the blocks of a pool are made.
constexpr int kPoolValues = 1 << 17;

// About N(0, 1) and within +-6: the sum of twelve uniform values has variance 1.
float NormalOf(Random& random) {
  std::int64_t sum = 0;
  for (int i = 0; i < 12; ++i) sum += static_cast<std::int64_t>(random.Next() >> 40);
  constexpr std::int64_t kHalf = 6ll << 24;
  return static_cast<float>(static_cast<double>(sum - kHalf) * 0x1p-24);
}

}  // namespace

// 16 random bits at a time.
class WeightMaker::Bits {
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

namespace {

/// An exponent of 2, of the two around `deviation` the higher one for as many of the 16 random `bits`
/// that the mean of its squares is that of `deviation`.
int PowerBelow(float deviation, std::uint32_t bits) {
  int exponent = 0;
  const double part = std::frexp(static_cast<double>(deviation), &exponent);  // 0.5 to 1
  const double high = (4 * part * part - 1) / 3;
  return static_cast<double>(bits) < high * 65536 ? exponent : exponent - 1;
}

/// Values fewer than this are converted one by one: a table of all costs as much.
constexpr std::size_t kManyValues = std::size_t{1} << 17;

/// Writes `make(i)` for a random entry i of the table in place of each value, four to a random
/// word, the lowest 16 bits first.
template <class T, class Make>
void FillValues(Random& random, std::span<std::byte> out, Make make) {
  std::size_t at = 0;
  for (; at + 4 * sizeof(T) <= out.size(); at += 4 * sizeof(T)) {
    const std::uint64_t word = random.Next();
    const T four[] = {make(word & 0xffff), make((word >> 16) & 0xffff), make((word >> 32) & 0xffff),
                      make(word >> 48)};
    std::memcpy(out.data() + at, four, sizeof four);
  }
  if (at >= out.size()) return;
  for (std::uint64_t word = random.Next(); at + sizeof(T) <= out.size(); at += sizeof(T)) {
    const T value = make(word & 0xffff);
    std::memcpy(out.data() + at, &value, sizeof value);
    word >>= 16;
  }
}

/// The same values; where there are many, all that there can be are converted once.
template <class T, class Convert>
void FillConverted(Random& random, std::span<std::byte> out, Convert convert) {
  if (out.size() / sizeof(T) < kManyValues) return FillValues<T>(random, out, convert);
  std::vector<T> table(kTable);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = convert(i);
  FillValues<T>(random, out, [&table](std::size_t i) { return table[i]; });
}

}  // namespace

bool WeightMaker::Supports(DataType type) {
  return type == DataType::kF32 || type == DataType::kF16 || type == DataType::kBF16 ||
         FindFormat(type) != nullptr;
}

WeightMaker::WeightMaker(DataType type, std::uint64_t seed)
    : type_(type), format_(FindFormat(type)) {
  Random random(seed);
  std::vector<float> normal(format_ == nullptr ? kTable : kPoolValues);
  for (float& value : normal) value = NormalOf(random);
  if (format_ == nullptr) {
    normal_ = std::move(normal);
    return;
  }
  pool_.resize(BytesOf(type, kPoolValues));
  // Whole blocks of finite values of a type that can be encoded: cannot fail.
  static_cast<void>(EncodeRow(type, normal.data(), kPoolValues, pool_.data()));
}

void WeightMaker::Fill(Random& random, float mean, float deviation,
                       std::span<std::byte> out) const {
  switch (type_) {
    case DataType::kF32:
      return FillConverted<float>(random, out,
                                  [&](std::size_t i) { return mean + deviation * normal_[i]; });
    case DataType::kF16:
      return FillConverted<std::uint16_t>(
          random, out, [&](std::size_t i) { return F32ToF16(deviation * normal_[i]); });
    case DataType::kBF16:
      return FillConverted<std::uint16_t>(
          random, out, [&](std::size_t i) { return F32ToBF16(deviation * normal_[i]); });
    default:
      Bits bits(random);
      FillBlocks(bits, deviation, out);
  }
}

void WeightMaker::FillBlocks(Bits& bits, float deviation, std::span<std::byte> out) const {
  const auto bytes = static_cast<std::size_t>(format_->bytes);
  const auto blocks = static_cast<std::size_t>(kPoolValues / format_->elements);
  for (std::size_t at = 0; at + bytes <= out.size(); at += bytes) {
    std::byte* block = out.data() + at;
    std::memcpy(block, pool_.data() + bits.Next() % blocks * bytes, bytes);
    if (format_->scale == Factor::kPowerOfTwo) {
      std::byte& scale = block[format_->scale_at];
      scale = std::byte(std::to_integer<int>(scale) + PowerBelow(deviation, bits.Next()));
      continue;
    }
    const float factor = deviation * bits.Jitter();
    for (const int offset : {format_->scale_at, format_->min_at}) {
      if (offset < 0) continue;
      std::uint16_t half;
      std::memcpy(&half, block + offset, sizeof half);
      half = F32ToF16(F16ToF32(half) * factor);
      std::memcpy(block + offset, &half, sizeof half);
    }
  }
}

}  // namespace tilewright::synth
