#include "model/tokenizer/special_tokens.h"

#include <algorithm>
#include <tuple>

namespace tilewright {

void SpecialTokenFinder::Build(const Vocabulary& vocabulary, bool only_user_defined) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool wanted =
        type == TokenType::kUserDefined ||
        (!only_user_defined && (type == TokenType::kControl || type == TokenType::kUnknown));
    if (!wanted) continue;
    entries_.push_back({vocabulary.text(id), id});
    begins_[static_cast<std::uint8_t>(entries_.back().text.front())] = true;
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.text < b.text; });
}

void SpecialTokenFinder::AppendMatchesAt(std::string_view text, std::size_t at,
                                         std::vector<Match>& out) const {
  // [first, last) are the entries that match the text so far. They are sorted, so those that match
  // one more byte are adjacent, and an entry that ends here comes first.
  auto first = entries_.begin();
  auto last = entries_.end();
  for (std::size_t length = 0; first != last; ++length) {
    if (first->text.size() == length) {
      out.push_back({at, at + length, first->id});
      ++first;
    }
    if (at + length == text.size()) return;
    const auto wanted = static_cast<std::uint8_t>(text[at + length]);
    const auto byte = [length](const Entry& entry) {
      return static_cast<std::uint8_t>(entry.text[length]);
    };
    first =
        std::partition_point(first, last, [&](const Entry& entry) { return byte(entry) < wanted; });
    last = std::partition_point(first, last,
                                [&](const Entry& entry) { return byte(entry) == wanted; });
  }
}

void SpecialTokenFinder::KeepWinners(std::vector<Match>& cluster, std::vector<Match>& out) {
  if (cluster.size() == 1) {
    out.push_back(cluster.front());
    return;
  }
  const std::size_t base = cluster.front().begin;
  std::size_t end = base;
  for (const Match& match : cluster) end = std::max(end, match.end);
  std::sort(cluster.begin(), cluster.end(), [](const Match& a, const Match& b) {
    return std::tuple(b.end - b.begin, a.id, a.begin) < std::tuple(a.end - a.begin, b.id, b.begin);
  });
  // Matches selected before are at least as long as this one, so any that overlaps it covers its
  // first or its last byte.
  std::vector<bool> covered(end - base, false);
  const std::size_t before = out.size();
  for (const Match& match : cluster) {
    if (covered[match.begin - base] || covered[match.end - 1 - base]) continue;
    for (std::size_t i = match.begin; i < match.end; ++i) covered[i - base] = true;
    out.push_back(match);
  }
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
            [](const Match& a, const Match& b) { return a.begin < b.begin; });
}

std::vector<SpecialTokenFinder::Match> SpecialTokenFinder::FindAll(std::string_view text) const {
  std::vector<Match> matches;
  if (entries_.empty()) return matches;
  std::vector<Match> cluster;  // matches that overlap, directly or through others
  std::size_t cluster_end = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!begins_[static_cast<std::uint8_t>(text[at])]) continue;
    const std::size_t before = cluster.size();
    AppendMatchesAt(text, at, cluster);
    if (cluster.size() == before) continue;
    if (before > 0 && at >= cluster_end) {
      std::vector<Match> fresh(cluster.begin() + static_cast<std::ptrdiff_t>(before),
                               cluster.end());
      cluster.resize(before);
      KeepWinners(cluster, matches);
      cluster = std::move(fresh);
      cluster_end = 0;
    }
    cluster_end = std::max(cluster_end, cluster.back().end);
  }
  if (!cluster.empty()) KeepWinners(cluster, matches);
  return matches;
}

}  // namespace tilewright
