#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/formats.h"
#include "sequence/gemm_sequence.h"
#include "sequence/sequences.h"

namespace tilewright::sequence {
namespace {

/// Weights become kType on their way.
template <DataType kType>
class UnpackGemm final : public GemmSequence<UnpackGemm<kType>, copy::Op> {
 public:
  static constexpr bool kHelperFirst = true;
  using GemmSequence<UnpackGemm<kType>, copy::Op>::GemmSequence;

  static GemmDesc GemmProblem(GemmDesc p) {
    p.type_b = kType;
    // What the caller promised was said of the packed weights. The unpacked ones are dense and begin
    // where the workspace does; where the caller promises nothing, no kernel asks.
    constexpr int kWidestLoadLog2 = 4;
    const bool promises = p.align_a != 0 || p.align_b != 0;
    const std::uint64_t line_bytes = BytesOf(kType, p.k);
    p.align_b =
        promises
            ? static_cast<std::uint8_t>(std::min(std::countr_zero(line_bytes), kWidestLoadLog2))
            : std::uint8_t{0};
    return p;
  }
  static copy::Desc HelperProblem(const GemmDesc& p) {
    return {.type_src = p.type_b,
            .type_dst = kType,
            .rows = p.n,
            .cols = p.k,
            .guarantee = p.guarantee};
  }
  static std::size_t IntermediateBytes(std::int64_t, std::int64_t n, std::int64_t k) {
    return BytesOf(kType, n * k);
  }
  template <class LaunchGemm, class LaunchCopy>
  static Status RunSteps(const GemmArgs& args, void* unpacked, const LaunchGemm& gemm,
                         const LaunchCopy& copy) {
    const MatrixLayout& b = args.b_layout;
    const auto view = [&b](const void* data, std::int64_t ld, DataType type) {
      return TensorView{
          const_cast<void*>(data), {b.rows, b.cols, 1, 1}, {1, ld, ld * b.cols, ld * b.cols}, type};
    };
    const copy::Args all{view(args.b, b.ld, b.type), view(unpacked, b.rows, kType)};
    if (Status done = copy(all); !done) return done;
    GemmArgs product = args;
    product.b = unpacked;
    product.constant_b = false;  // the step before writes it
    product.b_layout.type = kType;
    product.b_layout.ld = b.rows;
    return gemm(product);
  }
};

/// Whether a product may follow: it reads the unpacked weights as they lie. f32 loses nothing, so
/// that it serves activations of any type; 16 bits serve activations of the same.
template <DataType kType>
bool MayFollow(const KernelDesc& d) {
  const std::uint32_t activations = kType == DataType::kF32 ? ~0u : Bit(kType);
  return (d.type_a & activations) != 0 && (d.type_b & Bit(kType)) != 0 &&
         (d.order_b & Bit(Order::kColMajor)) != 0 && d.pack_b == kPackPlain &&
         d.activations == Precision::kF32;
}

template <DataType kType>
void Add(Registry& gemm, std::span<Kernel* const> products, std::span<copy::Kernel* const> copies) {
  std::vector<Kernel*> plain;
  KernelDesc desc{.type_a = 0, .type_c = 0, .order_a = 0, .order_c = 0, .epilogue = 0};
  for (Kernel* kernel : products) {
    const KernelDesc& d = kernel->desc();
    if (!MayFollow<kType>(d)) continue;
    plain.push_back(kernel);
    desc.type_a |= kType == DataType::kF32 ? d.type_a : Bit(kType);
    desc.type_c |= d.type_c;
    desc.order_a |= d.order_a, desc.order_c |= d.order_c;
    desc.epilogue |= d.epilogue;
    desc.split_k = desc.split_k || d.split_k;
  }
  if (plain.empty() || copies.empty()) return;
  for (const BlockFormat& format : kFormats) desc.type_b |= Bit(format.type);
  const std::string type(DataTypeName(kType));
  KernelInfo info =
      InfoOf<copy::Op>("gemm." + type + "_any_" + type + ".xn.sequence.any.plain.unpack",
                       TILEWRIGHT_TU, plain, copies);
  // Names are distinct: a registry that has this one keeps it.
  static_cast<void>(gemm.Add(std::make_unique<UnpackGemm<kType>>(
      std::move(info), desc, Step<GemmOp>("gemm", std::move(plain)),
      Step<copy::Op>("unpack", {copies.begin(), copies.end()}))));
}

}  // namespace

void AddUnpackGemm(Registry& gemm, std::span<Kernel* const> products,
                   std::span<copy::Kernel* const> copies) {
  Add<DataType::kF32>(gemm, products, copies);
  // Tensor cores multiply 16 bits. A CPU's kernels that do round f32 themselves.
  if (products.empty() || products.front()->info().device != DeviceKind::kCuda) return;
  Add<DataType::kBF16>(gemm, products, copies);
  Add<DataType::kF16>(gemm, products, copies);
}

}  // namespace tilewright::sequence
