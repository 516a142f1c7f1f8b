#include "tilewright/kernel_family.h"

#include "artifact/render.h"
#include "artifact/spec_words.h"
#include "core/text.h"

namespace tilewright {
namespace {

/// The enumerator of device/cuda/kernels/types.cuh: "q4_1" is kQ4_1, "bf16" is kBF16. Derived from
/// the name, so that adding a type to both lists needs no change here.
std::string DeviceTypeName(DataType type) {
  if (type == DataType::kNone) return "kNone";
  if (type == DataType::kF8E4M3)
    return "kF8E4M3";  // the exception: the name has one more underscore
  std::string name = "k";
  for (const char c : DataTypeName(type)) {
    name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

std::string_view DeviceEpilogueName(SpecEpilogue epilogue) {
  switch (epilogue) {
    case SpecEpilogue::kNone:
      return "kNone";
    case SpecEpilogue::kAdd:
      return "kAdd";
    case SpecEpilogue::kScale:
      return "kScale";
    case SpecEpilogue::kSwiGlu:
      return "kSwiGlu";
  }
  return "kUnknown";
}

}  // namespace

Status KernelFamilies::Add(const KernelFamily& family) {
  const auto fail = [&](std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("kernel family \"{}\": {}", family.name.view(), what));
  };
  if (!IsFamilyName(family.name)) {
    return fail("the name must be 1 to 23 lower-case letters, digits and underscores");
  }
  if (Find(family.name) != nullptr) return fail("the name is taken");
  if (family.source.empty()) return fail("the source is missing");
  if (family.check == nullptr) return fail("the function `check` is missing");
  if (family.launch == nullptr) return fail("the function `launch` is missing");
  if (family.limits == nullptr) return fail("the function `limits` is missing");
  if (family.catalog == nullptr) return fail("the function `catalog` is missing");
  families_.push_back(family);
  return {};
}

const KernelFamily* KernelFamilies::Find(const FamilyName& name) const {
  for (const KernelFamily& family : families_) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::vector<KernelSpec> KernelFamilies::Catalog(CudaArch arch) const {
  std::vector<KernelSpec> specs;
  for (const KernelFamily& family : families_) {
    const std::vector<KernelSpec> own = family.catalog(arch);
    specs.insert(specs.end(), own.begin(), own.end());
  }
  return specs;
}

std::string RenderSpec(const KernelSpec& spec, std::string_view symbol) {
  std::string text = Format(
      "#pragma once\n"
      "#include \"{}\"\n"
      "#define TW_ARCH {}\n"
      "#define TW_ARCH_SUFFIX_A {}\n"
      "#define TW_ARCH_SUFFIX_F {}\n"
      "#define TILEWRIGHT_KERNEL {}\n"
      "namespace tw::spec {{\n",
      kSpecHeaderInclude, spec.arch.number, spec.arch.suffix == 'a' ? 1 : 0,
      spec.arch.suffix == 'f' ? 1 : 0, symbol);
  const auto add = [&](std::string_view type, std::string_view name, std::string_view value) {
    text += Format("inline constexpr {} {} = {};\n", type, name, value);
  };
  const auto add_int = [&](std::string_view name, std::int64_t value) {
    // The most negative number has no literal of its own: 2147483648 is no int.
    const bool lowest = value == INT32_MIN;
    add("int", name, lowest ? "-2147483647 - 1" : Format("{}", value));
  };
  add("Type", "kTypeA", "Type::" + DeviceTypeName(spec.type_a));
  add("Type", "kTypeB", "Type::" + DeviceTypeName(spec.type_b));
  add("Type", "kTypeC", "Type::" + DeviceTypeName(spec.type_c));
  add("Type", "kTypeD", "Type::" + DeviceTypeName(spec.type_d));
  add("bool", "kRowMajorA", spec.order_a == Order::kRowMajor ? "true" : "false");
  add("bool", "kRowMajorB", spec.order_b == Order::kRowMajor ? "true" : "false");
  add("Epilogue", "kEpilogue", Format("Epilogue::{}", DeviceEpilogueName(spec.epilogue)));
  add_int("kStages", spec.stages);
  add_int("kTileM", spec.tile_m);
  add_int("kTileN", spec.tile_n);
  add_int("kTileK", spec.tile_k);
  add_int("kWarps", spec.warps);
  add_int("kSplitK", spec.split_k);
  add_int("kClusterM", spec.cluster_m);
  add_int("kClusterN", spec.cluster_n);
  add_int("kParam0", spec.params[0]);
  add_int("kParam1", spec.params[1]);
  add_int("kParam2", spec.params[2]);
  add_int("kParam3", spec.params[3]);
  text += "}  // namespace tw::spec\n";
  return text;
}

}  // namespace tilewright
