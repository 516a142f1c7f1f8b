#include <memory>
#include <utility>

#include "core/block_format.h"
#include "ops/gemm/reference.h"

namespace tilewright {
namespace {

constexpr std::uint32_t kFloats =
    Bit(DataType::kF64) | Bit(DataType::kF32) | Bit(DataType::kF16) | Bit(DataType::kBF16);
template <class E>
constexpr std::uint32_t AllUpTo(E last) {
  return 2 * Bit(last) - 1;
}

/// The oracle as a kernel: plain operands of every type that decodes, any order and epilogue.
class ReferenceGemmKernel final : public Kernel {
 public:
  ReferenceGemmKernel() : Kernel(Info(), Takes()) {}

  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override {
    if (auto no = Kernel::IsFeasible(problem)) return no;
    for (const DataType type : {problem.type_a, problem.type_b}) {
      if (!GetTypeInfo(type).block_quantised ||
          DecodeRow(type, nullptr, 0, static_cast<double*>(nullptr)))
        continue;
      return Rejection{Reason::kType, "type " + std::string(DataTypeName(type)),
                       "a type with a decoder"};
    }
    return std::nullopt;
  }
  double EstimateUs(const GemmDesc& p, const LaunchSpec&, const DeviceSpec&) const override {
    return 1e-3 * p.m * p.n * static_cast<double>(p.k);
  }
  Result<std::shared_ptr<const BoundLaunch<GemmOp>>> BindLaunch(const GemmDesc& desc,
                                                                const LaunchSpec&,
                                                                Device&) const override {
    return std::make_shared<const Bound>(desc);
  }
  Status Launch(const GemmArgs&, const LaunchSpec&, Workspace&, Stream) override {
    return Fail(ErrorCode::kInternal, "the reference kernel runs by its plan only");
  }

 private:
  /// The types, striding and quantisation are the problem's; the arguments do not carry them.
  class Bound final : public BoundLaunch<GemmOp> {
   public:
    explicit Bound(const GemmDesc& desc) : desc_(desc) {}
    Status Launch(const GemmArgs& args, Workspace&, Stream stream) const override {
      return ReferenceGemm(args, desc_, &stream.exec());
    }

   private:
    GemmDesc desc_;
  };

  static KernelInfo Info() {
    KernelInfo info;
    info.name = "gemm.any.reference";
    info.fingerprint = "reference";
    info.batch_invariant = true;
    info.reference = true;
    return info;
  }
  static KernelDesc Takes() {
    KernelDesc takes;
    takes.type_a = takes.type_b = AllUpTo(kFormats.back().type) & ~Bit(DataType::kNone) &
                                  ~Bit(DataType::kI32) & ~Bit(DataType::kI64);
    takes.type_c = kFloats;
    takes.order_a = takes.order_b = takes.order_c = AllUpTo(Order::kRowMajor);
    takes.striding_a = takes.striding_b = takes.striding_c = AllUpTo(Striding::kIndexed);
    takes.quant_a = takes.quant_b = AllUpTo(QuantType::kB);
    takes.epilogue = AllUpTo(Epilogue::kGatedSilu);
    takes.prologue = AllUpTo(Prologue::kRmsNorm);
    return takes;
  }
};

}  // namespace

void AddReference(Registry& registry) {
  static_cast<void>(registry.Add(std::make_unique<ReferenceGemmKernel>()));
}

}  // namespace tilewright
