#include "ops/gemm/tune/row_spreads.h"

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace tilewright {
namespace {

std::vector<std::int32_t> OffsetsOf(const std::vector<std::int32_t>& counts) {
  std::vector<std::int32_t> offsets(counts.size() + 1);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  return offsets;
}

std::vector<std::int32_t> Mixture(std::int32_t num, std::int32_t rows, Random& random) {
  const auto groups = static_cast<std::size_t>(num);
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = groups; i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  std::vector<double> shares(groups);  // of the groups up to each
  double sum = 0;
  for (std::size_t i = 0; i < groups; ++i) shares[i] = sum += 1.0 / static_cast<double>(i + 1);
  std::vector<std::int32_t> counts(groups);
  for (std::int32_t row = 0; row < rows; ++row) {
    std::size_t at = random.Below(groups);
    if (row % 2 != 0) {
      const auto found = std::lower_bound(shares.begin(), shares.end(), random.Uniform() * sum);
      at = std::min(static_cast<std::size_t>(found - shares.begin()), groups - 1);
    }
    ++counts[order[at]];
  }
  return OffsetsOf(counts);
}

}  // namespace

RowSpreads::RowSpreads(std::int32_t num, std::int32_t rows, std::uint64_t seed)
    : table_words_(static_cast<std::size_t>(num) + 1) {
  Random random(seed);
  const auto add = [this](const std::vector<std::int32_t>& table) {
    words_.insert(words_.end(), table.begin(), table.end());
  };
  for (int i = 0; i < kMixtures; ++i) add(Mixture(num, rows, random));
  std::vector<std::int32_t> counts(static_cast<std::size_t>(num));
  counts[random.Below(counts.size())] = rows;
  add(OffsetsOf(counts));
  for (std::int32_t row = 0; row < rows; ++row)
    words_.push_back(static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(rows))));
}

}  // namespace tilewright
