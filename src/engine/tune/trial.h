#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tensor.h"
#include "tilewright/tune.h"

namespace tilewright {

// What a room declares so that its operation can be measured (engine/tune/measurer_template.h),
// beside the oracle `Status Reference(const Args&)`:
//
//   Result<Trial<Op>> MakeTrial(const Desc& desc, const TrialOptions& options);  // made up
//   Args RowsOf(const Args& args, std::int64_t begin, std::int64_t count);
//   LeastWork WorkOf(const Desc& desc);  // and the options, where it depends on them

/// Where a tensor is when an operation of a model runs.
enum class TrialRole : std::uint8_t {
  kRecent,   ///< an input that the operation before has just written
  kStored,   ///< weights, tables, caches: read from memory under the cold policy
  kUpdated,  ///< a cache that the operation writes in part
  kOutput,   ///< written whole
};

/// A tensor of a trial. Its memory is the measurer's, on the device and for the oracle on the host.
struct TrialTensor {
  std::string_view name;
  TrialRole role = TrialRole::kRecent;
  TensorView view;                 ///< contiguous, without memory
  std::vector<std::byte> content;  ///< nothing for an output: it is poisoned
};

/// How far a result may be from the oracle's: `relative` times its magnitude, plus `absolute`. Both
/// 0: the same bytes.
struct Tolerance {
  double relative = 0, absolute = 0;
};

template <class Op>
struct Trial {
  std::vector<TrialTensor> tensors;
  std::vector<std::size_t> outputs;  ///< those that are compared
  std::int64_t rows = 1;  ///< of the outputs, outermost; RowsOf cuts them. 1: compared as a whole
  /// An input, and the output that may take its memory.
  std::optional<std::pair<std::size_t, std::size_t>> in_place;
  std::int64_t positions = 0;  ///< to prepare for (Op::Prepared)
  Tolerance tolerance;
  /// Instead, of kernels that need one of these features, with which they round operands as the
  /// problem allows.
  std::uint32_t rounding_features = 0;
  Tolerance rounded = {};
  const Tolerance& ToleranceOf(const KernelInfo& kernel) const {
    return (kernel.features & rounding_features) != 0 ? rounded : tolerance;
  }
  /// The call over tensors that have memory, in the order of `tensors`.
  typename Op::Args (*args)(const typename Op::Desc& desc,
                            std::span<const TensorView> placed) = nullptr;
};

/// The seed of one tensor, `which` from 1 on, of a trial.
constexpr std::uint64_t SeedOf(const TrialOptions& trial, std::uint64_t which) {
  // An odd factor keeps trials apart, however near their seeds are.
  return which + (trial.seed - 1) * 0x9e3779b97f4a7c15u;
}

/// Normal values of deviation 1 in any type that values can be encoded in; uniform bytes in the
/// other integer types. Large tensors repeat some hundred rows in an irregular order: making each
/// anew would take longer than measuring.
Result<TrialTensor> RandomTensor(std::string_view name, TrialRole role, DataType type,
                                 std::array<std::int64_t, 4> shape, std::uint64_t seed);
TrialTensor IntegerTensor(std::string_view name, std::span<const std::int32_t> values,
                          std::array<std::int64_t, 4> shape);
TrialTensor OutputTensor(std::string_view name, DataType type, std::array<std::int64_t, 4> shape);
std::size_t BytesOf(const TensorView& contiguous);

/// Where the rows of a trial are in a KV cache: consecutive positions of one sequence that begin in
/// the middle of a page; the pages are in descending order. If there are several rows, the last is
/// padding.
struct TrialPlaces {
  std::vector<std::int32_t> positions, slots;
  std::vector<std::int32_t> pages;  ///< empty: the cache is contiguous
  std::int64_t held = 0;            ///< positions of a page, or of the cache
  std::int64_t page_count = 1;
};
TrialPlaces PlacesInCache(std::int32_t rows, std::int32_t page_size);

/// The tensors of a scatter into a KV cache, where PlacesInCache says: the rows [head_dim, heads,
/// rows], the cache, positions, slots and, with pages, their table; in this order.
struct TrialScatter {
  DataType type_rows, type_cache;
  std::int32_t head_dim, heads, rows, page_size;
};
Result<std::vector<TrialTensor>> ScatterTensors(std::string_view rows_name,
                                                const TrialScatter& scatter,
                                                const TrialOptions& options);

/// `count` of dimension `dim` from `begin` on; nothing of a view without memory.
TensorView Slice(const TensorView& view, int dim, std::int64_t begin, std::int64_t count);

/// Units in the last place of a float type, relative to 1: 2^-23 for f32.
double EpsilonOf(DataType type);

/// Compares `count` adjacent values. An element that the oracle did not write (all ones) must equal
/// what `before` holds there. The message is "out[row, index] = x where the oracle has y", "" when
/// all agree.
std::string DifferenceOf(std::string_view name, std::int64_t row, DataType type, std::int64_t count,
                         const std::byte* got, const std::byte* want, const std::byte* before,
                         const Tolerance& tolerance);
/// "" when all values are finite; for types without values always.
std::string UnwrittenIn(std::string_view name, std::int64_t row, DataType type, std::int64_t count,
                        const std::byte* got);

}  // namespace tilewright
