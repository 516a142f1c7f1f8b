#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/tensor_access.h"
#include "engine/tune/measuring.h"
#include "engine/tune/trial.h"

namespace tilewright {

/// What the oracle makes of a trial: on the host, once for all candidates.
template <class Op>
class TrialOracle {
 public:
  /// Computes all rows, or in kSpendUs as many blocks of them as it can, the first and the last
  /// among them.
  Status Compute(const Trial<Op>& trial, const typename Op::Desc& desc) {
    memory_.clear(), compared_.clear();
    std::vector<TensorView> placed;
    for (const TrialTensor& tensor : trial.tensors) {
      memory_.push_back(tensor.content);
      memory_.back().resize(BytesOf(tensor.view), std::byte{0xff});
      placed.push_back(tensor.view);
      placed.back().data = memory_.back().data();
    }
    const typename Op::Args args = trial.args(desc, placed);
    block_ = std::max<std::int64_t>(1, trial.rows / kBlocks);
    const std::int64_t blocks = (trial.rows + block_ - 1) / block_;
    compared_.assign(static_cast<std::size_t>(blocks), false);
    const auto begin = MeasureClock::now();
    for (std::int64_t i = 0; i < blocks; ++i) {
      if (i >= 2 && MicrosSince(begin) > kSpendUs) break;
      // The first and the last block, then the others at an even distance that has no common
      // divisor with their number.
      const std::int64_t b =
          i == 0 ? 0 : (i == 1 ? blocks - 1 : 1 + (i - 2) * Stride(blocks) % (blocks - 2));
      const std::int64_t first = b * block_, count = std::min(block_, trial.rows - first);
      const typename Op::Args part = trial.rows == 1 ? args : RowsOf(args, first, count);
      if (Status s = Reference(part); !s) return s;
      compared_[static_cast<std::size_t>(b)] = true;
    }
    expected_.clear();
    for (const std::size_t output : trial.outputs) expected_.push_back(std::move(memory_[output]));
    memory_.clear();
    return {};
  }

  /// "" where `got`, in which `before` was, is what the oracle has in output `i` of the trial.
  std::string Difference(const Trial<Op>& trial, const Tolerance& tolerance, std::size_t i,
                         const std::vector<std::byte>& got,
                         const std::vector<std::byte>& before) const {
    const TrialTensor& out = trial.tensors[trial.outputs[i]];
    const std::size_t row_bytes = got.size() / static_cast<std::size_t>(trial.rows);
    const std::int64_t length = out.view.elements() / trial.rows;
    for (std::int64_t row = 0; row < trial.rows; ++row) {
      const std::size_t at = static_cast<std::size_t>(row) * row_bytes;
      std::string wrong =
          compared_[static_cast<std::size_t>(row / block_)]
              ? DifferenceOf(out.name, row, out.view.dtype, length, got.data() + at,
                             expected_[i].data() + at, before.data() + at, tolerance)
              : UnwrittenIn(out.name, row, out.view.dtype, length, got.data() + at);
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  static constexpr std::int64_t kBlocks = 256;
  static constexpr double kSpendUs = 100000;

  /// About 0.38 times the number of inner blocks, coprime to it.
  static std::int64_t Stride(std::int64_t blocks) {
    const std::int64_t inner = blocks - 2;
    std::int64_t stride = std::max<std::int64_t>(1, inner * 38 / 100);
    while (std::gcd(stride, inner) != 1) ++stride;
    return stride;
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<std::byte>> expected_;  // by output
  std::vector<bool> compared_;                    // by block
  std::int64_t block_ = 1;                        // rows
};

}  // namespace tilewright
