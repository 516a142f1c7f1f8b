#include <memory>
#include <utility>
#include <vector>

#include "core/formats/formats.h"
#include "sequence/gemm_sequence.h"
#include "sequence/sequences.h"

namespace tilewright::sequence {
namespace {

class UnpackGemm final : public GemmSequence<UnpackGemm, copy::Op> {
 public:
  static constexpr bool kHelperFirst = true;
  using GemmSequence::GemmSequence;

  static GemmDesc GemmProblem(GemmDesc p) {
    p.type_b = DataType::kF32;
    p.align_b = 0;  // says what the caller promised of the packed weights
    return p;
  }
  static copy::Desc HelperProblem(const GemmDesc& p) {
    return {.type_src = p.type_b,
            .type_dst = DataType::kF32,
            .rows = p.n,
            .cols = p.k,
            .guarantee = p.guarantee};
  }
  static std::size_t IntermediateBytes(std::int64_t, std::int64_t n, std::int64_t k) {
    return BytesOf(DataType::kF32, n * k);
  }
  template <class LaunchGemm, class LaunchCopy>
  static Status RunSteps(const GemmArgs& args, void* unpacked, const LaunchGemm& gemm,
                         const LaunchCopy& copy) {
    const MatrixLayout& b = args.b_layout;
    const auto view = [&b](const void* data, std::int64_t ld, DataType type) {
      return TensorView{
          const_cast<void*>(data), {b.rows, b.cols, 1, 1}, {1, ld, ld * b.cols, ld * b.cols}, type};
    };
    const copy::Args all{view(args.b, b.ld, b.type), view(unpacked, b.rows, DataType::kF32)};
    if (Status done = copy(all); !done) return done;
    GemmArgs product = args;
    product.b = unpacked;
    product.b_layout.type = DataType::kF32;
    product.b_layout.ld = b.rows;
    return gemm(product);
  }
};

}  // namespace

void AddUnpackGemm(Registry& gemm, std::span<Kernel* const> products,
                   std::span<copy::Kernel* const> copies) {
  std::vector<Kernel*> plain;
  KernelDesc desc{.type_a = 0, .type_c = 0, .order_a = 0, .order_c = 0, .epilogue = 0};
  for (Kernel* kernel : products) {
    const KernelDesc& d = kernel->desc();
    const bool f32 = (d.type_b & Bit(DataType::kF32)) != 0 &&
                     (d.order_b & Bit(Order::kColMajor)) != 0 && d.pack_b == kPackPlain &&
                     d.activations == Precision::kF32;
    if (!f32) continue;
    plain.push_back(kernel);
    desc.type_a |= d.type_a, desc.type_c |= d.type_c;
    desc.order_a |= d.order_a, desc.order_c |= d.order_c;
    desc.epilogue |= d.epilogue;
    desc.split_k = desc.split_k || d.split_k;
  }
  if (plain.empty() || copies.empty()) return;
  for (const BlockFormat& format : kFormats) desc.type_b |= Bit(format.type);
  KernelInfo info = InfoOf<copy::Op>("gemm.f32_any_f32.xn.sequence.any.plain.unpack", TILEWRIGHT_TU,
                                     plain, copies);
  // Names are distinct: a registry that has this one keeps it.
  static_cast<void>(gemm.Add(
      std::make_unique<UnpackGemm>(std::move(info), desc, Step<GemmOp>("gemm", std::move(plain)),
                                   Step<copy::Op>("unpack", {copies.begin(), copies.end()}))));
}

}  // namespace tilewright::sequence
