// The one list of all kernel families that are compiled at run time, and which of their kernels a
// model needs.

#include <algorithm>
#include <limits>
#include <map>

#include "core/text.h"
#include "ops/attention/cuda/families.h"
#include "ops/copy/cuda/families.h"
#include "ops/elementwise/cuda/families.h"
#include "ops/embedding/cuda/families.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemv/families.h"
#include "ops/norm/cuda/families.h"
#include "ops/rope/cuda/families.h"
#include "ops/top_k/cuda/families.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

/// Adds what is not there yet, keeping the order.
void Append(std::vector<KernelSpec>& specs, const std::vector<KernelSpec>& more) {
  for (const KernelSpec& spec : more) {
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
  }
}

bool Fits(std::uint32_t value) { return value <= std::numeric_limits<int>::max(); }

/// Types of the matrices by name, with their numbers; embeddings are products too (the output of a
/// model with tied weights). By the file's names: a type that the CPU does not run yet may have
/// kernels here.
std::map<std::string_view, int> WeightTypes(const GgufFile& file) {
  std::map<std::string_view, int> types;
  for (const GgufTensor& tensor : file.tensors()) {
    const GgmlTypeInfo* info = FindGgmlType(tensor.type_id);
    if (tensor.dims == 2) ++types[info != nullptr ? info->name : "a type without a name"];
  }
  return types;
}

/// What no size and no type of weights decides: activations may be of any float type, and rows of
/// theirs are picked.
void AppendOfEveryModel(const KernelFamilies& families, CudaArch arch,
                        std::vector<KernelSpec>& specs) {
  for (const FamilyName name :
       {"elementwise", "rope", "rope_kv", "kv_scatter", "copy", "embedding", "top_k"}) {
    const KernelFamily* family = families.Find(name);
    if (family == nullptr) continue;
    std::vector<KernelSpec> plain = family->catalog(arch);
    std::erase_if(
        plain, [](const KernelSpec& spec) { return GetTypeInfo(spec.type_a).block_elements > 1; });
    Append(specs, plain);
  }
}

}  // namespace

KernelFamilies AllKernelFamilies() {
  KernelFamilies families;
  // Names are constants of ours, each added once: tests/artifact/kernels checks that none is
  // rejected.
  (void)AddGemmFamilies(families);
  (void)AddGemvFamilies(families);
  (void)AddGemmQFamily(families);
  (void)AddNormFamilies(families);
  (void)AddRopeFamilies(families);
  (void)AddElementwiseFamilies(families);
  (void)AddCopyFamilies(families);
  (void)AddEmbeddingFamilies(families);
  (void)AddAttentionFamilies(families);
  (void)AddTopKFamilies(families);
  return families;
}

Result<ModelKernels> KernelsOfModel(const GgufFile& file, CudaArch arch) {
  const KernelFamilies families = AllKernelFamilies();
  if (families.Catalog(arch).empty()) {
    return Fail(ErrorCode::kUnsupported, Format("no kernel is made for {}", arch.ToString()));
  }
  Result<std::string_view> architecture = file.String("general.architecture");
  if (!architecture) return Fail(architecture.error());
  const std::string name(*architecture);
  Result<std::uint32_t> width = file.U32(name + ".embedding_length");
  if (!width) return Fail(width.error());
  Result<std::uint32_t> heads = file.U32(name + ".attention.head_count");
  if (!heads) return Fail(heads.error());
  if (*heads == 0 || *width % *heads != 0) {
    return Fail(ErrorCode::kCorrupt,
                Format("{}: {} heads do not divide a width of {}", file.path(), *heads, *width));
  }
  std::uint32_t head_dim = *width / *heads;
  if (Result<std::uint32_t> given = file.U32(name + ".attention.key_length")) head_dim = *given;

  ModelKernels kernels;
  for (const auto& [type_name, matrices] : WeightTypes(file)) {
    const DataType type = ParseDataType(type_name).value_or(DataType::kNone);
    std::vector<KernelSpec> products = GemvSpecsForWeight(type, arch);
    Append(products, GemmQSpecsForWeight(type, arch));
    Append(products, GemvInt8Specs(type, arch));
    Append(products, GemmSpecsForWeight(type, arch));
    if (products.empty()) {
      kernels.unserved.push_back(Format("{}: {} matrices", type_name, matrices));
    }
    Append(kernels.specs, products);
    Append(kernels.specs, UnpackSpecs(type, arch));
    Append(kernels.specs, EmbeddingSpecs(type, arch));  // any of them may be the table
  }
  AppendOfEveryModel(families, arch, kernels.specs);
  const auto add_norms = [&](std::uint32_t of) {
    const std::vector<KernelSpec> norms =
        Fits(of) ? NormSpecs(static_cast<int>(of), arch) : std::vector<KernelSpec>();
    if (norms.empty()) kernels.unserved.push_back(Format("norms of width {}", of));
    Append(kernels.specs, norms);
  };
  add_norms(*width);
  if (file.FindTensor("blk.0.attn_q_norm.weight") != nullptr) add_norms(head_dim);
  if (head_dim % 2 != 0) kernels.unserved.push_back(Format("heads of {}", head_dim));
  const std::vector<KernelSpec> attentions =
      Fits(head_dim) ? AttentionSpecs(static_cast<int>(head_dim), arch) : std::vector<KernelSpec>();
  if (attentions.empty()) {
    kernels.unserved.push_back(Format("attention with heads of {}", head_dim));
  }
  Append(kernels.specs, attentions);
  return kernels;
}

}  // namespace tilewright
