#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/test_util.h"
#include "tilewright/gemm.h"

/// Builds operands for any GemmDesc and runs a kernel on them under watch. Tests only.

namespace tilewright::test {

/// How a problem is laid out in memory and called, beyond its GemmDesc.
struct CallOptions {
  float alpha = 1, beta = 0;
  bool c_is_d = false;
  /// Elements beyond the line, NaN; pad_a and pad_b count in blocks.
  int pad_a = 0, pad_b = 0, pad_c = 0;
  int misalign = 0;  ///< elements that A, B, C and D start off their alignment
  std::uint64_t seed = 1;
  std::vector<std::int32_t> offsets{};  ///< num + 1, for grouped problems
  bool strided_b = false;               ///< grouped weights as an array of StridedPtr
};

/// One of the matrices with guards around it and NaN in its padding.
struct TestMatrix {
  std::unique_ptr<GuardedBytes> bytes;
  MatrixLayout layout;
  const void* data() const { return bytes->data(); }
};

/// Operands of a problem. C is random, or NaN where beta is 0; D is NaN, or C where it shares its
/// memory.
class TestProblem {
 public:
  TestProblem(const GemmDesc& desc, const CallOptions& options);

  const GemmDesc& desc() const { return desc_; }
  const CallOptions& options() const { return options_; }
  GemmArgs args() const;  ///< plain operands; d is the problem's own D

  /// Packs B as `kernel` wants, resets D and launches with a workspace of exactly PartialsBytes.
  /// Returns "" or what went wrong: a failed status, a write outside an operand, a touched padding,
  /// a wrong value.
  std::string RunAndCheck(Kernel& kernel, const LaunchSpec& spec, Executor& executor);
  /// As above without looking at the values. With `transposed`, calls Transpose(kernel) on the
  /// transposed problem in the same memory.
  std::string Run(Kernel& kernel, const LaunchSpec& spec, Executor& executor,
                  bool transposed = false);

  /// D's elements [m][d_cols] as bytes, for bitwise comparison.
  std::vector<unsigned char> ResultBytes() const;
  /// One line that names everything needed to make this problem again.
  std::string Repro() const;

 private:
  void ResetD();
  std::string CheckPadding() const;

  GemmDesc desc_;
  CallOptions options_;
  TestMatrix a_, b_, u_, v_, c_, d_;
  std::vector<unsigned char> c_before_;
  std::vector<StridedPtr> pointers_;
  std::vector<std::int32_t> rows_a_, rows_c_;
};

/// Columns of D.
inline int ResultCols(const GemmDesc& d) {
  return d.epilogue == Epilogue::kGatedSilu ? d.n / 2 : d.n;
}

}  // namespace tilewright::test
