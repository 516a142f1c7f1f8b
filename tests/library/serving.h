#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models.h"

/// What an engine that serves many users does with a session, for tests on any device.

namespace tilewright::test {

/// Sequences that come and go: more of them than slots, of different lengths.
struct Traffic {
  int sequences = 64;
  int slots = 16;
  int longest = 40;  ///< tokens of a sequence; the shortest has 3
  std::uint64_t seed = 1;
};

using Sequences = std::vector<std::vector<TokenId>>;
Sequences SequencesOf(const Traffic& traffic, int vocab);

/// Feeds all sequences: one more joins in each pass as long as a slot is free, a prompt of about
/// half a sequence comes in pieces of up to four rows, then token follows token; the rows of a pass
/// are interleaved, and a sequence that ends gives its slot to the next. `see` gets every pass: its
/// rows, all of which want logits, and for each row its sequence. It stops at the first error,
/// which it returns.
using SeePass = std::function<Status(std::span<const Row> rows, std::span<const std::size_t> of)>;
Status Serve(const Sequences& sequences, int slots, const SeePass& see);

/// The logits of every sequence, [token][vocab], served by `session`. Empty where a pass fails,
/// which fails the test.
std::vector<std::vector<float>> ServedLogits(Session& session, const Sequences& sequences,
                                             int slots, int vocab);

/// The logits of every sequence, token by token, with the session to itself.
std::vector<std::vector<float>> LogitsAlone(Session& session, const Sequences& sequences);

/// Both sessions run the same passes: what `best` finds of each row is what stands in all logits,
/// for one value and for several.
void ExpectBestOfAllLogits(Session& all, Session& best, int vocab);

/// Generate gives the tokens that a sampler picks from all logits of `all`, greedy and at random.
void ExpectGeneratedAsSampled(Session& generating, Session& all, int vocab);

/// Tokens that `ahead` finds in passes that are submitted before the last one was received are those
/// that `in_turn` finds pass after pass: of one sequence and of two, while the cache grows, after
/// texts that end, go back or are followed by another call. Both have
/// two slots and a context of 160 at least.
void ExpectSubmittedAsInTurn(Session& ahead, Session& in_turn, int vocab);

/// Batches of 1 to 256 rows, one of each slot, most of them no power of two: every row is within
/// `bound` (relative L2; 0: bit for bit) of what it is alone. The session has 256 slots.
void ExpectBatchesOfEverySize(Session& session, int vocab, double bound);

}  // namespace tilewright::test
