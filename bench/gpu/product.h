#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/harness.h"

namespace tilewright::gpu_check {

enum class Addend {
  kNone,  ///< beta = 0: C is NaN and must not be read
  kSeparate,
  kInPlace,  ///< C is D
};

/// A product D [m][n] = alpha * A [m][k] B [k][n] + beta * C to check or time.
struct ProductShape {
  int m, n, k;
  int pad_a = 0, pad_b = 0;  ///< elements between the lines of A and B; of blocks: bytes
  int pad_d = 0;             ///< elements between the rows of C and D
  int skip = 0;              ///< elements of A and B before the first; of blocks: bytes of B
  float alpha = 1;
  Addend addend = Addend::kNone;

  std::string Name() const;
};

/// Types, and which dimension of the operands is contiguous.
struct ProductTypes {
  DataType a, b, c, d;
  bool a_k_contiguous, b_k_contiguous;
};

/// What a kernel is told. Leading dimensions in elements.
struct ProductView {
  void* a;
  void* b;
  void* c;  ///< null where the kernel has no addend
  void* d;
  std::int64_t lda, ldb, ldc, ldd;
  std::int64_t b_line_bytes;
  int m, n, k;
  float alpha, beta;
};
using LaunchProduct = std::function<void(const ProductView&)>;

/// One operand on the host: `lines` lines of `length` contiguous elements. What lies between and
/// before them is NaN.
struct Operand {
  DataType type = DataType::kNone;
  int lines = 0, length = 0;
  std::size_t skip_bytes = 0, line_bytes = 0;
  std::vector<std::byte> bytes;

  const std::byte* Line(int line) const {
    return bytes.data() + skip_bytes + static_cast<std::size_t>(line) * line_bytes;
  }
};
struct OperandLayout {
  int pad = 0, skip = 0;  ///< elements; of blocks: bytes
  bool periodic = false;  ///< PeriodicBytes
};
Operand RandomOperand(DataType type, int lines, int length, const OperandLayout& layout,
                      std::uint64_t seed);

/// Runs each shape and compares with float64: all rows of small problems, of large ones the first
/// and last, those beside edges of tiles of `tile_m` rows, and some at random.
void CheckProducts(const Job& job, const ProductTypes& types, int tile_m,
                   const std::vector<ProductShape>& shapes, const LaunchProduct& launch,
                   KernelReport& report);

/// Times each shape. The weights B rotate through sets beyond the L2 where `cold`.
void TimeProducts(const Job& job, const ProductTypes& types,
                  const std::vector<ProductShape>& shapes, bool cold, const LaunchProduct& launch,
                  KernelReport& report);

}  // namespace tilewright::gpu_check
