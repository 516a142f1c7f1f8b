#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "engine/record_text.h"
#include "tilewright/records.h"

namespace tilewright {
namespace {

// A candidate that no session decided for replaces the decided one only beyond doubt: intervals
// apart and this much faster.
constexpr double kOvertakeGain = 0.01;

bool IsOf(const Record& row, const CombinedRecord& candidate) {
  return row.kernel == candidate.kernel && row.spec == candidate.spec &&
         row.fingerprint == candidate.fingerprint;
}

// Rows of versions that did not name their session are told apart by their time.
std::string SessionOf(const Record& row) {
  return row.session.empty() ? std::to_string(row.unix_ms) : row.session;
}

// Of equal times the first by name: `combined` is sorted.
const CombinedRecord* Fastest(std::span<const CombinedRecord* const> candidates) {
  const CombinedRecord* fastest = nullptr;
  for (const CombinedRecord* one : candidates) {
    if (fastest == nullptr || one->median_us < fastest->median_us) fastest = one;
  }
  return fastest;
}

// The candidate of the latest decision, and that decision's generation; nullptr for none.
struct Decided {
  const CombinedRecord* candidate = nullptr;
  std::int64_t generation = 0;
};
Decided LatestDecision(std::span<const CombinedRecord> combined, std::span<const Record> records,
                       bool finished) {
  std::vector<const CombinedRecord*> latest;
  std::int64_t generation = -1;
  for (const CombinedRecord& one : combined) {
    if (one.samples == 0) continue;
    for (const Record& row : records) {
      if (!row.chosen || row.verdict != Verdict::kOk || row.finished != finished ||
          row.generation < generation || !IsOf(row, one)) {
        continue;
      }
      if (row.generation > generation) latest.clear();
      generation = row.generation;
      latest.push_back(&one);
    }
  }
  return {Fastest(latest), generation};
}

// What the deciding session itself measured is in its decision already: it raced candidates in
// pairs, and those that it dropped early have a few samples, whose interval may be as narrow as it
// is wrong. Only measurements of other sessions, whether they knew of the decision or not, can
// overturn it.
const CombinedRecord* Challenger(std::span<const CombinedRecord> combined,
                                 std::span<const Record> records, const Decided& decided) {
  std::set<std::string> deciders;
  for (const Record& row : records) {
    if (row.chosen && row.generation == decided.generation && IsOf(row, *decided.candidate))
      deciders.insert(SessionOf(row));
  }
  std::vector<const CombinedRecord*> challengers;
  for (const CombinedRecord& one : combined) {
    if (one.samples == 0 || &one == decided.candidate) continue;
    const bool seen_by_others = std::any_of(records.begin(), records.end(), [&](const Record& row) {
      return row.finished && row.samples > 0 && row.verdict == Verdict::kOk &&
             row.generation >= decided.generation && IsOf(row, one) &&
             !deciders.contains(SessionOf(row));
    });
    if (seen_by_others) challengers.push_back(&one);
  }
  return Fastest(challengers);
}

}  // namespace

std::optional<CombinedRecord> Decide(std::span<const Record> records) {
  const std::vector<CombinedRecord> combined = Combine(records);
  if (const Decided decided = LatestDecision(combined, records, true);
      decided.candidate != nullptr) {
    const CombinedRecord* challenger = Challenger(combined, records, decided);
    const bool beyond_doubt =
        challenger != nullptr && challenger->high_us < decided.candidate->low_us &&
        challenger->median_us < (1 - kOvertakeGain) * decided.candidate->median_us;
    return beyond_doubt ? *challenger : *decided.candidate;
  }
  if (const Decided decided = LatestDecision(combined, records, false);
      decided.candidate != nullptr) {
    return *decided.candidate;
  }
  // What an unfinished session timed and did not decide for is of some moment of its own.
  std::vector<const CombinedRecord*> timed;
  for (const CombinedRecord& one : combined) {
    if (one.samples > 0 && one.finished) timed.push_back(&one);
  }
  const CombinedRecord* fastest = Fastest(timed);
  return fastest != nullptr ? std::optional(*fastest) : std::nullopt;
}

std::int64_t NextGeneration(std::span<const Record> records) {
  std::int64_t latest = 0;
  for (const Record& row : records) latest = std::max(latest, row.generation);
  return std::min(latest + 1, kMaxGeneration);
}

}  // namespace tilewright
