// The functions of a libcublasLt that computes on the host (fake_cublaslt.h).
#include "fake_cublaslt.h"

#include <algorithm>
#include <cstring>

#include "core/numeric.h"
#include "device/cuda/cublaslt_library.h"

namespace {

using namespace tilewright;        // NOLINT(google-build-using-namespace)
using namespace tilewright::cuda;  // NOLINT(google-build-using-namespace)

constexpr int kInvalidValue = 7, kNotSupported = 15, kExecutionFailed = 13;
constexpr std::uint64_t kMagic = 0xa160;

FakeCublasLt& Fake() {
  static FakeCublasLt fake;
  return fake;
}

struct Handle {
  std::uint64_t magic = kMagic;
};
struct Desc {
  int trans_a = kCublasOpN, trans_b = kCublasOpN;
};
struct Preference {
  std::uint64_t workspace = 0;
  unsigned reductions = 7;
  unsigned alignments[4] = {256, 256, 256, 256};
};
/// Words of a layout: type, rows, columns, leading dimension.
struct Matrix {
  int type;
  std::int64_t rows, cols, ld;
  explicit Matrix(const CublasLtLayout& layout)
      : type(static_cast<int>(layout.data[0])),
        rows(static_cast<std::int64_t>(layout.data[1])),
        cols(static_cast<std::int64_t>(layout.data[2])),
        ld(static_cast<std::int64_t>(layout.data[3])) {}
  double Get(const void* data, std::int64_t row, std::int64_t col) const {
    const std::int64_t at = col * ld + row;
    if (type == kCublasTypeF32) return static_cast<const float*>(data)[at];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
    return type == kCublasTypeBF16 ? BF16ToF32(bits) : F16ToF32(bits);
  }
  void Put(void* data, std::int64_t row, std::int64_t col, double value) const {
    const std::int64_t at = col * ld + row;
    const auto f = static_cast<float>(value);
    if (type == kCublasTypeF32) {
      static_cast<float*>(data)[at] = f;
    } else {
      static_cast<std::uint16_t*>(data)[at] = type == kCublasTypeBF16 ? F32ToBF16(f) : F32ToF16(f);
    }
  }
};

struct Operands {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
};

void Multiply(const Desc& desc, const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d,
              const Operands& of) {
  const std::int64_t depth = desc.trans_a == kCublasOpN ? a.cols : a.rows;
  for (std::int64_t j = 0; j < d.cols; ++j) {
    for (std::int64_t i = 0; i < d.rows; ++i) {
      double sum = 0;
      for (std::int64_t l = 0; l < depth; ++l) {
        const bool a_plain = desc.trans_a == kCublasOpN, b_plain = desc.trans_b == kCublasOpN;
        sum += a.Get(of.a, a_plain ? i : l, a_plain ? l : i) *
               b.Get(of.b, b_plain ? l : j, b_plain ? j : l);
      }
      double value = of.alpha * sum;
      if (of.beta != 0) value += of.beta * c.Get(of.c, i, j);
      d.Put(of.d, i, j, value);
    }
  }
}

/// The extents of a product that fit each other.
bool Fit(const Desc& desc, const Matrix& a, const Matrix& b, const Matrix& d) {
  const bool a_plain = desc.trans_a == kCublasOpN, b_plain = desc.trans_b == kCublasOpN;
  return (a_plain ? a.rows : a.cols) == d.rows && (b_plain ? b.cols : b.rows) == d.cols &&
         (a_plain ? a.cols : a.rows) == (b_plain ? b.rows : b.cols) && a.type == b.type &&
         a.ld >= a.rows && b.ld >= b.rows && d.ld >= d.rows;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

FakeCublasLt* fake_cublaslt() { return &Fake(); }

std::size_t cublasLtGetVersion() { return 130102; }
const char* cublasLtGetStatusName(int status) {
  return status == kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OTHER";
}
int cublasLtCreate(void** handle) {
  if (Fake().cuda->Queue(0, nullptr) != 0) return 1;  // no context is current
  ++Fake().creates;
  *handle = new Handle;
  return 0;
}
int cublasLtDestroy(void* handle) {
  ++Fake().destroys;
  delete static_cast<Handle*>(handle);
  return 0;
}
int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (compute != kCublasComputeF32 || scale != kCublasTypeF32) return kInvalidValue;
  ++Fake().descs;
  *desc = new Desc;
  return 0;
}
int cublasLtMatmulDescDestroy(void* desc) {
  --Fake().descs;
  delete static_cast<Desc*>(desc);
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value,
                                   std::size_t bytes) {
  auto& of = *static_cast<Desc*>(desc);
  if (bytes != sizeof(int)) return kInvalidValue;
  int* const at = attribute == kCublasLtDescTransA   ? &of.trans_a
                  : attribute == kCublasLtDescTransB ? &of.trans_b
                                                     : nullptr;
  if (at == nullptr) return kInvalidValue;
  std::memcpy(at, value, bytes);
  return 0;
}
int cublasLtMatrixLayoutInit_internal(CublasLtLayout* layout, std::size_t bytes, int type,
                                      std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (bytes != sizeof *layout || ld < static_cast<std::int64_t>(rows)) return kInvalidValue;
  *layout = {{static_cast<std::uint64_t>(type), rows, cols, static_cast<std::uint64_t>(ld)}};
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                         std::size_t bytes) {
  auto& of = *static_cast<Preference*>(preference);
  if (attribute == kCublasLtPreferMaxWorkspace && bytes == sizeof of.workspace) {
    std::memcpy(&of.workspace, value, bytes);
    return 0;
  }
  if (bytes != sizeof(unsigned)) return kInvalidValue;
  if (attribute == kCublasLtPreferReductions) {
    std::memcpy(&of.reductions, value, bytes);
    return 0;
  }
  if (attribute < kCublasLtPreferAlignA || attribute > kCublasLtPreferAlignD) return kInvalidValue;
  std::memcpy(&of.alignments[attribute - kCublasLtPreferAlignA], value, bytes);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void* desc, const CublasLtLayout* a,
                                   const CublasLtLayout* b, const CublasLtLayout*,
                                   const CublasLtLayout* d, void* preference, int requested,
                                   CublasLtHeuristic* results, int* found) {
  const auto& prefers = *static_cast<Preference*>(preference);
  if (!Fit(*static_cast<Desc*>(desc), Matrix(*a), Matrix(*b), Matrix(*d))) return kInvalidValue;
  Fake().alignment =
      *std::max_element(std::begin(prefers.alignments), std::end(prefers.alignments));
  Fake().reductions = prefers.reductions;
  *found = std::min(requested, Fake().algorithms.load());
  for (int i = 0; i < *found; ++i) {
    results[i] = {.algo = {{kMagic, static_cast<std::uint64_t>(i), prefers.workspace}},
                  .workspace_bytes = static_cast<std::size_t>(prefers.workspace),
                  .state = 0,
                  .waves = 1,
                  .reserved = {}};
  }
  return 0;
}
int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a,
                   const CublasLtLayout* a_layout, const void* b, const CublasLtLayout* b_layout,
                   const void* beta, const void* c, const CublasLtLayout* c_layout, void* d,
                   const CublasLtLayout* d_layout, const CublasLtAlgo* algo, void* workspace,
                   std::size_t workspace_bytes, void* stream) {
  if (const int status = Fake().next_status.exchange(0)) return status;
  if (static_cast<Handle*>(handle)->magic != kMagic || algo->data[0] != kMagic ||
      reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 || workspace_bytes < algo->data[2] ||
      algo->data[2] == 0) {
    return kInvalidValue;
  }
  const Desc of = *static_cast<Desc*>(desc);
  const Matrix first(*a_layout), second(*b_layout), add(*c_layout), out(*d_layout);
  if (!Fit(of, first, second, out)) return kNotSupported;
  Operands operands{a, b, c, d, 0, 0};
  std::memcpy(&operands.alpha, alpha, sizeof operands.alpha);
  std::memcpy(&operands.beta, beta, sizeof operands.beta);
  const int queued = Fake().cuda->Queue(reinterpret_cast<std::uintptr_t>(stream), [=] {
    Multiply(of, first, second, add, out, operands);
    return 0;
  });
  if (queued != 0) return kExecutionFailed;
  ++Fake().products;
  Fake().last_algorithm = static_cast<int>(algo->data[1]);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
