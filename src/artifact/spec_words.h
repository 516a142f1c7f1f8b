#pragma once

#include <optional>
#include <string_view>

#include "tilewright/kernel_spec.h"

namespace tilewright {

/// 1 to 23 lower-case letters, digits and underscores.
bool IsFamilyName(std::string_view name);
/// And nothing but zeros behind it.
bool IsFamilyName(const FamilyName& name);

/// As ParseDataType, and "none".
std::optional<DataType> ParseSpecType(std::string_view name);
std::optional<SpecEpilogue> ParseSpecEpilogue(std::string_view name);

/// Whether every field of `spec` has a value that its type names, so that it can be written down.
/// What a family makes of the values is the family's business (KernelFamily::check).
/// kInvalidArgument names the field.
Status CheckSpecValues(const KernelSpec& spec);

}  // namespace tilewright
