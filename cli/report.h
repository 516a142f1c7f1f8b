#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cli {

/// Builds a JSON object. Hides the JSON library, which would add seconds to the compilation of
/// every file that includes it. Keys keep their order.
class Report {
 public:
  Report();
  ~Report();
  Report(Report&&) noexcept;
  Report& operator=(Report&&) noexcept;

  Report& Set(std::string_view key, std::string_view value);
  Report& Set(std::string_view key, const char* value) { return Set(key, std::string_view(value)); }
  Report& Set(std::string_view key, double value);  ///< not finite: null
  Report& Set(std::string_view key, std::int64_t value);
  Report& Set(std::string_view key, int value) {
    return Set(key, static_cast<std::int64_t>(value));
  }
  Report& Set(std::string_view key, bool value);
  Report& Set(std::string_view key, std::span<const std::int32_t> values);
  Report& Set(std::string_view key, std::span<const float> values);
  Report& Set(std::string_view key, std::span<const double> values);
  Report& SetNull(std::string_view key);
  Report& Set(std::string_view key, Report value);
  /// Appends an object to the array at `key`.
  Report& Append(std::string_view key, Report row);
  Report& Append(std::string_view key, std::string_view text);
  /// Creates an empty array at `key` unless there is one.
  Report& Array(std::string_view key);

  /// `indent` < 0: on one line. Text that is not UTF-8 is repaired with U+FFFD.
  std::string Text(int indent = -1) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::cli
