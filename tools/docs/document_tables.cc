// Writes the tables of docs/formats.md and README.md, or checks them:
//
//     document_tables ROOT           put the tables between their comments
//     document_tables --check ROOT   exit 1 if they are not there as they would be written
//
// What a format is, its descriptor says; what runs where, the tests that ran (docs/verified.tsv).
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/formats.h"
#include "core/text.h"
#include "verified.h"

namespace tilewright {
namespace {

std::string FactorText(Factor factor) {
  switch (factor) {
    case Factor::kNone:
      return "none";
    case Factor::kF16:
      return "f16";
    case Factor::kF16TimesInt:
      return "f16 x integer";
    case Factor::kPowerOfTwo:
      return "power of two";
  }
  return "";
}

std::string TableOfFormats() {
  std::string table =
      "| type | GGUF number | values of a block | bytes | bits a value | code | zero | scale | "
      "minimum | values that share them |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const BlockFormat& f : kFormats) {
    table += Format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", f.name, f.gguf_type,
                    f.elements, f.bytes, 8.0 * f.bytes / f.elements, Format("{} bits", f.code_bits),
                    f.has_table ? std::string("table") : std::to_string(f.zero),
                    FactorText(f.scale), FactorText(f.min), f.sub_block);
  }
  return table;
}

std::vector<DataType> TypesOfWeights() {
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  return types;
}

/// A column: whatever was found right on one of the devices.
struct Column {
  std::string_view title;
  std::vector<std::string_view> devices;
};

/// Those of devices on which tests ran.
std::vector<Column> Columns(const VerifiedRecord& record) {
  std::vector<Column> columns = {
      {"CPU, scalar", {"scalar"}},
      {"CPU, AVX2", {"avx2"}},
      {"CPU, AVX-512 and VNNI", {"avx512", "avx512vnni", "avx512bf16"}},
      {"CPU, AMX", {"amx-tile", "amx-int8", "amx-bf16", "amx"}},
      {"GPU, 9.0", {"sm_90"}},
  };
  std::erase_if(columns, [&](const Column& column) {
    return std::ranges::all_of(
        column.devices, [&](std::string_view device) { return record.Source(device).empty(); });
  });
  return columns;
}

/// How `operation` was found right on the devices of a column, the finest rounding first.
std::vector<std::string> Cell(const VerifiedRecord& record, std::string_view operation,
                              std::string_view subject, const Column& column) {
  std::set<std::string> hows;
  for (const std::string_view device : column.devices)
    hows.merge(record.Of(operation, subject, device));
  std::vector<std::string> ordered;
  for (const std::string_view first : {"f32", "f16", "bf16", "int8"})
    if (hows.erase(std::string(first)) != 0) ordered.emplace_back(first);
  ordered.insert(ordered.end(), hows.begin(), hows.end());
  return ordered;
}

std::string Joined(std::span<const std::string> words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : between).append(word);
  return text;
}

std::string Head(const VerifiedRecord& record, std::string_view first) {
  std::string head = Format("| {} |", first), line = "|---|";
  for (const Column& column : Columns(record))
    head += Format(" {} |", column.title), line += "---|";
  return head + "\n" + line + "\n";
}

/// Types of weights by devices.
std::string TableOf(const VerifiedRecord& record, std::string_view operation) {
  std::string table = Head(record, "weights");
  for (const DataType type : TypesOfWeights()) {
    table += Format("| {} |", DataTypeName(type));
    for (const Column& column : Columns(record)) {
      const auto cell = Cell(record, operation, DataTypeName(type), column);
      table += Format(" {} |", cell.empty() ? "no" : Joined(cell, ", "));
    }
    table += "\n";
  }
  return table;
}

constexpr std::pair<std::string_view, std::string_view> kOperations[] = {
    {"product", "products"}, {"experts", "products of experts"}, {"embedding", "embedding"},
    {"unpack", "unpacking"}, {"model", "whole models"},
};

/// How many types of weights an operation takes, or which it does not.
std::string CountText(const VerifiedRecord& record, std::string_view operation,
                      const Column& column) {
  std::vector<std::string> without;
  for (const DataType type : TypesOfWeights()) {
    // Plain types have nothing to unpack: a copy converts them.
    if (operation == "unpack" && GetTypeInfo(type).block_elements == 1) continue;
    if (Cell(record, operation, DataTypeName(type), column).empty())
      without.emplace_back(DataTypeName(type));
  }
  const std::size_t all = TypesOfWeights().size() - (operation == "unpack" ? 3 : 0);
  if (without.empty()) return Format("all {}", all);
  if (without.size() == all) return "none";
  return Format("all but {}", Joined(without, ", "));
}

