#pragma once

// The option parser, which costs seconds in every file that includes it: for options_*.cc only.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace tilewright::cli {

/// A check whose rule the help does not repeat: the description of the option says it in words.
template <class Check>
CLI::Validator Quiet(const Check& check) {
  return check.description("");
}

}  // namespace tilewright::cli
