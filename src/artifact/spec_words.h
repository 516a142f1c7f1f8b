#pragma once

#include <optional>
#include <string_view>

#include "tilewright/kernel_spec.h"

namespace tilewright {

/// 1 to 23 lower-case letters, digits and underscores.
bool IsFamilyName(std::string_view name);
/// As above, and the rest of `name` is zero.
bool IsFamilyName(const FamilyName& name);

/// As ParseDataType, but also accepts "none".
std::optional<DataType> ParseSpecType(std::string_view name);
std::optional<SpecEpilogue> ParseSpecEpilogue(std::string_view name);

/// Checks that the fields of `spec` are valid values of their types and can be written to a record.
/// Whether a family supports them is up to KernelFamily::check. kInvalidArgument names the field.
Status CheckSpecValues(const KernelSpec& spec);

}  // namespace tilewright
