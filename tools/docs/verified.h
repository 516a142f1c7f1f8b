#pragma once

#include <compare>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

/// What tests found right, as tools/docs/collect_verified.py keeps it (docs/verified.tsv).
class VerifiedRecord {
 public:
  static Result<VerifiedRecord> Read(const std::filesystem::path& path);

  /// How `operation` was found right for `subject` on a device, in alphabetical order.
  std::set<std::string> Of(std::string_view operation, std::string_view subject,
                           std::string_view device) const;
  /// All subjects of an operation, on any device.
  std::set<std::string> Subjects(std::string_view operation) const;
  /// Machine and date of the tests of a device; "" where none ran.
  std::string Source(std::string_view device) const;

 private:
  struct Fact {
    std::string operation, subject, device, how;
    auto operator<=>(const Fact&) const = default;
  };
  std::set<Fact> facts_;
  std::map<std::string, std::string, std::less<>> sources_;  // by device
};

}  // namespace tilewright
