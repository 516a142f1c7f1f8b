#include "report.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace tilewright::cli {

using Json = nlohmann::ordered_json;

struct Report::Impl {
  Json json = Json::object();
};

Report::Report() : impl_(std::make_unique<Impl>()) {}
Report::~Report() = default;
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(Report&&) noexcept = default;

namespace {
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
}  // namespace

Report& Report::Set(std::string_view key, std::string_view value) {
  impl_->json[std::string(key)] = std::string(value);
  return *this;
}
Report& Report::Set(std::string_view key, double value) {
  impl_->json[std::string(key)] = Number(value);
  return *this;
}
Report& Report::Set(std::string_view key, std::int64_t value) {
  impl_->json[std::string(key)] = value;
  return *this;
}
Report& Report::Set(std::string_view key, bool value) {
  impl_->json[std::string(key)] = value;
  return *this;
}
Report& Report::Set(std::string_view key, std::span<const std::int32_t> values) {
  impl_->json[std::string(key)] = std::vector<std::int32_t>(values.begin(), values.end());
  return *this;
}
Report& Report::Set(std::string_view key, std::span<const float> values) {
  Json& array = impl_->json[std::string(key)] = Json::array();
  for (float value : values) array.push_back(Number(value));
  return *this;
}
Report& Report::Set(std::string_view key, std::span<const double> values) {
  Json& array = impl_->json[std::string(key)] = Json::array();
  for (double value : values) array.push_back(Number(value));
  return *this;
}
Report& Report::SetNull(std::string_view key) {
  impl_->json[std::string(key)] = nullptr;
  return *this;
}
Report& Report::Set(std::string_view key, Report value) {
  impl_->json[std::string(key)] = std::move(value.impl_->json);
  return *this;
}
Report& Report::Append(std::string_view key, Report row) {
  Array(key);
  impl_->json[std::string(key)].push_back(std::move(row.impl_->json));
  return *this;
}
Report& Report::Append(std::string_view key, std::string_view text) {
  Array(key);
  impl_->json[std::string(key)].push_back(std::string(text));
  return *this;
}
Report& Report::Array(std::string_view key) {
  Json& value = impl_->json[std::string(key)];
  if (!value.is_array()) value = Json::array();
  return *this;
}
std::string Report::Text(int indent) const {
  return impl_->json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tilewright::cli
