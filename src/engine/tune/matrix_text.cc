#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "engine/record_text.h"
#include "engine/sealed_json.h"
#include "tilewright/matrix.h"

namespace tilewright {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "tilewright.matrix";
constexpr long long kSchema = 1;

json LineOf(const MatrixProblem& problem, const MatrixCandidate& candidate) {
  json us = json::array(), cost = json::array(), reference = json::array(),
       disturbed = json::array();
  for (const MatrixSample& sample : candidate.samples) {
    us.push_back(sample.us), cost.push_back(sample.cost_us);
    reference.push_back(sample.reference_us), disturbed.push_back(sample.disturbed);
  }
  return {{"op", problem.op},
          {"problem", problem.problem},
          {"name", candidate.candidate.name},
          {"predicted_us", candidate.candidate.predicted_us},
          {"group", candidate.candidate.group},
          {"fallback", candidate.candidate.fallback},
          {"reps", candidate.reps},
          {"us", std::move(us)},
          {"cost_us", std::move(cost)},
          {"reference_us", std::move(reference)},
          {"disturbed", std::move(disturbed)}};
}

/// The numbers of an array, all finite and none negative.
std::optional<std::vector<double>> Times(const json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_array()) return std::nullopt;
  std::vector<double> times;
  for (const json& value : *at) {
    if (!value.is_number()) return std::nullopt;
    times.push_back(value.get<double>());
    if (!(times.back() >= 0)) return std::nullopt;
  }
  return times;
}

std::optional<bool> Bool(const json& value) {
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

/// Adds a line to the matrix; false if it is none of a candidate.
bool AddLine(const json& object, Matrix& matrix) {
  const auto op = StringMember(object, "op"), problem = StringMember(object, "problem"),
             name = StringMember(object, "name");
  const auto predicted = NumberMember(object, "predicted_us");
  const auto group = IntegerMember(object, "group"), reps = IntegerMember(object, "reps");
  const auto us = Times(object, "us"), cost = Times(object, "cost_us"),
             reference = Times(object, "reference_us");
  if (!op || !problem || !name || !predicted || !group || !reps || !us || !cost || !reference ||
      !object.contains("fallback") || !object.contains("disturbed")) {
    return false;
  }
  const auto fallback = Bool(object["fallback"]);
  const json& disturbed = object["disturbed"];
  if (!fallback || !disturbed.is_array() || us->empty() || *reps < 1 ||
      cost->size() != us->size() || reference->size() != us->size() ||
      disturbed.size() != us->size()) {
    return false;
  }
  MatrixCandidate candidate;
  candidate.candidate.name = *name;
  candidate.candidate.predicted_us = *predicted;
  candidate.candidate.group = static_cast<int>(*group);
  candidate.candidate.fallback = *fallback;
  candidate.reps = static_cast<int>(*reps);
  for (std::size_t i = 0; i < us->size(); ++i) {
    const auto busy = Bool(disturbed[i]);
    if (!busy || (*us)[i] == 0) return false;
    candidate.samples.push_back({(*us)[i], (*cost)[i], (*reference)[i], *busy});
  }
  if (matrix.problems.empty() || matrix.problems.back().op != *op ||
      matrix.problems.back().problem != *problem) {
    matrix.problems.push_back({*op, *problem, {}});
  }
  matrix.problems.back().candidates.push_back(std::move(candidate));
  return true;
}

bool ReadHeader(const json& object, Matrix& matrix) {
  const auto device = StringMember(object, "device"), libraries = StringMember(object, "libraries"),
             policy = StringMember(object, "policy");
  if (StringMember(object, "format") != kFormat || IntegerMember(object, "schema") != kSchema ||
      !device || !libraries || !policy) {
    return false;
  }
  matrix.scope.device = *device, matrix.scope.libraries = *libraries;
  const auto known = ParseMeasurePolicy(*policy);
  if (known) matrix.scope.policy = *known;
  return known.has_value();
}

}  // namespace

std::string FormatMatrix(const Matrix& matrix) {
  std::string text = Seal({{"format", kFormat},
                           {"schema", kSchema},
                           {"device", matrix.scope.device},
                           {"libraries", matrix.scope.libraries},
                           {"policy", std::string(MeasurePolicyName(matrix.scope.policy))}}) +
                     "\n";
  for (const MatrixProblem& problem : matrix.problems) {
    for (const MatrixCandidate& candidate : problem.candidates)
      text += Seal(LineOf(problem, candidate)) + "\n";
  }
  return text;
}

Result<Matrix> ParseMatrix(std::string_view text) {
  Matrix matrix;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::optional<json> object = Unseal(text.substr(at, end - at));
    at = end + 1, ++number;
    const bool fine =
        object && (number == 1 ? ReadHeader(*object, matrix) : AddLine(*object, matrix));
    if (!fine) {
      return Fail(ErrorCode::kCorrupt,
                  Format("line {}: not {} of a matrix of schema {}, or changed", number,
                         number == 1 ? "the header" : "a candidate", kSchema));
    }
  }
  if (number == 0) return Fail(ErrorCode::kCorrupt, "the matrix is empty");
  return matrix;
}

}  // namespace tilewright
