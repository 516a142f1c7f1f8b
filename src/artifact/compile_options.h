#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewright/kernel_family.h"

namespace tilewright {

/// An option in the one spelling that keys and the compiler see: two dashes, no "=".
struct NormalOption {
  std::string flag;   ///< "--fmad"
  std::string value;  ///< "false"; "" where the option takes none

  bool operator==(const NormalOption&) const = default;
};

/// The options that a request record holds: those of every kernel that affect its bytes, and the
/// given ones; sorted by flag, each flag once. The order of the allowed options means nothing to
/// the compiler. kInvalidArgument, by name, for an option that no rule allows a family to give, a
/// invalid value, or a flag given twice.
Result<std::vector<NormalOption>> RecordedOptions(std::span<const CompileOption> of_family);

/// What RecordedOptions was given, from what it made. kUnsupported where these were made by another
/// version, with other rules.
Result<std::vector<CompileOption>> FamilyOptionsOf(std::span<const NormalOption> recorded);

/// "--fmad=false", "--restrict".
std::string OptionText(const NormalOption& option);

}  // namespace tilewright
