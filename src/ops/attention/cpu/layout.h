#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewright/types.h"

namespace tilewright {

/// Positions whose softmax is taken at once; the unit in which long sequences are divided over
/// threads. Fixed, so that a row's result does not depend on how.
constexpr int kSplit = 256;
/// Positions converted and transposed at once in f32: [head_dim][64] f32 stays in the first-level cache.
constexpr int kPiece = 64;
/// Query rows of one sequence handled together at least, where there are as many: keys are converted
/// and transposed once for all of them.
constexpr int kBlockRows = 16;

/// A block of rows of one sequence against one KV head.
struct AttentionBlock {
  int vectors = 0;  ///< rows * group
  int group = 1;    ///< query heads that share the KV head
  int head_dim = 0;
  DataType kv_type = DataType::kF32;
  /// This head's position 0 of the sequence; with pages, row 0 of physical page 0.
  const unsigned char* keys = nullptr;
  const unsigned char* values = nullptr;
  std::size_t kv_row_bytes = 0;         ///< between positions
  std::size_t kv_bytes = 0;             ///< of a position of this head
  const std::int32_t* pages = nullptr;  ///< of the sequence; nullptr: its positions follow another
  int page_size = 0;                    ///< positions of a page
  std::size_t page_bytes = 0;           ///< between physical pages
  const std::int32_t* limit = nullptr;  ///< [rows]: the row sees positions below, its own the last,
  const std::int32_t* first = nullptr;  ///< [rows]: and from here on
  /// Least of `first`: what lies before is not read, and its pages may not exist.
  std::int32_t from = 0;
  std::int32_t seen = 0;  ///< greatest of `limit`
  float softcap = 0;      ///< as Args::softcap
};

/// Where a position lies in `base`, which is block.keys or block.values.
static inline const unsigned char* RowAt(const AttentionBlock& block, const unsigned char* base,
                                         int position) {
  if (block.pages == nullptr) return base + static_cast<std::size_t>(position) * block.kv_row_bytes;
  const int page = position / block.page_size, row = position % block.page_size;
  return base + static_cast<std::size_t>(block.pages[page]) * block.page_bytes +
         static_cast<std::size_t>(row) * block.kv_row_bytes;
}

/// Memory of one worker. head_dim is padded to a multiple of AttentionFunctions::hd_tile with zeros,
/// the number of vectors to one of vector_tile.
struct AttentionScratch {
  int hd_padded = 0;
  float* q = nullptr;          ///< [vectors][hd_padded], scaled; on tiles of vector_tile vectors
  float* rows32 = nullptr;     ///< [64][hd_padded]
  float* columns = nullptr;    ///< [hd_padded][64]
  float* scores = nullptr;     ///< [vectors][kSplit]
  float* split_max = nullptr;  ///< [vectors]
  float* split_sum = nullptr;
  float* split_out = nullptr;  ///< [vectors][hd_padded]; on tiles of vector_tile vectors
  float* max = nullptr;        ///< running
  float* sum = nullptr;
  float* out = nullptr;
  void* operands = nullptr;  ///< operand_bytes, instead of rows32, columns and scores
};

/// What an instruction set provides.
struct AttentionFunctions {
  void (*compute_split)(const AttentionBlock& block, int from, int count,
                        const AttentionScratch& scratch) = nullptr;
  void (*merge_split)(int vectors, int hd_padded, const float* split_max, const float* split_sum,
                      const float* split_out, float* max, float* sum, float* out) = nullptr;

  // Of the kernels on tiles, whose compute_split adds to max, sum and out, in an order of their own;
  // there is nothing to merge, so splits are not divided among workers:
  /// Packs q, which is vector_tile vectors from `first` on, once for all splits of a block.
  void (*pack_queries)(int first, const AttentionScratch& scratch) = nullptr;
  /// [vector_tile][hd_padded] of out, vectors from `first` on; may overwrite split_out.
  const float* (*rows_of_out)(int first, const AttentionScratch& scratch) = nullptr;
  std::size_t (*operand_bytes)(std::size_t vectors, std::size_t hd_padded) = nullptr;

  int vector_tile = 1;
  int hd_tile = 16;
  int fetched = kPiece;  ///< positions that are asked for before a split is begun
  /// Of a block of rows, where enough blocks are left for all workers; 0: blocks of kBlockRows.
  int most_vectors = 0;
  /// With fewer blocks than this for each worker blocks get smaller, or splits are divided as well.
  int tasks_per_worker = 4;
};

AttentionFunctions AttentionScalar();
AttentionFunctions AttentionAvx2();
AttentionFunctions AttentionAvx512();
AttentionFunctions AttentionAvx512Bf16();
AttentionFunctions AttentionAmx();
/// Digests of the kernel files, in the same order.
const char* AttentionScalarTu();
const char* AttentionAvx2Tu();
const char* AttentionAvx512Tu();
const char* AttentionAvx512Bf16Tu();
const char* AttentionAmxTu();

}  // namespace tilewright
