#include "ops/attention/cuda/family_checks.h"

#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "tilewright/cuda/attention_simt_params.h"

namespace tilewright {

namespace {

constexpr std::array kHeadDims{64, 128};

}  // namespace

bool IsAttentionHeadDim(int head_dim) { return std::ranges::count(kHeadDims, head_dim) > 0; }

std::optional<Rejection> CheckHeadDim(const KernelSpec& s) {
  return CheckOneOf("param0", s.params[0], kHeadDims);
}

std::optional<Rejection> CheckAttentionRest(const KernelSpec& s) {
  if (s.type_c != DataType::kNone)
    return Reject(Reason::kType, Format("type_c = {}", DataTypeName(s.type_c)), "none");
  if (s.type_d != s.type_a) {
    return Reject(Reason::kType, Format("type_d = {}", DataTypeName(s.type_d)),
                  Format("{}, as type_a", DataTypeName(s.type_a)));
  }
  if (s.epilogue != SpecEpilogue::kNone)
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(s.epilogue)), "none");
  if (s.stages != 0 || s.split_k != 0 || s.cluster_m != 0 || s.cluster_n != 0 || s.params[1] != 0 ||
      s.params[2] != 0 || s.params[3] != 0) {
    return Reject(Reason::kShape, "a field that attention does not use is set",
                  "stages, split_k, clusters, param1, param2, param3 = 0");
  }
  return std::nullopt;
}

Status AddAttentionFamilies(KernelFamilies& families) {
  for (const KernelFamily& family :
       {AttentionSplitFamily(), AttentionDecodeFamily(), AttentionMmaFamily(),
        AttentionHopperFamily(), AttentionSimtFamily()}) {
    if (Status added = families.Add(family); !added) return added;
  }
  return {};
}

std::vector<KernelSpec> AttentionSpecs(int head_dim, CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (!IsAttentionHeadDim(head_dim)) {
    const bool any = head_dim > 0 && head_dim <= cuda::kMaxAttentionHeadDim;
    return any ? AttentionSimtFamily().catalog(arch) : specs;
  }
  for (const KernelFamily& family : {AttentionSplitFamily(), AttentionDecodeFamily(),
                                     AttentionMmaFamily(), AttentionHopperFamily()}) {
    for (const KernelSpec& spec : family.catalog(arch))
      if (spec.params[0] == head_dim) specs.push_back(spec);
  }
  return specs;
}

}  // namespace tilewright
