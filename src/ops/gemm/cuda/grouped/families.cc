#include "ops/gemm/cuda/grouped/families.h"

#include <algorithm>
#include <array>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/gemm_q/families.h"
#include "ops/gemm/cuda/gemv/families.h"

namespace tilewright {
namespace {

/// A family here: the dense one, and which of its specs are worth having grouped.
struct Form {
  KernelFamily dense;
  bool by_row;
  bool (*ships)(const KernelSpec& dense);
};

/// Experts give what they take.
bool KeepsType(const KernelSpec& s) { return s.type_d == s.type_a; }

/// Rings that the copy engine fills took 10 to 13 % longer on an H200, with 8 to 4,096 rows of
/// 1536 x 2048 in q4_k, gate and up.
bool ShipsInt8(const KernelSpec& s) {
  return KeepsType(s) && s.tile_m == 1 && s.params[2] == 0 && s.params[3] == 0 &&
         s.epilogue != SpecEpilogue::kNone;
}
/// For activations that must not be rounded.
bool ShipsQuantised(const KernelSpec& s) {
  const bool plain = s.epilogue == SpecEpilogue::kNone && s.warps == 8 && s.stages == 2;
  return KeepsType(s) && s.tile_m == 1 &&
         ((plain && s.tile_n == 16) || s.epilogue == SpecEpilogue::kSwiGlu);
}
bool ShipsStream(const KernelSpec& s) {
  return KeepsType(s) && s.params[2] == 0 && s.epilogue != SpecEpilogue::kAdd;
}

/// Each number of rows once.
bool ShipsTiles(const KernelSpec& s) {
  return KeepsType(s) && s.tile_n == (s.tile_m < 32 ? 64 : 128);
}

const std::array<Form, 5>& Forms() {
  static const std::array<Form, 5> forms{
      Form{GemvInt8Family(), true, &ShipsInt8}, Form{GemvQuantisedFamily(), true, &ShipsQuantised},
      Form{GemvStreamFamily(), true, &ShipsStream}, Form{GemmQFamily(), false, &ShipsTiles},
      Form{GemmSimtFamily(), false, &KeepsType}};
  return forms;
}

template <std::size_t kForm>
std::optional<Rejection> Check(const KernelSpec& spec) {
  const Form& form = Forms()[kForm];
  KernelSpec dense = spec;
  dense.family = form.dense.name;
  if (auto no = form.dense.check(dense)) return no;
  if (!form.by_row) return std::nullopt;
  if (auto no = CheckRange("tile_m", spec.tile_m, 1, 1)) return no;
  return CheckRange("param2", spec.params[2], 0, 0);
}

template <std::size_t kForm>
KernelLaunchShape Launch(const KernelSpec& spec) {
  return Forms()[kForm].dense.launch(DenseSpecOf(spec));
}
template <std::size_t kForm>
ResourceLimits Limits(const KernelSpec& spec) {
  return Forms()[kForm].dense.limits(DenseSpecOf(spec));
}

template <std::size_t kForm>
std::vector<KernelSpec> Catalog(CudaArch arch) {
  const Form& form = Forms()[kForm];
  std::vector<KernelSpec> specs = form.dense.catalog(arch);
  std::erase_if(specs, [&](const KernelSpec& spec) { return !form.ships(spec); });
  for (KernelSpec& spec : specs) {
    spec.family = GroupedFamilies()[kForm].name;
    // A product of rows leaves no multiprocessor to the next launch, and what finds the group takes
    // registers.
    if (spec.family == FamilyName("gemv_int8_grouped")) spec.params[1] = 1;
  }
  return specs;
}

template <std::size_t kForm>
KernelFamily FamilyOf(std::string_view name, std::string_view source) {
  return {.name = name,
          .source = source,
          .files = {},
          .options = {},
          .check = &Check<kForm>,
          .launch = &Launch<kForm>,
          .limits = &Limits<kForm>,
          .catalog = &Catalog<kForm>,
          .waits_for_prerequisites = true};
}

}  // namespace

std::span<const KernelFamily> GroupedFamilies() {
  static const std::array families{
      FamilyOf<0>("gemv_int8_grouped", "ops/gemm/cuda/grouped/gemv_int8_grouped.cu"),
      FamilyOf<1>("gemv_q_grouped", "ops/gemm/cuda/grouped/gemv_q_grouped.cu"),
      FamilyOf<2>("gemv_stream_grouped", "ops/gemm/cuda/grouped/gemv_stream_grouped.cu"),
      FamilyOf<3>("gemm_q_grouped", "ops/gemm/cuda/grouped/gemm_q_grouped.cu"),
      FamilyOf<4>("gemm_simt_grouped", "ops/gemm/cuda/grouped/gemm_simt_grouped.cu")};
  return families;
}

Status AddGroupedFamilies(KernelFamilies& families) {
  for (const KernelFamily& family : GroupedFamilies()) {
    if (Status added = families.Add(family); !added) return added;
  }
  return {};
}

namespace {

const Form* FormOf(const FamilyName& grouped) {
  const std::span<const KernelFamily> all = GroupedFamilies();
  const auto at = std::ranges::find(all, grouped, &KernelFamily::name);
  return at != all.end() ? &Forms()[static_cast<std::size_t>(at - all.begin())] : nullptr;
}

}  // namespace

const KernelFamily* DenseFamilyOf(const FamilyName& grouped) {
  const Form* form = FormOf(grouped);
  return form != nullptr ? &form->dense : nullptr;
}

KernelSpec DenseSpecOf(const KernelSpec& spec) {
  KernelSpec dense = spec;
  dense.family = DenseFamilyOf(spec.family)->name;
  return dense;
}

bool GroupsByRow(const KernelSpec& spec) { return FormOf(spec.family)->by_row; }

}  // namespace tilewright
