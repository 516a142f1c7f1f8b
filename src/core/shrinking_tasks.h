#pragma once

#include <climits>
#include <cstdint>

namespace tilewright {

/// Consecutive units of work cut into tasks for workers whose speeds differ or change meanwhile: into
/// lanes of about equal length, one for each worker, and each lane into pieces of half of what is left
/// of it. The tasks are in the order in which to hand them out: the first pieces of all lanes, then the
/// second ones. So the long ones run first, and what a late worker still holds at the end is short.
/// Workers that keep pace stay in their lanes, each reading on where it stopped.
///
/// Factoring (Hummel, Schonberg, Flynn 1992), with a lane's pieces side by side. Making one and finding a
/// task take as long as the logarithm of a lane.
class ShrinkingTasks {
 public:
  struct Range {
    int first = 0, end = 0;  ///< [first, end); empty where a lane has fewer pieces than others
    constexpr bool operator==(const Range&) const = default;
    constexpr bool empty() const { return first == end; }
    /// In parts, `each` of a unit but for the last one, which may have fewer: there are `all`.
    constexpr Range InParts(int each, int all) const {
      return {first * each, end * each < all ? end * each : all};
    }
  };

  constexpr ShrinkingTasks() = default;
  /// At least one unit and one lane; pieces of at least `least` units, but for the last of a lane, and at
  /// most `most` >= `least` >= 1. None is longer than the first of the last lane.
  constexpr ShrinkingTasks(int units, int lanes, int least, int most = INT_MAX)
      : units_(units), lanes_(lanes < units ? lanes : units), least_(least), most_(most) {
    const int alike = AlikeOf(longest());
    pieces_ = alike;
    for (int left = longest() - alike * most_; left > 0; left -= PieceOf(left)) ++pieces_;
  }

  constexpr int count() const { return lanes_ * pieces_; }
  constexpr int lanes() const { return lanes_; }
  constexpr int longest() const { return (units_ + lanes_ - 1) / lanes_; }  ///< units of a lane
  constexpr int pieces() const { return pieces_; }                          ///< of the longest lane

  /// Of task 0 to count() - 1. All of them together are all units, each once.
  constexpr Range operator[](int task) const {
    const int lane = task % lanes_, piece = task / lanes_;
    const int end = Start(lane + 1);
    int first = Start(lane);
    const int alike = AlikeOf(end - first), skipped = alike < piece ? alike : piece;
    first += skipped * most_;
    for (int i = skipped; i < piece; ++i) first += PieceOf(end - first);
    return {first, piece + 1 < pieces_ ? first + PieceOf(end - first) : end};
  }

  /// The `least` with which lanes have `pieces` >= 1, or fewer where they are short.
  static constexpr int LeastOf(int units, int lanes, int pieces) {
    const int longest = (units + lanes - 1) / lanes;
    const int halvings = pieces < 31 ? pieces - 1 : 30;
    return ((longest - 1) >> halvings) + 1;
  }

  /// Lanes in `pieces` >= 1, or fewer where they are short, and more where one would exceed `most`.
  static constexpr ShrinkingTasks InPieces(int units, int lanes, int pieces, int most = INT_MAX) {
    const int least = LeastOf(units, lanes, pieces);
    return {units, lanes, least < most ? least : most, most};
  }

  /// Lanes in `pieces`, of units of `unit_bytes` that are only read: no piece is below 32 KB, if its lane is not. To take one
  /// costs a worker 0.05 to 0.25 us, since another core wrote the counter last; so long it reads 1 to 6 KB. (SmolLM2's decoding
  /// on two cores of a Zen 5 that share no last-level cache, ten rounds in turn, tokens a second: 496, and 514 with this least;
  /// with 64 KB, and on cores that share one, alike.)
  static constexpr ShrinkingTasks OfStream(int units, int lanes, int pieces,
                                           std::int64_t unit_bytes) {
    constexpr int kLeastBytes = 32 << 10;
    const int least = LeastOf(units, lanes, pieces), whole = LeastOf(units, lanes, 1);
    const auto enough = static_cast<int>((kLeastBytes + unit_bytes - 1) / unit_bytes);
    return {units, lanes, enough > whole ? whole : enough > least ? enough : least};
  }

  constexpr bool operator==(const ShrinkingTasks&) const = default;

 private:
  constexpr int Start(int lane) const {
    return static_cast<int>(static_cast<long long>(units_) * lane / lanes_);
  }
  constexpr int PieceOf(int left) const {
    const int half = left - left / 2, piece = half < least_ ? least_ : half < most_ ? half : most_;
    return piece < left ? piece : left;
  }

  /// Pieces of `most` that a lane of so many units begins with: the half is more.
  constexpr int AlikeOf(int left) const {
    const long long beyond = left - 2LL * most_ + 1;
    return beyond >= 0 ? static_cast<int>(beyond / most_) + 1 : 0;
  }

  int units_ = 1, lanes_ = 1, least_ = 1, most_ = 1, pieces_ = 0;
};

}  // namespace tilewright
