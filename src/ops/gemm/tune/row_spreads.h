#pragma once

#include <cstdint>
#include <vector>

namespace tilewright {

/// How the rows of a grouped product spread over its groups, as tables of offsets [num + 1]. Which
/// experts the rows of a model go to is not known when a kernel is chosen, and changes with every
/// token:
///
/// - Timed is a mixture: every other row goes to any group alike, the rest as Zipf's law has it, over
///   groups in random order. Launches take several such tables in turn, so that the weights of few
///   rows are not those that the last launch has read.
/// - Checked is that too, and all rows in one group with all others empty.
class RowSpreads {
 public:
  static constexpr int kMixtures = 8;

  RowSpreads() = default;
  RowSpreads(std::int32_t num, std::int32_t rows, std::uint64_t seed);

  bool empty() const { return hot_.empty(); }
  const std::int32_t* mixture(int i) const { return mixtures_[static_cast<std::size_t>(i)].data(); }
  const std::int32_t* hot() const { return hot_.data(); }
  /// A row of A for every row of the groups, each as likely.
  const std::int32_t* sources() const { return sources_.data(); }

 private:
  std::vector<std::vector<std::int32_t>> mixtures_;
  std::vector<std::int32_t> hot_, sources_;
};

}  // namespace tilewright
