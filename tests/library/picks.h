#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models.h"
#include "tilewright/tokenizer.h"

/// Greedy text of two devices compared: where one picks another token than the other, the errors of
/// the logits must explain it. For tests.

namespace tilewright::test {

/// One position at which a device picked another token than the logits that are wanted would.
struct DifferentPick {
  std::size_t at = 0;           ///< row of the logits
  TokenId wanted = 0, got = 0;  ///< the best of the wanted logits; the one that was picked
  double gap = 0;               ///< between the wanted logits of these two
  double error_wanted = 0, error_got = 0;  ///< how far the device's logits of these two are off
  double rms = 0;                          ///< root mean square of the wanted logits of the row

  /// The token that was picked is ahead of the other one only by what its logits are off.
  bool NearTie() const { return gap <= error_wanted + error_got; }
  /// Both are off by no more than what is allowed, of the root mean square of the row.
  bool Within(double allowed) const {
    return error_wanted <= allowed * rms && error_got <= allowed * rms;
  }
};

/// Compares rows of logits [rows][vocab] of one text. `picked` [rows]: what the device with the
/// logits `got` picked, which is not read from them.
inline std::vector<DifferentPick> DifferentPicks(std::span<const TokenId> picked,
                                                 std::span<const float> got,
                                                 std::span<const float> want, std::size_t vocab) {
  std::vector<DifferentPick> all;
  for (std::size_t row = 0; row < picked.size(); ++row) {
    const auto wanted = want.subspan(row * vocab, vocab);
    DifferentPick pick{.at = row, .got = picked[row]};
    double squares = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      if (wanted[i] > wanted[static_cast<std::size_t>(pick.wanted)])
        pick.wanted = static_cast<TokenId>(i);
      squares += static_cast<double>(wanted[i]) * wanted[i];
    }
    if (pick.wanted == pick.got) continue;
    const auto best = static_cast<std::size_t>(pick.wanted);
    const auto other = static_cast<std::size_t>(pick.got);
    const auto own = got.subspan(row * vocab, vocab);
    pick.gap = static_cast<double>(wanted[best]) - wanted[other];
    pick.error_wanted = std::abs(static_cast<double>(own[best]) - wanted[best]);
    pick.error_got = std::abs(static_cast<double>(own[other]) - wanted[other]);
    pick.rms = std::sqrt(squares / static_cast<double>(vocab));
    all.push_back(pick);
  }
  return all;
}

/// Relative L2 distances of the rows of `got`, ascending.
inline std::vector<double> RowDistances(std::span<const float> got, std::span<const float> want,
                                        std::size_t vocab) {
  std::vector<double> distances;
  for (std::size_t at = 0; at < want.size(); at += vocab) {
    double difference = 0, norm = 0;
    for (std::size_t i = at; i < at + vocab; ++i) {
      difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
      norm += static_cast<double>(want[i]) * want[i];
    }
    distances.push_back(std::sqrt(difference / norm));
  }
  std::sort(distances.begin(), distances.end());
  return distances;
}

/// What is stated of the logits of SmolLM2 (docs/numerics.md): how far rows may be from those of f32,
/// relative L2. One logit may be off by four times the p95, as a share of the row's root mean square.
struct StatedError {
  double median, p95;
};
inline constexpr StatedError kCpuF32{3e-6, 1.1e-5}, kCpuBf16{8e-3, 2.5e-2}, kCpuInt8{2.4e-2, 8e-2};
/// On a GPU tensors between operations are rounded too: 3.5 times as many roundings as kCpuBf16 has,
/// which add as squares; then with int8 in products.
inline constexpr StatedError kGpuF32{5e-6, 1.6e-5}, kGpuBf16{1.5e-2, 4.7e-2},
    kGpuInt8{3.5e-2, 1e-1};

inline const std::vector<std::string>& GreedyPrompts() {
  static const std::vector<std::string> prompts = {
      "Once upon a time",   "The capital of France is",
      "def fibonacci(n):",  "Water boils at",
      "In 1969, ",          "1, 2, 3, 4,",
      "Dear Sir or Madam,", "The best way to learn is"};
  return prompts;
}

/// What a device makes of a text: the token it picks for each position, and all logits there.
struct Picks {
  std::vector<TokenId> ids;
  std::vector<float> logits;  ///< [ids][vocab]
};

/// The prompt in one pass, then token after token, as Generate does: those of `follow`, or, where
/// that is empty, the `count` that `session` picks itself, up to one of `ends`.
inline Picks PickTokens(Session& session, std::span<const TokenId> prompt,
                        std::span<const TokenId> follow, std::size_t count,
                        std::span<const TokenId> ends = {}) {
  Picks picks;
  std::vector<Row> rows;
  for (const TokenId token : prompt)
    rows.push_back({token, static_cast<std::int32_t>(rows.size()), 0, false});
  rows.back().logits = true;
  auto position = static_cast<std::int32_t>(rows.size());
  while (picks.ids.size() < count) {
    const Result<TopLogits> top = session.ForwardTop(rows, 1);
    if (!top) return ADD_FAILURE() << top.error().message, picks;
    const TokenId best = top->ids.front();
    const Result<std::span<const float>> logits = session.Logits();
    if (!logits) return ADD_FAILURE() << logits.error().message, picks;
    const TokenId next = follow.empty() ? best : follow[picks.ids.size()];
    picks.ids.push_back(best);
    picks.logits.insert(picks.logits.end(), logits->begin(), logits->end());
    if (std::find(ends.begin(), ends.end(), next) != ends.end()) break;
    rows = {{next, position++, 0, true}};
  }
  return picks;
}

}  // namespace tilewright::test
