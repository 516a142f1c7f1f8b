#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/formats/random_blocks.h"
#include "core/random.h"
#include "core/tensor_access.h"
#include "core/text.h"
#include "tilewright/result.h"
#include "tilewright/tensor.h"

/// Helpers for tests only: calls of an operation whose tensors lie in one piece of memory, so that
/// a device's copy of all of it is compared with the oracle's, guard bands and paddings included.

namespace tilewright::test {

/// Tensors in one piece of memory with NaN (0xff) in front of, between and behind them. Copies lie
/// elsewhere, with the same alignment to 256 bytes.
class Arena {
 public:
  explicit Arena(std::size_t bytes) : lines_(bytes / sizeof(Line) + 1) {
    std::memset(base(), 0xff, size());
  }

  std::byte* base() { return lines_.data()->bytes; }
  const std::byte* base() const { return lines_.data()->bytes; }
  std::size_t size() const { return lines_.size() * sizeof(Line); }

  /// A tensor full of NaN, `misalign` bytes behind a multiple of 256. Strides in elements.
  TensorView Add(DataType type, const std::array<std::int64_t, 4>& shape,
                 const std::array<std::int64_t, 4>& stride, std::size_t misalign = 0) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < 4; ++d) last += (shape[d] - 1) * stride[d];
    const std::int64_t block = GetTypeInfo(type).block_elements;
    const std::size_t bytes = BytesOf(type, (last / block + 1) * block);
    const std::size_t at = used_ + sizeof(Line) + misalign;  // a guard of a line and more
    used_ = (at + bytes + 2 * sizeof(Line) - 1) / sizeof(Line) * sizeof(Line);
    if (used_ > size()) std::abort();  // the test's own mistake
    return {base() + at, shape, stride, type};
  }
  /// The same with random values, or random blocks.
  TensorView Random(DataType type, const std::array<std::int64_t, 4>& shape,
                    const std::array<std::int64_t, 4>& stride, std::uint64_t seed,
                    std::size_t misalign = 0) {
    const TensorView view = Add(type, shape, stride, misalign);
    tilewright::Random random(seed);
    const std::int64_t block = GetTypeInfo(type).block_elements;
    ForEachElement(view, [&](std::int64_t at, std::int64_t first) {
      if (IsFloatType(type)) {
        WriteF64(type, view.data, at, random.Normal());
      } else if (block > 1 && first % block == 0) {
        RandomBlocks(type, 1, random, MutableAddressOf(view, at));
      } else if (block == 1) {
        for (std::size_t i = 0; i < BytesOf(type, 1); ++i)
          MutableAddressOf(view, at)[i] = static_cast<unsigned char>(random.Next() >> 56);
      }
    });
    return view;
  }
  TensorView Ints(const std::vector<std::int32_t>& values, std::int64_t columns = 1) {
    const auto n = static_cast<std::int64_t>(values.size()) / columns;
    const TensorView view = Add(DataType::kI32, {n, columns, 1, 1}, {1, n, n * columns, 0});
    std::memcpy(view.data, values.data(), values.size() * sizeof(std::int32_t));
    return view;
  }

  /// f(offset in elements, number of the element in its row) for every element of a view.
  template <class F>
  static void ForEachElement(const TensorView& view, F&& f) {
    for (std::int64_t row = 0; row < RowCount(view); ++row) {
      for (std::int64_t i = 0; i < view.shape[0]; ++i)
        f(RowOffset(view, row) + i * view.stride[0], i);
    }
  }

 private:
  struct alignas(256) Line {
    std::byte bytes[256];
  };
  std::vector<Line> lines_;
  std::size_t used_ = 0;
};

/// A call whose tensors lie in an arena, and how far its result may be from the oracle's.
template <class Args>
struct ArenaCase {
  std::string name;
  Arena arena;
  Args args;
  std::vector<TensorView Args::*> views;  ///< those of args that may have data
  std::vector<TensorView Args::*> outputs;
  double relative = 0, absolute = 0;  ///< both 0: the same bits, but any NaN for NaN

  /// The arguments in a copy of the arena at `base`.
  Args At(const void* base) const {
    Args moved = args;
    for (TensorView Args::*view : views) {
      if ((args.*view).data == nullptr) continue;
      const auto offset = static_cast<const std::byte*>((args.*view).data) - arena.base();
      (moved.*view).data = const_cast<std::byte*>(static_cast<const std::byte*>(base)) + offset;
    }
    return moved;
  }
};

namespace arena_detail {

/// Whether `got` may stand where the oracle has `want`, of `bytes` bytes.
inline bool MayStand(DataType type, const std::byte* got, const std::byte* want,
                     const std::byte* before, std::size_t bytes, double relative, double absolute) {
  if (std::memcmp(got, want, bytes) == 0) return true;
  if (!IsFloatType(type) || std::memcmp(want, before, bytes) == 0) return false;
  const double have = ReadF64(type, got, 0), need = ReadF64(type, want, 0);
  if (std::isnan(need)) return std::isnan(have);
  return std::isfinite(have) && relative + absolute > 0 &&
         std::abs(have - need) <= relative * std::abs(need) + absolute;
}

}  // namespace arena_detail

/// "" if `got`, a copy of the arena after the call, is what the oracle made of `want`: its outputs
/// within the tolerance and every other byte as it was before; else the first difference.
template <class Args>
std::string DifferenceOf(const ArenaCase<Args>& one, const Arena& got, const Arena& want) {
  std::vector<bool> output(got.size());
  const Args before = one.At(one.arena.base());
  for (TensorView Args::*member : one.outputs) {
    const TensorView& view = before.*member;
    const std::int64_t block = GetTypeInfo(view.dtype).block_elements;
    const auto bytes = static_cast<std::size_t>(GetTypeInfo(view.dtype).block_bytes);
    std::string difference;
    Arena::ForEachElement(view, [&](std::int64_t at, std::int64_t i) {
      if (i % block != 0 || !difference.empty()) return;
      const auto offset = static_cast<std::size_t>(
          reinterpret_cast<const std::byte*>(AddressOf(view, at)) - one.arena.base());
      for (std::size_t b = 0; b < bytes; ++b) output[offset + b] = true;
      const std::byte* have = got.base() + offset;
      const std::byte* need = want.base() + offset;
      if (arena_detail::MayStand(view.dtype, have, need, one.arena.base() + offset, bytes,
                                 one.relative, one.absolute)) {
        return;
      }
      difference = Format("{}: the element at {} of an output", one.name, at);
      if (IsFloatType(view.dtype)) {
        difference +=
            Format(" is {}, not {}", ReadF64(view.dtype, have, 0), ReadF64(view.dtype, need, 0));
      }
    });
    if (!difference.empty()) return difference;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!output[i] && got.base()[i] != one.arena.base()[i])
      return Format("{}: byte {} of the arena, which no output has, was written", one.name, i);
  }
  return {};
}

/// Runs the oracle and `run` (Status(const Args&, Arena&), on a copy of the arena) and compares.
template <class Args, class Run>
std::string RunCase(const ArenaCase<Args>& one, Status (*oracle)(const Args&), Run&& run) {
  Arena want = one.arena, got = one.arena;
  if (Status right = oracle(one.At(want.base())); !right)
    return one.name + ": the oracle: " + right.error().message;
  if (Status ran = run(one, got); !ran) return one.name + ": " + ran.error().message;
  return DifferenceOf(one, got, want);
}

}  // namespace tilewright::test
