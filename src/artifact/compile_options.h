#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewright/kernel_family.h"

namespace tilewright {

/// An option in the canonical spelling, used in keys and for the compiler: two dashes, no "=".
struct NormalOption {
  std::string flag;   ///< "--fmad"
  std::string value;  ///< "false"; "" where the option takes none

  bool operator==(const NormalOption&) const = default;
};

/// The options that a request record holds: those of every kernel that affect its bytes, and the
/// given ones; sorted by flag, each flag once. (The order of these options does not matter to the
/// compiler.) kInvalidArgument names an option that families may not give, that has an invalid
/// value, or that is given twice.
Result<std::vector<NormalOption>> RecordedOptions(std::span<const CompileOption> of_family);

/// The inverse of RecordedOptions. kUnsupported if the options were recorded by another version
/// with other rules.
Result<std::vector<CompileOption>> FamilyOptionsOf(std::span<const NormalOption> recorded);

/// "--fmad=false", "--restrict".
std::string OptionText(const NormalOption& option);

}  // namespace tilewright
