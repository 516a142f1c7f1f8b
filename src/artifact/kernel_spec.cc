#include "tilewright/kernel_spec.h"

#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "artifact/spec_words.h"
#include "core/text.h"

namespace tilewright {
namespace {

/// A decimal number as SpecName writes one: no sign but '-', no leading zero, nothing after it.
template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  const std::string_view digits = text.front() == '-' ? text.substr(1) : text;
  if (digits.front() == '0' && text.size() > 1) return std::nullopt;
  return value;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

/// The numbers of one segment: "w4", "128x128x32", "p0_-1_0_0".
template <class... T>
bool ParseNumbers(std::string_view segment, std::string_view prefix, char separator, T&... out) {
  if (segment.substr(0, prefix.size()) != prefix) return false;
  const auto parts = Split(segment.substr(prefix.size()), separator);
  if (parts.size() != sizeof...(T)) return false;
  std::size_t i = 0;
  const auto one = [&](auto& value) {
    const auto parsed = ParseNumber<std::decay_t<decltype(value)>>(parts[i++]);
    if (parsed) value = *parsed;
    return parsed.has_value();
  };
  return (one(out) && ...);
}

bool ParseTypes(std::string_view segment, KernelSpec& spec) {
  const auto parts = Split(segment, '-');
  if (parts.size() != 4) return false;
  DataType* const out[] = {&spec.type_a, &spec.type_b, &spec.type_c, &spec.type_d};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto type = ParseSpecType(parts[i]);
    if (!type) return false;
    *out[i] = *type;
  }
  return true;
}

bool ParseOrders(std::string_view segment, KernelSpec& spec) {
  if (segment.size() != 2) return false;
  Order* const out[] = {&spec.order_a, &spec.order_b};
  for (std::size_t i = 0; i < 2; ++i) {
    if (segment[i] != 't' && segment[i] != 'n') return false;
    *out[i] = segment[i] == 't' ? Order::kRowMajor : Order::kColMajor;
  }
  return true;
}

char OrderLetter(Order order) { return order == Order::kRowMajor ? 't' : 'n'; }

}  // namespace

std::string CudaArch::ToString() const {
  std::string text = Format("sm_{}", number);
  if (suffix != 0) text += static_cast<char>(suffix);
  return text;
}

bool CudaArch::RunsOn(int compute_capability) const {
  if (suffix == 'a') return compute_capability == number;
  return compute_capability / 10 == major() && compute_capability % 10 >= minor();
}

CudaArch NativeArch(int compute_capability) {
  const auto number = static_cast<std::uint16_t>(compute_capability);
  // Chips with instructions of their own that kernels of ours use.
  const bool own = compute_capability == 90 || compute_capability == 100;
  return {number, static_cast<std::uint16_t>(own ? 'a' : 0)};
}

Result<CudaArch> ParseCudaArch(std::string_view text) {
  constexpr std::string_view kPrefix = "sm_";
  const auto fail = [&] {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("architecture \"{}\": must be sm_ and a number, optionally followed by a or f, as "
               "in sm_80, sm_90a, sm_100f",
               Printable(text)));
  };
  if (text.substr(0, kPrefix.size()) != kPrefix) return fail();
  std::string_view digits = text.substr(kPrefix.size());
  CudaArch arch;
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) {
    arch.suffix = static_cast<std::uint16_t>(digits.back());
    digits.remove_suffix(1);
  }
  if (digits.size() < 2 || digits.size() > 3 || digits.front() == '-') return fail();
  const auto number = ParseNumber<std::uint16_t>(digits);
  if (!number) return fail();
  arch.number = *number;
  return arch;
}

std::string_view SpecEpilogueName(SpecEpilogue epilogue) {
  switch (epilogue) {
    case SpecEpilogue::kNone:
      return "none";
    case SpecEpilogue::kAdd:
      return "add";
    case SpecEpilogue::kScale:
      return "scale";
    case SpecEpilogue::kSwiGlu:
      return "swiglu";
  }
  return "unknown";
}

std::string SpecName(const KernelSpec& spec) {
  const auto& p = spec.params;
  return Format("{}.{}-{}-{}-{}.{}{}.{}.{}x{}x{}.w{}.s{}.k{}.c{}x{}.{}.p{}_{}_{}_{}",
                spec.family.view(), DataTypeName(spec.type_a), DataTypeName(spec.type_b),
                DataTypeName(spec.type_c), DataTypeName(spec.type_d), OrderLetter(spec.order_a),
                OrderLetter(spec.order_b), spec.arch.ToString(), spec.tile_m, spec.tile_n,
                spec.tile_k, spec.warps, spec.stages, spec.split_k, spec.cluster_m, spec.cluster_n,
                SpecEpilogueName(spec.epilogue), p[0], p[1], p[2], p[3]);
}

