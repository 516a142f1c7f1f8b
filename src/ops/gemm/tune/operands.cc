#include "ops/gemm/tune/operands.h"

#include <algorithm>
#include <cstring>

#include "core/block_format.h"
#include "core/random.h"
#include "core/text.h"

namespace tilewright {

Result<GuardedBuffer> GuardedBuffer::Make(std::size_t bytes, const char* what) {
  GuardedBuffer result;
  result.buffer_ = Buffer::Make(bytes + 2 * kGuard);
  result.bytes_ = bytes;
  if (!result.buffer_)
    return Fail(ErrorCode::kOutOfMemory, Format("no memory for {}: {} bytes", what, bytes));
  result.Poison();
  return result;
}

void GuardedBuffer::Poison() { std::memset(buffer_.data(), 0xff, bytes_ + 2 * kGuard); }

bool GuardedBuffer::Intact() const {
  const auto* bytes = buffer_.as<unsigned char>();
  const auto untouched = [](unsigned char byte) { return byte == 0xff; };
  return std::all_of(bytes, bytes + kGuard, untouched) &&
         std::all_of(bytes + kGuard + bytes_, bytes + 2 * kGuard + bytes_, untouched);
}

namespace {

// Integer types have no encoding from floats: they get random bytes.
bool IsByteType(DataType type) {
  return type == DataType::kI8 || type == DataType::kU8 || type == DataType::kU4;
}

void FillBytes(std::size_t bytes, Random& random, void* data) {
  auto* out = static_cast<unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<unsigned char>(random.Next() >> 56);
    if (out[i] == 0x80)
      out[i] = 0x81;  // -128 has no opposite: symmetric int8 kernels need not take it
  }
}

}  // namespace

Status FillActivations(DataType type, std::int64_t lines, std::int64_t length, Activations kind,
                       std::uint64_t seed, void* data) {
  Random random(seed);
  auto* out = static_cast<unsigned char*>(data);
  const std::size_t line_bytes = BytesOf(type, length);
  if (IsByteType(type)) {
    FillBytes(static_cast<std::size_t>(lines) * line_bytes, random, data);
    return {};
  }
  std::vector<float> line(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < lines; ++i) {
    for (std::int64_t j = 0; j < length; ++j) {
      double value = random.Uniform(-2, 2);
      if (kind == Activations::kWholeNumbers) {
        value = static_cast<double>(random.Between(-127, 127));
        if (j % 16 == (i + 5) % 16) value = value < 0 ? -127 : 127;
      }
      line[static_cast<std::size_t>(j)] = static_cast<float>(value);
    }
    if (auto s =
            EncodeRow(type, line.data(), length, out + static_cast<std::size_t>(i) * line_bytes);
        !s)
      return s;
  }
  return {};
}

Status FillWeights(DataType type, std::int64_t lines, std::int64_t length, std::uint64_t seed,
                   void* data) {
  constexpr std::int64_t kDistinct = 251;
  Random random(seed);
  auto* out = static_cast<unsigned char*>(data);
  const std::size_t line_bytes = BytesOf(type, length);
  std::vector<float> line(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < lines; ++i) {
    unsigned char* target = out + static_cast<std::size_t>(i) * line_bytes;
    if (i >= kDistinct) {
      const auto from = static_cast<std::size_t>(random.Below(kDistinct));
      std::memcpy(target, out + from * line_bytes, line_bytes);
      continue;
    }
    if (IsByteType(type)) {
      FillBytes(line_bytes, random, target);
      continue;
    }
    for (float& value : line) value = static_cast<float>(random.Uniform(-0.1, 0.1));
    if (auto s = EncodeRow(type, line.data(), length, target); !s) return s;
  }
  return {};
}

Status FillScales(DataType type, std::int64_t count, double center, bool pairs, std::uint64_t seed,
                  void* data) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count) * (pairs ? 2 : 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool zero = pairs && i % 2 == 1;
    values[i] = zero ? static_cast<float>(random.Between(0, 15))
                     : static_cast<float>(center * random.Uniform(0.5, 1.5));
  }
  return EncodeRow(type, values.data(), static_cast<std::int64_t>(values.size()), data);
}

}  // namespace tilewright
