#include "sequence/sequences.h"

#include <vector>

#include "sequence/gemm_sequence.h"

namespace tilewright {
namespace {

/// What a sequence may be made of. Vendor kernels are left out, since a provider that was excluded
/// must not run as part of a sequence; so are the reference kernels, which are chosen only when
/// nothing else can run.
template <class Op>
std::vector<typename Op::KernelType*> OwnKernels(const OpRegistry<Op>& registry) {
  std::vector<typename Op::KernelType*> kernels;
  for (typename Op::KernelType* kernel : registry.kernels()) {
    const KernelInfo& info = kernel->info();
    if (info.provider == Provider::kOwn && !info.reference) kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

std::vector<const KernelBase*> PartsOf(const KernelBase& kernel, const LaunchConfig& config) {
  const auto* const sequence = dynamic_cast<const sequence::HasParts*>(&kernel);
  if (sequence == nullptr) return {&kernel};
  return sequence->Parts(config);
}

bool IsSequence(const KernelInfo& kernel) {
  return kernel.name.find(".sequence.") != std::string::npos;
}

void AddSequences(Registry& gemm, const copy::Registry& copies,
                  const elementwise::Registry& elementwise) {
  const std::vector<Kernel*> products = OwnKernels(gemm);
  sequence::AddUnpackGemm(gemm, products, OwnKernels(copies));
  sequence::AddGemmAdd(gemm, products, OwnKernels(elementwise));
}

}  // namespace tilewright
