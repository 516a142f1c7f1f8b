#pragma once

// The option parser, which costs seconds in every file that includes it: for options_*.cc only.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>

namespace tilewright::cli {

/// A check whose rule the help does not repeat: the description of the option says it in words.
template <class Check>
CLI::Validator Quiet(const Check& check) {
  return check.description("");
}

/// A check of files and folders: an empty name is what a script passes whose variable is not set,
/// and does not mean "none".
inline CLI::Validator Named() {
  return {[](const std::string& name) { return name.empty() ? "the name is empty" : ""; }, ""};
}

}  // namespace tilewright::cli
