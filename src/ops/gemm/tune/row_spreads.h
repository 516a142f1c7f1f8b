#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

  bool empty() const { return words_.empty(); }
  const std::int32_t* mixture(int i) const { return Table(i); }
  const std::int32_t* hot() const { return Table(kMixtures); }
  /// A row of A for every row of the groups, each as likely.
  const std::int32_t* sources() const { return Table(kMixtures + 1); }
  /// Memory that holds all of them.
  std::span<const std::int32_t> words() const { return words_; }

 private:
  const std::int32_t* Table(int i) const {
    return words_.data() + static_cast<std::size_t>(i) * table_words_;
  }

  std::vector<std::int32_t> words_;  // [kMixtures + 1][num + 1], then sources
  std::size_t table_words_ = 0;
};

}  // namespace tilewright
