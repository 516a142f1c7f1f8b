#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/operation.h"
#include "tilewright/rope_table.h"
#include "tilewright/stages.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright::attention {

/// Causal attention of new rows over a KV cache of many sequences. The key of a choice: counts, not
/// contents. `rows` counts the rows of all sequences together: how many belong to each is content,
/// the slots, and one prepared pass serves a prompt of 8 rows as it does 8 sequences of one.
struct Desc {
  DataType type_q = DataType::kF32;   ///< q and out
  DataType type_kv = DataType::kF32;  ///< caches
  std::int32_t rows = 1;              ///< of all sequences together
  std::int32_t sequences = 1;         ///< that the cache has places for
  std::int32_t context = 1;           ///< positions of a sequence that it has places for
  std::int32_t page_size = 0;         ///< positions of a page; 0: the cache is contiguous
  std::int32_t window = 0;            ///< a row sees its last `window` positions; 0: all
  bool soft_capped = false;           ///< Args::softcap is positive
  bool sinks = false;                 ///< Args::sinks has data
  std::int32_t heads = 1, kv_heads = 1, head_dim = 64;
  /// Elements of a head that are turned first, in queries and in new keys (Args::k); 0: none, and
  /// the keys and values of all rows are in the caches.
  std::int32_t rope_dims = 0;
  RopeMode rope_mode = RopeMode::kInterleaved;  ///< kInterleaved where nothing is turned
  /// How far queries, keys, values and weights may be rounded before they are multiplied. kAuto: to
  /// bf16 where the caches are not f32; kI8: to bf16.
  Precision precision = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("sequences", desc.sequences), f("context", desc.context);
  f("page_size", desc.page_size), f("window", desc.window);
  f("soft_capped", desc.soft_capped), f("sinks", desc.sinks);
  f("heads", desc.heads), f("kv_heads", desc.kv_heads), f("head_dim", desc.head_dim);
  f("rope_dims", desc.rope_dims), f("rope_mode", desc.rope_mode);
  f("type_q", desc.type_q), f("type_kv", desc.type_kv);
  f("precision", desc.precision);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// q [head_dim, heads, m] with any head and row strides, out [head_dim * heads, m] with any row
/// stride; positions and slots m int32. Row r reads positions 0 .. positions[r] (the last `window`
/// of them) of sequence slots[r], whose keys and values are already there, its own included. A row
/// of padding, with position -1, becomes zeros.
///
/// Without `pages`, the caches are [head_dim, kv_heads, context, slots]. With pages, int32 [pages
/// of a sequence, slots], they are [head_dim, kv_heads, page_size, physical pages], and position p
/// of slot s lies in row p % page_size of physical page pages[p / page_size, s]; only the pages
/// that some row reads need an entry. Dimension 0 is adjacent; both caches have the same layout.
///
/// With `k` and `v`, the rows' own keys and values are in no cache yet, and neither they nor q are
/// turned. A call does what these do one after the other: q is turned (rope::Args), and rounded to
/// its type; k is turned into its place in k_cache, and v goes as it is to v_cache
/// (kv_scatter::Args); the rows attend. q is left as it is.
///
/// A position below -1 or beyond the context, a slot or a physical page out of range is
/// kInvalidArgument, found before anything is written.
struct Args {
  TensorView q, k_cache, v_cache, positions, slots, out;
  TensorView pages = {};  ///< no data: the caches are contiguous
  float scale = 1.0f;
  std::int32_t window = 0;  ///< as Desc::window
  /// c: scaled scores become c * tanh(score / c) before the softmax; 0: they stay as they are.
  float softcap = 0;
  /// f32 [heads], adjacent: a logit of each head that takes its share of the softmax and adds no
  /// value, neither scaled nor soft-capped. No data: there is none.
  TensorView sinks = {};
  /// [head_dim, kv_heads, m] of the type of q, any head and row strides; or both without data.
  TensorView k = {}, v = {};
  TensorView factors = {};  ///< with k: as rope::Args::factors
  RopeParams rope = {};     ///< with k; else not looked at
  /// With k: made from the same parameters and factors. The oracle needs none, kernels do.
  const rope::Table* table = nullptr;
};

/// What completes arguments with `k`: the tables of the models that one dispatch runs. One thread
/// at a time.
class Tables {
 public:
  /// Sets args.table to a table of frequencies, without rows, as rope::TableSet::Find does.
  Status Prepare(Args& args, Device& device, Stream stream, std::int64_t positions);

 private:
  rope::TableSet tables_;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = attention::Desc;
  using Args = attention::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  using Prepared = Tables;
  static constexpr std::string_view kName = "attention";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, heads that kv_heads does not divide, a head that is
/// not whole blocks of the cache's type, or turned elements that are odd or more than a head's.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::attention
