#include <memory>
#include <utility>

#include "ops/gemm/base/packs.h"
#include "ops/gemm/cpu/grouped_panel_gemm.h"
#include "ops/gemm/cpu/panel_gemm.h"
#include "ops/gemm/cpu/scalar_gemm.h"
#include "ops/gemm/cpu/w8a8/gemm_w8a8.h"
#include "ops/gemm/register.h"
#if defined(TILEWRIGHT_GEMM_ONEDNN)
#include "ops/gemm/cpu/onednn/onednn_gemm.h"
#include "ops/gemm/cpu/onednn/onednn_panels.h"
#endif
#if defined(TILEWRIGHT_GEMM_INT8)
#include "ops/gemm/cpu/amx/register.h"
#include "ops/gemm/cpu/int8/register.h"
#endif

namespace tilewright {
namespace {

using gemm::GroupedPanelGemm;
using gemm::IsaTraits;
using gemm::PanelConfig;
using gemm::PanelGemm;
using gemm::PanelGemv;
using gemm::PanelOps;
using gemm::ScalarGemm;
using gemm::ScalarKind;

// Names are distinct by construction (the registry's test says so): Add cannot fail here.
template <class K, class... Args>
void Put(Registry& registry, Args&&... args) {
  static_cast<void>(registry.Add(std::make_unique<K>(args...)));
}

// The kernels of one packed layout, and one for the same weights as they lie.
void AddPanels(Registry& registry, PanelConfig config) {
  Put<PanelGemv>(registry, config);
  Put<PanelGemm>(registry, config);
  Put<GroupedPanelGemm>(registry, config);
  config.pack = kPackPlain;
  Put<PanelGemm>(registry, config);
}

void AddPanelKernels(Registry& registry, const PanelOps& ops, const IsaTraits& isa) {
  for (const auto& [type, pack] : {std::pair{DataType::kF32, kPackF32x16},
                                   {DataType::kF16, kPackF16x16},
                                   {DataType::kBF16, kPackBF16x16x2}}) {
    AddPanels(registry, {.ops = &ops, .isa = isa, .type_b = type, .pack = pack});
  }
  for (const BlockFormat& format : kFormats) {
    PanelConfig config{.ops = &ops, .isa = isa, .type_b = format.type, .pack = PanelPack(format)};
    if (gemm::HasPanels(format)) {
      AddPanels(registry, config);
    } else {
      config.pack = kPackPlain;
      Put<PanelGemm>(registry, config);
    }
  }
  // Rounded activations, multiplied in f32.
  const PanelConfig rounded{.ops = &ops,
                            .isa = isa,
                            .type_b = DataType::kBF16,
                            .pack = kPackBF16x16x2,
                            .activations = Precision::kBF16};
  Put<PanelGemm>(registry, rounded);
}

}  // namespace

void AddGemm(Registry& registry) {
  for (const ScalarKind kind :
       {ScalarKind::kPlain, ScalarKind::kU4, ScalarKind::kFp8, ScalarKind::kGrouped}) {
    Put<ScalarGemm>(registry, kind);
  }
  // Two fma ports of 256 bits give half of what two of 512 do, and the same on processors that
  // split 512 in two.
  const IsaTraits avx2{.word = "avx2", .features = kFeatureAvx2, .relative_rate = 0.75};
  const IsaTraits avx512{
      .word = "avx512", .features = kFeatureAvx2 | kFeatureAvx512, .relative_rate = 1.0};
  AddPanelKernels(registry, gemm::PanelOpsAvx2(), avx2);
  AddPanelKernels(registry, gemm::PanelOpsAvx512(), avx512);
  Put<PanelGemm>(registry, PanelConfig{.ops = &gemm::PanelOpsAvx512(),
                                       .isa = avx512,
                                       .type_b = DataType::kF32,
                                       .pack = kPackF32x16,
                                       .split_k = true});
  // Two bf16 products an element and instruction.
  Put<PanelGemm>(registry, PanelConfig{.ops = &gemm::PanelOpsAvx512(),
                                       .isa = {.word = "avx512bf16",
                                               .features = avx512.features | kFeatureAvx512Bf16},
                                       .type_b = DataType::kBF16,
                                       .pack = kPackBF16x16x2,
                                       .activations = Precision::kBF16,
                                       .pairs = &gemm::PairOpsAvx512Bf16()});
#if defined(TILEWRIGHT_GEMM_INT8)
  AddGemmInt8(registry);
  AddGemmAmx(registry);
#endif
  AddGemmW8A8(registry);
#if defined(TILEWRIGHT_GEMM_ONEDNN)
  Put<gemm::OneDnnGemm>(registry);
  Put<gemm::OneDnnPanels>(registry, DataType::kF32, Precision::kF32);
  Put<gemm::OneDnnPanels>(registry, DataType::kBF16, Precision::kBF16);
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16})
    Put<gemm::OneDnnPanels>(registry, type, Precision::kW8A8);
  for (const BlockFormat& format : kFormats)
    Put<gemm::OneDnnPanels>(registry, format.type, Precision::kW8A8);
#endif
}

}  // namespace tilewright
