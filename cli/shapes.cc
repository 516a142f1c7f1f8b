#include "shapes.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace tilewright::cli {
namespace {

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
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

}  // namespace

Result<std::vector<ShapeRow>> ReadShapes(const std::string& path) {
  Result<std::string> text = ReadFile(path);
  if (!text) return Fail(text.error());
  std::vector<ShapeRow> rows;
  std::vector<std::string> columns;
  std::stringstream stream(*text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto wrong = [&](const std::string& what) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", path, number, what));
    };
    const std::vector<std::string> cells = Cells(line);
    if (cells.empty() || cells[0].starts_with('#') ||
        line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    if (columns.empty()) {
      columns = cells;
      for (const char* needed : {"n", "k"}) {
        if (std::find(columns.begin(), columns.end(), needed) == columns.end()) {
          return wrong(fmt::format("no column '{}' in the header '{}'", needed, line));
        }
      }
      continue;
    }
    if (cells.size() != columns.size()) {
      return wrong(fmt::format("{} cells, but the header has {}", cells.size(), columns.size()));
    }
    ShapeRow row;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::int32_t* size = columns[i] == "m"   ? &row.m
                           : columns[i] == "n" ? &row.n
                           : columns[i] == "k" ? &row.k
                                               : nullptr;
      if (size != nullptr && !ParseSize(cells[i], *size)) {
        return wrong(fmt::format("{} = '{}': must be a number >= 1", columns[i], cells[i]));
      }
      if (columns[i] == "name") row.name = cells[i];
      if (columns[i] == "type") row.type = cells[i];
    }
    if (row.name.empty()) row.name = fmt::format("{}x{}", row.n, row.k);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: no shapes", path));
  return rows;
}

}  // namespace tilewright::cli
