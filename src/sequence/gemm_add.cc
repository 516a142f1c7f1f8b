#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sequence/gemm_sequence.h"
#include "sequence/sequences.h"

namespace tilewright::sequence {
namespace {

class GemmAdd final : public GemmSequence<GemmAdd, elementwise::Op> {
 public:
  static constexpr bool kHelperFirst = false;
  using GemmSequence::GemmSequence;

  static GemmDesc GemmProblem(GemmDesc p) {
    p.scaling = Scaling::kOneZero;
    p.align_c = 0;  // says what the caller promised of C and D
    return p;
  }
  static elementwise::Desc HelperProblem(const GemmDesc& p) {
    return {.function = elementwise::Function::kAdd,
            .type_a = p.type_c,
            .type_b = p.type_c,
            .type_out = p.type_c,
            .rows = p.m,
            .cols = p.n,
            .guarantee = p.guarantee};
  }
  static std::size_t IntermediateBytes(std::int64_t m, std::int64_t n, std::int64_t) {
    return BytesOf(DataType::kF32, m * n);
  }
  /// D may be C, so the product needs a place of its own.
  template <class LaunchGemm, class LaunchAdd>
  static Status RunSteps(const GemmArgs& args, void* product, const LaunchGemm& gemm,
                         const LaunchAdd& add) {
    const MatrixLayout& d = args.d_layout;
    GemmArgs alone = args;
    alone.beta = 0, alone.c = nullptr, alone.d = product;
    alone.d_layout.ld = d.cols;
    if (Status done = gemm(alone); !done) return done;
    const auto view = [&d](const void* data, std::int64_t ld) {
      return TensorView{const_cast<void*>(data),
                        {d.cols, d.rows, 1, 1},
                        {1, ld, ld * d.rows, ld * d.rows},
                        d.type};
    };
    return add(elementwise::Args{.function = elementwise::Function::kAdd,
                                 .a = view(product, d.cols),
                                 .b = view(args.c, args.c_layout.ld),
                                 .out = view(args.d, d.ld)});
  }
};

/// The only type of a mask; "any" for several.
std::string TypeWord(std::uint32_t mask) {
  for (int i = 0; i < 32; ++i) {
    const auto type = static_cast<DataType>(i);
    if (mask == Bit(type)) return std::string(DataTypeName(type));
  }
  return "any";
}

}  // namespace

void AddGemmAdd(Registry& gemm, std::span<Kernel* const> products,
                std::span<elementwise::Kernel* const> adders) {
  if (adders.empty()) return;
  std::map<Pack, std::vector<Kernel*>> by_layout;
  for (Kernel* kernel : products) {
    const KernelDesc& d = kernel->desc();
    std::vector<Kernel*>& same = by_layout[d.pack_b];
    const bool f32 = (d.type_c & Bit(DataType::kF32)) != 0 &&
                     (d.order_c & Bit(Order::kRowMajor)) != 0 &&
                     (d.scaling & Bit(Scaling::kOneZero)) != 0;
    // All round the activations alike, so that the sequence says how it rounds them.
    const bool alike = same.empty() || same.front()->desc().activations == d.activations;
    // Kernels on AMX tiles round weights in blocks too, which a sequence could not say; they add C themselves.
    const bool tiles = (kernel->info().features & kFeatureAmxBf16) != 0;
    if (f32 && alike && !tiles) same.push_back(kernel);
  }
  for (auto& [pack, same] : by_layout) {
    if (same.empty()) continue;
    KernelDesc desc{.type_c = Bit(DataType::kF32),
                    .order_a = 0,
                    .order_b = 0,
                    .scaling = Bit(Scaling::kOneOne),
                    .pack_b = pack,
                    .activations = same.front()->desc().activations};
    for (const Kernel* kernel : same) {
      const KernelDesc& d = kernel->desc();
      desc.type_a |= d.type_a, desc.type_b |= d.type_b;
      desc.order_a |= d.order_a, desc.order_b |= d.order_b;
      desc.split_k = desc.split_k || d.split_k;
    }
    const std::string name = "gemm.f32_" + TypeWord(desc.type_b) + "_f32." +
                             (pack == kPackPlain ? "xx" : "tn") + ".sequence.any." +
                             PackName(pack) + ".add";
    KernelInfo info = InfoOf<elementwise::Op>(name, TILEWRIGHT_TU, same, adders);
    // Names are distinct: a registry that has this one keeps it.
    static_cast<void>(gemm.Add(
        std::make_unique<GemmAdd>(std::move(info), desc, Step<GemmOp>("gemm", std::move(same)),
                                  Step<elementwise::Op>("add", {adders.begin(), adders.end()}))));
  }
}

}  // namespace tilewright::sequence
