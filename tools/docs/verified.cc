#include "verified.h"

#include <array>
#include <fstream>
#include <sstream>

#include "core/text.h"

namespace tilewright {

Result<VerifiedRecord> VerifiedRecord::Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return Fail(ErrorCode::kNotFound, Format("cannot read {}", path.string()));
  VerifiedRecord record;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.starts_with('#')) continue;
    std::array<std::string, 4> words;
    std::istringstream text(line);
    for (std::string& word : words) std::getline(text, word, '\t');
    if (words[3].empty() || text.rdbuf()->in_avail() != 0)
      return Fail(ErrorCode::kCorrupt, Format("{}:{}: not four words", path.string(), number));
    if (words[0] == "ran") {
      record.sources_[words[1]] = words[2] + ", " + words[3];
    } else {
      record.facts_.insert({words[0], words[1], words[2], words[3]});
    }
  }
  return record;
}

std::set<std::string> VerifiedRecord::Of(std::string_view operation, std::string_view subject,
                                         std::string_view device) const {
  std::set<std::string> hows;
  for (const Fact& fact : facts_) {
    if (fact.operation == operation && fact.subject == subject && fact.device == device)
      hows.insert(fact.how);
  }
  return hows;
}

std::set<std::string> VerifiedRecord::Subjects(std::string_view operation) const {
  std::set<std::string> subjects;
  for (const Fact& fact : facts_)
    if (fact.operation == operation) subjects.insert(fact.subject);
  return subjects;
}

std::string VerifiedRecord::Source(std::string_view device) const {
  const auto at = sources_.find(device);
  return at == sources_.end() ? std::string() : at->second;
}

}  // namespace tilewright