Result<KernelSpec> ParseSpecName(std::string_view text) {
  const auto fail = [&](std::string_view segment, std::string_view what, std::string_view form) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("spec \"{}\": {} \"{}\" must be {}", Printable(text), what,
                       Printable(segment), form));
  };
  constexpr std::size_t kSegments = 11;
  const auto parts = Split(text, '.');
  if (parts.size() != kSegments) {
    return Fail(
        ErrorCode::kInvalidArgument,
        Format("spec \"{}\": has {} segments between dots, must have {}, as in "
               "gemm_mma.bf16-bf16-none-bf16.tn.sm_80.128x128x32.w4.s4.k0.c0x0.none.p0_0_0_0",
               Printable(text), parts.size(), kSegments));
  }
  KernelSpec spec;
  if (!IsFamilyName(parts[0])) {
    return fail(parts[0], "family", "1 to 23 lower-case letters, digits and underscores");
  }
  spec.family = FamilyName(parts[0]);
  if (!ParseTypes(parts[1], spec)) {
    return fail(parts[1], "types", "four element types or none, as in bf16-bf16-none-bf16");
  }
  if (!ParseOrders(parts[2], spec)) {
    return fail(parts[2], "orders", "two letters, t (row-major) or n (column-major)");
  }
  const auto arch = ParseCudaArch(parts[3]);
  if (!arch) return fail(parts[3], "architecture", "as in sm_80 or sm_90a");
  spec.arch = *arch;
  if (!ParseNumbers(parts[4], "", 'x', spec.tile_m, spec.tile_n, spec.tile_k)) {
    return fail(parts[4], "tile", "three numbers from 0 to 65535, as in 128x128x32");
  }
  if (!ParseNumbers(parts[5], "w", '_', spec.warps)) return fail(parts[5], "warps", "as in w4");
  if (!ParseNumbers(parts[6], "s", '_', spec.stages)) return fail(parts[6], "stages", "as in s4");
  if (!ParseNumbers(parts[7], "k", '_', spec.split_k)) return fail(parts[7], "split", "as in k0");
  if (!ParseNumbers(parts[8], "c", 'x', spec.cluster_m, spec.cluster_n)) {
    return fail(parts[8], "cluster", "two numbers from 0 to 255, as in c2x1");
  }
  const auto epilogue = ParseSpecEpilogue(parts[9]);
  if (!epilogue) return fail(parts[9], "epilogue", "none, add or scale");
  spec.epilogue = *epilogue;
  auto& p = spec.params;
  if (!ParseNumbers(parts[10], "p", '_', p[0], p[1], p[2], p[3])) {
    return fail(parts[10], "parameters", "four 32-bit numbers, as in p0_0_0_0");
  }
  return spec;
}

bool IsFamilyName(std::string_view name) {
  if (name.empty() || name.size() >= FamilyName().chars.size()) return false;
  for (const char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

bool IsFamilyName(const FamilyName& name) {
  return IsFamilyName(name.view()) && FamilyName(name.view()) == name;
}

std::optional<DataType> ParseSpecType(std::string_view name) {
  return name == DataTypeName(DataType::kNone) ? DataType::kNone : ParseDataType(name);
}

std::optional<SpecEpilogue> ParseSpecEpilogue(std::string_view name) {
  for (const auto epilogue :
       {SpecEpilogue::kNone, SpecEpilogue::kAdd, SpecEpilogue::kScale, SpecEpilogue::kSwiGlu}) {
    if (name == SpecEpilogueName(epilogue)) return epilogue;
  }
  return std::nullopt;
}

Status CheckSpecValues(const KernelSpec& spec) {
  const auto fail = [](std::string_view field, int value, std::string_view need) {
    return Fail(ErrorCode::kInvalidArgument, Format("{} = {}: must be {}", field, value, need));
  };
  if (!IsFamilyName(spec.family)) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("family = \"{}\": must be 1 to 23 lower-case letters, digits and "
                       "underscores, padded with zeros",
                       spec.family.view()));
  }
  if (const auto arch = ParseCudaArch(spec.arch.ToString()); !arch || *arch != spec.arch) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("arch = {} with suffix {}: must be a number of 2 or 3 digits and no suffix, "
                       "a or f",
                       spec.arch.number, spec.arch.suffix));
  }
  const std::pair<std::string_view, DataType> types[] = {{"type_a", spec.type_a},
                                                         {"type_b", spec.type_b},
                                                         {"type_c", spec.type_c},
                                                         {"type_d", spec.type_d}};
  for (const auto& [name, type] : types) {
    if (ParseSpecType(DataTypeName(type)) != type) {
      return fail(name, static_cast<int>(type), "a DataType");
    }
  }
  const std::pair<std::string_view, Order> orders[] = {{"order_a", spec.order_a},
                                                       {"order_b", spec.order_b}};
  for (const auto& [name, order] : orders) {
    if (order != Order::kColMajor && order != Order::kRowMajor) {
      return fail(name, static_cast<int>(order), "an Order");
    }
  }
  if (ParseSpecEpilogue(SpecEpilogueName(spec.epilogue)) != spec.epilogue) {
    return fail("epilogue", static_cast<int>(spec.epilogue), "a SpecEpilogue");
  }
  return {};
}

}  // namespace tilewright
