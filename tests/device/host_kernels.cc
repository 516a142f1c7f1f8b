#include "host_kernels.h"

#include <cmath>
#include <cstring>

#include "core/numeric.h"
#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda/gemv_params.h"
#include "tilewright/cuda/rmsnorm_params.h"

namespace tilewright::cuda {
namespace {

double Get(const void* data, std::int64_t i, DataType type) {
  if (type == DataType::kF32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == DataType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}
void Put(void* data, std::int64_t i, DataType type, double value) {
  const auto f = static_cast<float>(value);
  if (type == DataType::kF32) {
    static_cast<float*>(data)[i] = f;
  } else {
    static_cast<std::uint16_t*>(data)[i] = type == DataType::kBF16 ? F32ToBF16(f) : F32ToF16(f);
  }
}

template <class Params>
Params Of(const FakeCuda::Launch& launch) {
  Params params;
  static_assert(sizeof params <= sizeof launch.params);
  std::memcpy(&params, launch.params.data(), sizeof params);
  return params;
}

struct Operand {
  const void* data;
  std::int64_t ld;  ///< elements
};

void Product(const HostKernels& types, const Operand& a, const Operand& b, const GemmOutput& out) {
  for (int i = 0; i < out.m; ++i) {
    for (int j = 0; j < out.n; ++j) {
      double sum = 0;
      for (int l = 0; l < out.k; ++l) {
        const std::int64_t at_a = types.a_k_major ? i * a.ld + l : l * a.ld + i;
        const std::int64_t at_b = types.b_k_major ? j * b.ld + l : l * b.ld + j;
        sum += Get(a.data, at_a, types.a) * Get(b.data, at_b, types.b);
      }
      double value = out.alpha * sum;
      if (out.beta != 0) value += out.beta * Get(out.c, i * out.ldc + j, types.d);
      Put(out.d, i * out.ldd + j, types.d, value);
    }
  }
}

/// The fake's encoded map: address, then extents from word 2 on and strides from word 6 on.
template <class Map>
Operand Mapped(const Map& map, DataType type) {
  std::uint64_t words[16];
  std::memcpy(words, &map, sizeof words);
  return {reinterpret_cast<const void*>(words[0]),
          static_cast<std::int64_t>(words[6] / BytesOf(type, 1))};
}

void Norm(const HostKernels& types, const RmsNormParams& p) {
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::int64_t group = r / p.group_rows, line = r % p.group_rows;
    const std::int64_t residual = group * p.residual_group + line * p.residual_stride;
    const std::int64_t sum = group * p.sum_group + line * p.sum_stride;
    const std::int64_t out = group * p.out_group + line * p.out_stride;
    const void* row = p.in;
    std::int64_t at = group * p.in_group + line * p.in_stride;
    if (p.residual != nullptr) {  // of the type of in
      for (int c = 0; c < p.width; ++c) {
        Put(p.sum, sum + c, types.a,
            Get(p.in, at + c, types.a) + Get(p.residual, residual + c, types.a));
      }
      row = p.sum, at = sum;
    }
    double squares = 0;
    for (int c = 0; c < p.width; ++c) squares += std::pow(Get(row, at + c, types.a), 2);
    const double scale = 1 / std::sqrt(squares / p.width + p.epsilon);
    for (int c = 0; c < p.width; ++c) {
      Put(p.out, out + c, types.d, Get(row, at + c, types.a) * scale * Get(p.weight, c, types.b));
    }
  }
}

}  // namespace

int HostKernels::operator()(const FakeCuda::Launch& launch) const {
  const auto is = [&](const char* family) {
    return launch.symbol.find(family) != std::string::npos;
  };
  if (is("rmsnorm")) {
    Norm(*this, Of<RmsNormParams>(launch));
  } else if (is("gemm_mma") || is("gemm_simt")) {
    const auto p = Of<GemmMmaParams>(launch);
    Product(*this, {p.a, p.lda}, {p.b, p.ldb}, p.out);
  } else if (is("gemm_hopper")) {
    const auto p = Of<GemmHopperParams>(launch);
    Product(*this, Mapped(p.a, a), Mapped(p.b, b), p.out);
  } else if (is("gemv_bf16") || is("gemv_stream")) {
    const auto p = Of<GemvParams>(launch);
    const GemmOutput out{p.c, p.y, p.ldc, p.ldy, p.m, p.n, p.k, p.alpha, p.beta, 0};
    Product(*this, {p.x, p.ldx}, {p.w, p.w_row_bytes / 2}, out);
  } else {
    return 1;  // CUDA_ERROR_INVALID_VALUE
  }
  return 0;
}

}  // namespace tilewright::cuda
