#include "shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>

namespace tilewright::cli {
namespace {

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line + ",");  // so that an empty last cell counts
  std::string cell;
  while (std::getline(stream, cell, ',')) {
    const auto first = cell.find_first_not_of(" \t\r");
    const auto last = cell.find_last_not_of(" \t\r");
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

bool ParseSize(const std::string& text, std::int32_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value >= 1;
}

/// The cells of a line that was read, with the columns they are in.
using Columns = std::vector<std::string>;
using OnLine = std::function<Status(const Columns& columns, const Columns& cells)>;

/// Calls `line` for every line after the header, which `header` may refuse. Errors of both get the
/// file and the number of the line in front.
Status ReadCsv(const std::string& path, const std::function<Status(const Columns&)>& header,
               const OnLine& line_read) {
  Result<std::string> text = ReadFile(path);
  if (!text) return Fail(text.error());
  Columns columns;
  std::stringstream stream(*text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto at_line = [&](const Status& status) -> Status {
      if (status) return status;
      return Fail(status.error().code,
                  fmt::format("{}:{}: {}", path, number, status.error().message));
    };
    const Columns cells = Cells(line);
    if (cells.empty() || cells[0].starts_with('#') ||
        line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    if (columns.empty()) {
      columns = cells;
      if (Status good = at_line(header(columns)); !good) return good;
      continue;
    }
    if (cells.size() != columns.size()) {
      return at_line(
          Fail(ErrorCode::kInvalidArgument,
               fmt::format("{} cells, but the header has {}", cells.size(), columns.size())));
    }
    if (Status good = at_line(line_read(columns, cells)); !good) return good;
  }
  return {};
}

Result<ShapeRow> ShapeOf(const Columns& columns, const Columns& cells) {
  ShapeRow row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::int32_t* size = columns[i] == "m"   ? &row.m
                         : columns[i] == "n" ? &row.n
                         : columns[i] == "k" ? &row.k
                                             : nullptr;
    if (size != nullptr && !ParseSize(cells[i], *size)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} = '{}': must be a number >= 1", columns[i], cells[i]));
    }
    if (columns[i] == "name") row.name = cells[i];
    if (columns[i] == "type") row.type = cells[i];
    if (!row.type.empty() && !ParseDataType(row.type)) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("type = '{}' is unknown", row.type));
    }
  }
  if (row.name.empty()) row.name = fmt::format("{}x{}", row.n, row.k);
  return row;
}

}  // namespace

Result<std::vector<ShapeRow>> ReadShapes(const std::string& path) {
  std::vector<ShapeRow> rows;
  const auto header = [](const Columns& columns) -> Status {
    for (const char* needed : {"n", "k"}) {
      if (std::find(columns.begin(), columns.end(), needed) == columns.end()) {
        return Fail(ErrorCode::kInvalidArgument, fmt::format("no column '{}' in the header '{}'",
                                                             needed, fmt::join(columns, ",")));
      }
    }
    return {};
  };
  const auto line = [&](const Columns& columns, const Columns& cells) -> Status {
    Result<ShapeRow> row = ShapeOf(columns, cells);
    if (!row) return Fail(row.error());
    rows.push_back(std::move(*row));
    return {};
  };
  if (Status read = ReadCsv(path, header, line); !read) return Fail(read.error());
  if (rows.empty()) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: no shapes", path));
  return rows;
}

Result<std::vector<ProblemRow>> ReadProblems(
    const std::string& path, const std::function<Status(const std::string& fields)>& check) {
  std::vector<ProblemRow> rows;
  const auto line = [&](const Columns& columns, const Columns& cells) -> Status {
    ProblemRow row;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (columns[i] == "name") {
        row.name = cells[i];
      } else if (!cells[i].empty()) {
        row.fields += fmt::format("{}{}={}", row.fields.empty() ? "" : " ", columns[i], cells[i]);
      }
    }
    if (Status good = check(row.fields); !good) return good;
    rows.push_back(std::move(row));
    return {};
  };
  const auto any = [](const Columns&) -> Status { return {}; };
  if (Status read = ReadCsv(path, any, line); !read) return Fail(read.error());
  if (rows.empty()) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: no problems", path));
  return rows;
}

}  // namespace tilewright::cli
