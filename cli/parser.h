#pragma once

// The option parser. Include it in options_*.cc only: it adds seconds to the compilation of a file.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace tilewright::cli {

/// A check whose rule is not shown in the help, since the option's description gives it.
template <class Check>
CLI::Validator Quiet(const Check& check) {
  return check.description("");
}

/// A check of files and folders. An empty name usually comes from an unset variable in a script; it
/// does not mean "none".
inline CLI::Validator Named() {
  return {[](const std::string& name) { return name.empty() ? "the name is empty" : ""; }, ""};
}

}  // namespace tilewright::cli
