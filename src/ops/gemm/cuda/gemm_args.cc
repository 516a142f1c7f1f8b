#include "ops/gemm/cuda/gemm_args.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "artifact/spec_checks.h"
#include "core/text.h"

namespace tilewright {
namespace {

/// One operand as the kernel wants it, and as it is.
struct Operand {
  const char* name;
  const void* data;
  const MatrixLayout& layout;
  DataType type;
  Order order;
  std::int32_t rows, cols;
};

const char* OrderWord(Order order) {
  return order == Order::kRowMajor ? "row-major" : "column-major";
}

std::optional<Rejection> CheckOperand(const Operand& o) {
  const MatrixLayout& have = o.layout;
  if (have.type != o.type) {
    return Reject(Reason::kType, Format("{} {}", o.name, DataTypeName(have.type)),
                  std::string(DataTypeName(o.type)));
  }
  if (have.order != o.order) {
    return Reject(Reason::kOrder, Format("{} {}", o.name, OrderWord(have.order)),
                  OrderWord(o.order));
  }
  if (have.pack != kPackPlain) {
    return Reject(Reason::kPack, Format("{} in packing {}", o.name, have.pack), "plain");
  }
  if (have.num != 1 || have.offsets != nullptr || have.idxs != nullptr) {
    return Reject(Reason::kStriding, Format("{} grouped or indexed", o.name), "one flat matrix");
  }
  if (have.rows != o.rows || have.cols != o.cols) {
    return Reject(Reason::kShape, Format("{} {} x {}", o.name, have.rows, have.cols),
                  Format("{} x {}", o.rows, o.cols));
  }
  const std::int64_t line = o.order == Order::kRowMajor ? o.cols : o.rows;
  if (have.ld < line) {
    return Reject(Reason::kShape, Format("ld of {} = {}", o.name, have.ld),
                  Format("at least {}", line));
  }
  const TypeInfo& type = GetTypeInfo(o.type);
  if (have.ld % type.block_elements != 0) {
    return Reject(Reason::kShape, Format("ld of {} = {}", o.name, have.ld),
                  Format("a multiple of {} for {}", type.block_elements, type.name));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(o.data);
  if (address == 0) return Reject(Reason::kShape, Format("{} is null", o.name), "device memory");
  if (!type.block_quantised && address % BytesOf(o.type, 1) != 0) {
    return Reject(Reason::kAlignment, Format("{} at {:#x}", o.name, address),
                  Format("a multiple of its element, {} bytes", BytesOf(o.type, 1)));
  }
  return std::nullopt;
}

std::optional<Rejection> CheckAddend(const KernelSpec& spec, const GemmArgs& args) {
  if (args.beta == 0) return std::nullopt;
  if (spec.epilogue != SpecEpilogue::kAdd) {
    return Reject(Reason::kScaling, Format("beta = {}", args.beta),
                  "beta = 0 without the epilogue add");
  }
  const MatrixLayout& d = args.d_layout;
  if (auto no = CheckOperand(
          {"C", args.c, args.c_layout, spec.type_c, Order::kRowMajor, d.rows, d.cols})) {
    return no;
  }
  if (args.c == args.d && (args.c_layout.type != d.type || args.c_layout.ld != d.ld)) {
    return Reject(Reason::kStriding, "C in the place of D", "the type and ld of D");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> CheckGemmArgs(const KernelSpec& spec, const GemmArgs& args) {
  const bool gated = spec.epilogue == SpecEpilogue::kSwiGlu;
  const std::int32_t m = args.d_layout.rows, k = args.a_layout.cols;
  const std::int32_t n = gated ? args.b_layout.cols : args.d_layout.cols;
  if (m < 1 || n < 1 || k < 1) {
    return Reject(Reason::kShape, Format("{} x {} x {}", m, n, k), "m, n and k of at least 1");
  }
  // The kernels add up to a tile to an index of 32 bits.
  constexpr std::int32_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;
  const std::int32_t longest = std::max({m, n, k});
  if (longest > kMaxExtent) {
    return Reject(Reason::kShape, Format("an extent of {}", longest),
                  Format("at most {}", kMaxExtent));
  }
  // The families that have a prologue name it by the same field.
  const bool can =
      spec.family == FamilyName("gemv_int8") || spec.family == FamilyName("gemv_stream");
  const bool normalises = can && spec.params[2] == 1;
  if (normalises != (args.prologue == Prologue::kRmsNorm)) {
    return Reject(Reason::kPrologue, normalises ? "no prologue" : "prologue rms_norm",
                  normalises ? "rms_norm" : "none");
  }
  if (args.u != nullptr || args.v != nullptr) {
    return Reject(Reason::kQuant, "scales beside an operand", "none");
  }
  if (auto no = CheckOperand({"A", args.a, args.a_layout, spec.type_a, spec.order_a, m, k})) {
    return no;
  }
  if (auto no = CheckOperand({"B", args.b, args.b_layout, spec.type_b, spec.order_b, k, n})) {
    return no;
  }
  if (auto no = CheckOperand(
          {"D", args.d, args.d_layout, spec.type_d, Order::kRowMajor, m, gated ? n / 2 : n})) {
    return no;
  }
  if (gated && n % (2 * kGatedBlock) != 0) {
    return Reject(Reason::kShape, Format("{} rows of gate and up", n),
                  Format("pairs of {} rows", kGatedBlock));
  }
  return CheckAddend(spec, args);
}

}  // namespace tilewright
