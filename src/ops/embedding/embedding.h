#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// `rows` rows of `hidden` values looked up in a table: the key of a choice.
struct EmbeddingDesc {
  DataType type_table = DataType::kF32;
  DataType type_out = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t hidden = 1;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const EmbeddingDesc&) const = default;
};
std::string KeyOf(const EmbeddingDesc& desc);

/// out[:, r] = table[:, ids[r]]. table [hidden, entries] of any type with a row stride that is
/// whole blocks, plain layout; ids m int32; out [hidden, m] with any row stride. An id outside [0,
/// entries) is kInvalidArgument, found before anything is written.
struct EmbeddingArgs {
  TensorView table, ids, out;
};

using EmbeddingKernel = OpKernel<EmbeddingDesc, EmbeddingArgs>;
using EmbeddingRegistry = OpRegistry<EmbeddingDesc, EmbeddingArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<EmbeddingDesc> DescOf(const EmbeddingArgs& args, int threads);

void AddEmbedding(EmbeddingRegistry& registry);

/// What ReferenceEmbedding answers before it reads an id: by types and shapes alone.
Status CheckReference(const EmbeddingArgs& args);

/// The oracle, in float64; any type of table that DecodeRow knows, any float type of out. Single
/// thread; allocates.
Status ReferenceEmbedding(const EmbeddingArgs& args);

}  // namespace tilewright
