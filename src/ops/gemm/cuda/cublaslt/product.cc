#include "ops/gemm/cuda/cublaslt/product.h"

#include <utility>

#include "core/text.h"

namespace tilewright {
namespace {

using cuda::CublasLtAlgo;
using cuda::CublasLtHeuristic;
using cuda::CublasLtLayout;
using cuda::CublasLtLibrary;
using cuda::CublasLtObject;

constexpr int kAlignmentLog2 = 4;  // of the vector loads and bulk copies of its fast kernels

std::optional<int> NumberOf(DataType type) {
  if (type == DataType::kF32) return cuda::kCublasTypeF32;
  if (type == DataType::kF16) return cuda::kCublasTypeF16;
  if (type == DataType::kBF16) return cuda::kCublasTypeBF16;
  return std::nullopt;
}

/// A matrix whose lines are `order` in memory is, to a column-major library, itself or transposed.
int OperationOf(Order order, bool transposed) {
  const bool column_major = order == Order::kColMajor;
  return column_major != transposed ? cuda::kCublasOpN : cuda::kCublasOpT;
}

std::int64_t LineOf(Order order, std::int64_t rows, std::int64_t cols) {
  return order == Order::kRowMajor ? cols : rows;
}

}  // namespace

std::optional<Rejection> CheckCublasLt(const GemmDesc& p) {
  if (p.type_a != p.type_b) {
    return Rejection{
        Reason::kType,
        Format("type_a = {}, type_b = {}", DataTypeName(p.type_a), DataTypeName(p.type_b)),
        "one type for both"};
  }
  if (p.type_c != p.type_a && p.type_c != DataType::kF32) {
    return Rejection{Reason::kType, Format("type_c = {}", DataTypeName(p.type_c)),
                     Format("{} or f32", DataTypeName(p.type_a))};
  }
  if (p.num != 1 || p.group_axis != -1) {
    return Rejection{Reason::kStriding, Format("num = {}, group_axis = {}", p.num, p.group_axis),
                     "one dense group"};
  }
  for (const auto& [name, promised] :
       {std::pair{"A", p.align_a}, {"B", p.align_b}, {"C and D", p.align_c}}) {
    if (promised >= kAlignmentLog2) continue;
    return Rejection{
        Reason::kAlignment,
        Format("{} aligned to {} bytes that the problem promises", name, 1 << promised),
        Format("{} bytes", 1 << kAlignmentLog2)};
  }
  return std::nullopt;
}

Result<CublasLtProduct> CublasLtProduct::Make(const CublasLtLibrary& library,
                                              const GemmDesc& problem) {
  const cuda::CublasLtApi& api = library.api;
  void* made = nullptr;
  if (Status s = library.Check(api.DescCreate(&made, cuda::kCublasComputeF32, cuda::kCublasTypeF32),
                               "cublasLtMatmulDescCreate");
      !s) {
    return Fail(s.error());
  }
  CublasLtObject desc(made, api.DescDestroy);
  const bool swapped = problem.order_c == Order::kRowMajor;
  const Order first = swapped ? problem.order_b : problem.order_a;
  const Order second = swapped ? problem.order_a : problem.order_b;
  for (const auto& [attribute, order] :
       {std::pair{cuda::kCublasLtDescTransA, first}, {cuda::kCublasLtDescTransB, second}}) {
    const int operation = OperationOf(order, swapped);
    if (Status s = library.Check(api.DescSet(desc.get(), attribute, &operation, sizeof operation),
                                 "cublasLtMatmulDescSetAttribute");
        !s) {
      return Fail(s.error());
    }
  }
  return CublasLtProduct(library, problem, std::move(desc));
}

Result<CublasLtProduct::Layouts> CublasLtProduct::MakeLayouts(const Lines& lines) const {
  const GemmDesc& p = problem_;
  Layouts layouts{};
  int status = cuda::kCublasSuccess;
  const auto init = [&](CublasLtLayout& out, DataType type, Order order, std::int64_t rows,
                        std::int64_t cols, std::int64_t ld) {
    if (order == Order::kRowMajor) std::swap(rows, cols);
    const int result = library_->api.LayoutInit(&out, sizeof out, *NumberOf(type),
                                                static_cast<std::uint64_t>(rows),
                                                static_cast<std::uint64_t>(cols), ld);
    if (status == cuda::kCublasSuccess) status = result;
  };
  const bool swapped = p.order_c == Order::kRowMajor;
  init(swapped ? layouts.second : layouts.first, p.type_a, p.order_a, p.m, p.k, lines.a);
  init(swapped ? layouts.first : layouts.second, p.type_b, p.order_b, p.k, p.n, lines.b);
  init(layouts.c, p.type_c, p.order_c, p.m, p.n, lines.c);
  init(layouts.d, p.type_c, p.order_c, p.m, p.n, lines.d);
  if (Status s = library_->Check(status, "cublasLtMatrixLayoutInit"); !s) return Fail(s.error());
  return layouts;
}

Result<std::vector<CublasLtAlgo>> CublasLtProduct::Algorithms(void* handle,
                                                              std::size_t workspace_bytes,
                                                              int most) const {
  const cuda::CublasLtApi& api = library_->api;
  const GemmDesc& p = problem_;
  const std::int64_t line = LineOf(p.order_c, p.m, p.n);
  const Result<Layouts> layouts =
      MakeLayouts({LineOf(p.order_a, p.m, p.k), LineOf(p.order_b, p.k, p.n), line, line});
  if (!layouts) return Fail(layouts.error());
  void* made = nullptr;
  if (Status s = library_->Check(api.PreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
      !s) {
    return Fail(s.error());
  }
  const CublasLtObject preference(made, api.PreferenceDestroy);
  int status = cuda::kCublasSuccess;
  const auto set = [&](int attribute, const auto& value) {
    const int result = api.PreferenceSet(preference.get(), attribute, &value, sizeof value);
    if (status == cuda::kCublasSuccess) status = result;
  };
  set(cuda::kCublasLtPreferMaxWorkspace, static_cast<std::uint64_t>(workspace_bytes));
  set(cuda::kCublasLtPreferReductions, std::uint32_t{cuda::kCublasLtReduceInF32});
  for (const int attribute : {cuda::kCublasLtPreferAlignA, cuda::kCublasLtPreferAlignB,
                              cuda::kCublasLtPreferAlignC, cuda::kCublasLtPreferAlignD}) {
    set(attribute, std::uint32_t{1} << kAlignmentLog2);
  }
  if (Status s = library_->Check(status, "cublasLtMatmulPreferenceSetAttribute"); !s)
    return Fail(s.error());

  std::vector<CublasLtHeuristic> results(static_cast<std::size_t>(most));
  int count = 0;
  if (Status s = library_->Check(
          api.Heuristic(handle, desc_.get(), &layouts->first, &layouts->second, &layouts->c,
                        &layouts->d, preference.get(), most, results.data(), &count),
          "cublasLtMatmulAlgoGetHeuristic");
      !s) {
    return Fail(s.error());
  }
  std::vector<CublasLtAlgo> algos;
  for (int i = 0; i < count; ++i) {
    const CublasLtHeuristic& one = results[static_cast<std::size_t>(i)];
    if (one.state == cuda::kCublasSuccess && one.workspace_bytes <= workspace_bytes)
      algos.push_back(one.algo);
  }
  if (!algos.empty()) return algos;
  return Fail(ErrorCode::kUnsupported,
              Format("cuBLASLt {} names no algorithm for this product", library_->version));
}

Status CublasLtProduct::Launch(void* handle, const CublasLtAlgo& algo, const GemmArgs& args,
                               void* workspace, std::size_t workspace_bytes, void* stream) const {
  const bool swapped = problem_.order_c == Order::kRowMajor;
  const bool reads_c = args.beta != 0;
  const std::int64_t line = args.d_layout.ld;
  const Result<Layouts> layouts =
      MakeLayouts({args.a_layout.ld, args.b_layout.ld, reads_c ? args.c_layout.ld : line, line});
  if (!layouts) return Fail(layouts.error());
  return library_->Check(
      library_->api.Matmul(handle, desc_.get(), &args.alpha, swapped ? args.b : args.a,
                           &layouts->first, swapped ? args.a : args.b, &layouts->second, &args.beta,
                           reads_c ? args.c : args.d, &layouts->c, args.d, &layouts->d, &algo,
                           workspace, workspace_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace tilewright
