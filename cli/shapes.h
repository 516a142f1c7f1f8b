#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common.h"

namespace tilewright::cli {

/// One line of a shapes file.
struct ShapeRow {
  std::string name;
  std::int32_t m = 0;  ///< 0: not stated
  std::int32_t n = 0, k = 0;
  std::string type;  ///< "": not stated
};

/// A problem of any operation.
struct ProblemRow {
  std::string name;    ///< "": not stated
  std::string fields;  ///< "rows=8 cols=576", for ParseProblem
};

/// Reads CSV: '#' starts a comment; the first line names the columns, which are fields of a problem,
/// and `name`. An empty cell leaves the field out. `check` gets the fields of each line. Errors, those
/// of `check` too, name the file and the line.
Result<std::vector<ProblemRow>> ReadProblems(
    const std::string& path, const std::function<Status(const std::string& fields)>& check);

/// Reads CSV: '#' starts a comment; the first line names the columns: n and k, optionally name, m
/// and type; others are ignored. Errors name the file and the line.
Result<std::vector<ShapeRow>> ReadShapes(const std::string& path);

}  // namespace tilewright::cli
