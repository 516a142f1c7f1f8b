#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tl/expected.hpp>
#include <vector>

#include "decode/token_program.h"
#include "tilewright/kernel_spec.h"
#include "tilewright/rejection.h"
#include "tilewright/types.h"

namespace tilewright::decode {

/// A matrix of weights [n][k] in blocks, as GGUF has them.
struct Matrix {
  const void* data = nullptr;
  DataType type = DataType::kNone;
  std::int64_t n = 0, k = 0;
};

/// A layer of the dense llama family: norm, q with k and v, attention, o, residual, norm, gate with up
/// (16 rows of each in turn), down, residual.
struct Layer {
  const void* attention_norm = nullptr;  ///< [hidden] f32
  Matrix qkv;
  const void *k_cache = nullptr, *v_cache = nullptr;
  Matrix o;
  const void* ffn_norm = nullptr;
  Matrix gate_up, down;
};

/// All that a token of one sequence goes through between its embedding and its logits.
struct TokenModel {
  std::vector<Layer> layers;
  const void* output_norm = nullptr;
  Matrix output;
  float epsilon = 0;
  std::int64_t head_dim = 0;
  const void* embedded = nullptr;  ///< [hidden] bf16
  float* logits = nullptr;         ///< [vocab]
  /// Heads, strides and cache of a row. What is in the kernel's own memory, and the caches, are null.
  cuda::RopeAttentionParams attention{};
};

/// What every CTA does, and what memory they share: a plain value, the same on every machine.
struct TokenSchedule {
  std::vector<tw::TokenStep> steps;
  std::array<int, tw::kTokenBuffers> offsets{};  ///< in words
  std::size_t words = 0, partials = 0;           ///< of 4 and of 8 bytes
  int turns = 0;
  std::uint32_t ctas = 0, smem_bytes = 0;
  int parts = 0;  ///< of attention
  int work_at = 0, landed_at = 0, steps_at = 0;
};

/// The formats of a model's matrices, the most frequent one first; kNone: there is no second. A third
/// one, and whatever the kernel has no room for, is a rejection.
using ScheduleResult = tl::expected<TokenSchedule, Rejection>;
struct Formats {
  DataType weights = DataType::kNone, others = DataType::kNone;
};
tl::expected<Formats, Rejection> FormatsOf(const TokenModel& model);

/// The schedule of `model` for the kernel of `spec` on `sms` multiprocessors, one CTA on each, or fewer
/// where a product has fewer rows to give to them.
ScheduleResult MakeSchedule(const TokenModel& model, const KernelSpec& spec, int sms);

/// Device memory that launches of a schedule work in. `words`, `partials` and `state`
/// (kTokenStateWords of 4 bytes): zero in the beginning, then the kernel's.
struct TokenMemory {
  const tw::TokenStep* steps = nullptr;
  unsigned int* words = nullptr;
  unsigned long long* partials = nullptr;
  unsigned int* state = nullptr;
  unsigned int* alarm = nullptr;  ///< in the host's memory, zero
};
tw::TokenParams ParamsOf(const TokenModel& model, const TokenSchedule& schedule,
                         const TokenMemory& memory, std::uint64_t wait_ns);

}  // namespace tilewright::decode
