#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "engine/op.h"
#include "tilewright/tensor.h"

namespace tilewright {

/// A gather of rows: the key of a choice.
struct EmbeddingDesc {
  DataType type_table = DataType::kF32;
  DataType type_out = DataType::kF32;
  std::int32_t rows = 1;     ///< gathered
  std::int32_t cols = 1;
  std::int32_t threads = 1;  ///< workers of the executor

  auto operator<=>(const EmbeddingDesc&) const = default;
};
std::string KeyOf(const EmbeddingDesc& desc);

/// out[., i] = table[., ids[i]]. table [cols, n] of any type of GGUF, rows at stride[1]; ids m int32, each 0 to n - 1, all checked
/// before anything is written; out [cols, m], f32 (the oracle: any float type).
struct EmbeddingArgs {
  TensorView table, ids, out;
};

using EmbeddingKernel = OpKernel<EmbeddingDesc, EmbeddingArgs>;
using EmbeddingRegistry = OpRegistry<EmbeddingDesc, EmbeddingArgs>;

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit together.
Result<EmbeddingDesc> DescOf(const EmbeddingArgs& args, int threads);

void AddEmbedding(EmbeddingRegistry& registry);

/// The oracle: exact in f64, rounded once to out's type. Single thread; allocates.
Status ReferenceEmbedding(const EmbeddingArgs& args);

}  // namespace tilewright
