#pragma once

#include "tilewright/cuda/attention_params.h"
#include "tilewright/cuda/gemv_params.h"

// What the kernel of decode_token is given: the steps of a token in the order in which every CTA takes them,
// and where they find and leave what they hand to each other. Plain C++, seen by the host compiler and
// by NVRTC.

namespace tw {

/// What steps hand to each other, as words of tagged.cuh.
enum TokenBuffer : unsigned char {
  kTokenHidden,    ///< the residual behind a layer
  kTokenQkv,       ///< queries, keys and values before they are turned
  kTokenAttended,  ///< what attention leaves
  kTokenMiddle,    ///< the residual between attention and feed-forward
  kTokenGated,     ///< of the feed-forward
  kTokenBuffers
};

enum TokenFlag : unsigned char {
  kTokenAttends = 1,      ///< attention; without it a product
  kTokenOther = 2,        ///< weights are of the second format
  kTokenGates = 4,        ///< 16 rows of gate and 16 of up in turn: silu(gate) * up
  kTokenAdds = 8,         ///< `addend` is added
  kTokenPlainInput = 16,  ///< the input is TokenParams::embedded
  kTokenPlainAddend = 32,
  kTokenLogits = 64,  ///< the output is TokenParams::logits
};

struct TokenStep {
  unsigned long long a;  ///< weights; of attention the keys' cache
  unsigned long long
      b;     ///< weights of the norm in front, f32, or 0; of attention the values' cache
  int n, k;  ///< rows of the weights, an even number, and values of a row
  unsigned char flags;
  unsigned char input, output, addend;  ///< TokenBuffer
  unsigned short tag_in, tag_out;       ///< less the turn that the token begins with
};
static_assert(sizeof(TokenStep) == 32, "steps are copied in 16 bytes");

/// The one parameter. `words`, `partials` and `state` are the kernel's own, zero before the first
/// launch; launches follow each other in one stream.
struct TokenParams {
  const TokenStep* steps;
  const void* embedded;          ///< [hidden] bf16: the token's row
  float* logits;                 ///< [vocab]
  unsigned int* words;           ///< of all buffers
  unsigned long long* partials;  ///< of attention: [heads' blocks][parts][units][6]
  unsigned int* state;           ///< TokenState
  unsigned int* alarm;           ///< in the host's memory: becomes 1 with kTokenError
  unsigned long long wait_ns;    ///< longer waits end the token with an error
  int step_count;
  int turns;                         ///< that a token takes
  int offsets[kTokenBuffers];        ///< words before each buffer
  int work_at, landed_at, steps_at;  ///< in shared memory
  float epsilon;
  /// Of one row; the caches are those of each step.
  tilewright::cuda::RopeAttentionParams attention;
};
static_assert(sizeof(TokenParams) <= 512, "as much as a launch carries");

/// Words of `state`.
enum TokenState { kTokenTurn, kTokenError, kTokenStateWords };

/// The first of the units of CTA `cta`; those of the last end at `units`.
constexpr int TokenBorder(int units, int cta, int ctas) {
  return static_cast<int>(static_cast<unsigned int>(units) * static_cast<unsigned int>(cta) /
                          static_cast<unsigned int>(ctas));
}
/// Rows of W that a warp takes at a time.
inline constexpr int kTokenRows = 2;
/// Of weights with n rows.
constexpr int TokenUnits(int n) { return n / kTokenRows; }

/// Values of a row that a warp copies at a time.
inline constexpr int kTokenSegment = 2048;
/// Bytes of a row in a stage, and rows of a stage.
constexpr int TokenRowBytes(int block_bytes, int block_elements) {
  return tilewright::cuda::GemvInt8RowBytes(kTokenSegment / block_elements * block_bytes,
                                            tilewright::cuda::GemvRowAlignment(block_bytes));
}
constexpr int TokenStageRows(int row_bytes) { return row_bytes <= 1300 ? kTokenRows : 1; }

/// Bytes of x of `k` values, with the sums of squares.
constexpr int TokenXBytes(int k) {
  return tilewright::cuda::GemvInt8XBytes((k + kTokenSegment - 1) / kTokenSegment * kTokenSegment,
                                          true);
}
/// What attention needs beside AttentionDecodeSmem and AttentionNewRowSmem: partial results of the units
/// of every head that a CTA merges: as many as all parts of a head have.
constexpr int TokenMergeBytes(int head_dim) { return 8 * (head_dim / 4) * (16 + 8); }

}  // namespace tw