std::string TableOfOperations(const VerifiedRecord& record) {
  std::string table = Head(record, "weights by");
  for (const auto& [operation, title] : kOperations) {
    table += Format("| {} |", title);
    for (const Column& column : Columns(record))
      table += Format(" {} |", CountText(record, operation, column));
    table += "\n";
  }
  return table;
}

/// Machine and date of the tests behind each column.
std::string TableOfSources(const VerifiedRecord& record) {
  std::string table = "| device | tests of |\n|---|---|\n";
  for (const Column& column : Columns(record)) {
    std::vector<std::string> sources;
    for (const std::string_view device : column.devices) {
      const std::string source = record.Source(device);
      if (!source.empty() && (sources.empty() || sources.back() != source))
        sources.push_back(source);
    }
    table += Format("| {} | {} |\n", column.title,
                    sources.empty() ? std::string("none") : Joined(sources, "; "));
  }
  return table;
}

/// Families of models: what was compared on the CPU and on a GPU, or how much (`brief`).
std::string TableOfArchitectures(const VerifiedRecord& record, bool brief) {
  std::vector<Column> columns = {{"CPU", {"cpu"}}, {"GPU, 9.0", {"sm_90"}}};
  std::erase_if(columns,
                [&](const Column& column) { return record.Source(column.devices[0]).empty(); });
  std::string table = "| family |", line = "|---|";
  for (const Column& column : columns) table += Format(" {} |", column.title), line += "---|";
  table += "\n" + line + "\n";
  for (const std::string& family : record.Subjects("architecture")) {
    table += Format("| {} |", family);
    for (const Column& column : columns) {
      const auto cases = Cell(record, "architecture", family, column);
      const std::string count = Format("{} {}", cases.size(), cases.size() == 1 ? "case" : "cases");
      table += Format(" {} |", cases.empty() ? "no" : brief ? count : Joined(cases, "; "));
    }
    table += "\n";
  }
  return table;
}

/// Puts `table` between the comments of `name`; false where the page lacks them.
bool Replace(std::string& page, std::string_view name, const std::string& table) {
  const std::string begin = Format("<!-- table of {} -->\n", name), end = "<!-- end of table -->\n";
  const std::size_t from = page.find(begin);
  const std::size_t to = from == std::string::npos ? from : page.find(end, from);
  if (to == std::string::npos) return false;
  page.replace(from + begin.size(), to - from - begin.size(), table);
  return true;
}

int Complain(const std::string& text) {
  std::fprintf(stderr, "document_tables: %s\n", text.c_str());
  return 1;
}

struct Table {
  std::string_view name;
  std::string text;
};

int UpdatePage(const std::filesystem::path& path, std::span<const Table> tables, bool check) {
  std::ifstream file(path);
  const std::string was{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || was.empty()) return Complain("cannot read " + path.string());
  file.close();
  std::string page = was;
  for (const Table& table : tables) {
    if (!Replace(page, table.name, table.text))
      return Complain(
          Format("{} lacks the comments around a table of {}", path.string(), table.name));
  }
  if (page == was) return 0;
  if (check) return Complain(path.string() + " has other tables: make tables writes them");
  std::ofstream out(path, std::ios::trunc);
  out << page;
  return out.flush() ? 0 : Complain("cannot write " + path.string());
}

int UpdatePages(const std::filesystem::path& root, bool check) {
  const auto record = VerifiedRecord::Read(root / "docs" / "verified.tsv");
  if (!record) return Complain(record.error().message);
  std::vector<Table> in_docs = {{"formats", TableOfFormats()},
                                {"sources", TableOfSources(*record)},
                                {"architectures", TableOfArchitectures(*record, false)}};
  for (const auto& [operation, title] : kOperations)
    in_docs.push_back({title, TableOf(*record, operation)});
  const Table in_readme[] = {{"operations", TableOfOperations(*record)},
                             {"architectures", TableOfArchitectures(*record, true)}};
  const int docs = UpdatePage(root / "docs" / "formats.md", in_docs, check);
  const int readme = UpdatePage(root / "README.md", in_readme, check);
  return docs != 0 ? docs : readme;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::fprintf(stderr, "usage: document_tables [--check] ROOT\n");
    return 2;
  }
  return tilewright::UpdatePages(argv[argc - 1], check);
}
