#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "tilewright/tilewright.h"

namespace tilewright::cli {

/// For people: "2048 x 576 x 1536 q4_1" for a product, else the operation and the fields that
/// differ from their defaults, "norm rows=8 cols=576". `key` is KeyOf.
std::string ShortProblem(std::string_view op, const std::string& key);

/// The fields of `key` that differ from those of `usual`, after the first `always`.
std::string FieldsThatDiffer(const std::string& key, const std::string& usual, std::size_t always,
                             std::string_view separator);

/// The number of rows of a problem, which varies from call to call.
template <class Desc>
std::int64_t RowsOf(const Desc& desc) {
  if constexpr (requires { desc.rows; }) {
    return desc.rows;
  } else {
    return BatchOf(desc);
  }
}

/// For the help of a verb: "Fields: rows, cols; ...".
template <class Op>
std::string FieldsText() {
  const typename Op::Desc plain;
  std::string fields;
  ForEachField(plain, [&](std::string_view field, const auto&) {
    fields.append(fields.empty() ? "" : ", ").append(field);
  });
  return "Fields: " + fields +
         (std::is_same_v<Op, GemmOp> ? "; m, n and k must be given, other omitted fields have the "
                                       "values of\nthe example (on "
                                       "a GPU type_a and type_c are bf16)."
                                     : "; omitted fields have the values of the example.");
}

/// Whether there is an operation of this name.
bool IsOperation(std::string_view name);
/// "gemm, norm, ...".
std::string OperationNames();

}  // namespace tilewright::cli
