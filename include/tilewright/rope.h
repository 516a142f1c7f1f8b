#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/device.h"
#include "tilewright/operation.h"
#include "tilewright/rope_table.h"
#include "tilewright/stages.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright {

namespace rope {

/// Rotary embedding of `rows` rows of `heads` heads: the key of a choice.
struct Desc {
  DataType type_in = DataType::kF32;
  DataType type_out = DataType::kF32;  ///< of the cache where the rows go into one
  RopeMode mode = RopeMode::kInterleaved;
  std::int32_t rows = 1;
  std::int32_t heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t dims = 64;     ///< rotated elements of a head; the rest pass through
  bool scatter = false;       ///< into a KV cache
  std::int32_t kv_heads = 0;  ///< of keys and values that go into caches with them; 0: none do
  DataType type_cache = DataType::kNone;  ///< of those caches
  std::int32_t page_size = 0;  ///< positions of a page of a cache; 0: contiguous, or no cache
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("mode", desc.mode), f("rows", desc.rows), f("heads", desc.heads);
  f("head_dim", desc.head_dim), f("dims", desc.dims);
  f("type_in", desc.type_in), f("type_out", desc.type_out);
  f("scatter", desc.scatter), f("kv_heads", desc.kv_heads), f("type_cache", desc.type_cache);
  f("page_size", desc.page_size);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// Pairs (x0, x1) of each head become (x0 cos - x1 sin, x0 sin + x1 cos); params.mode
/// says which elements form a pair. qk and out [head_dim, heads, m], any head and row strides; out
/// may be qk. positions: m int32, checked before anything is written; a row of padding, with
/// position -1, is left as it is, a position below that is kInvalidArgument. factors [dims / 2] f32
/// or without data.
///
/// With a cache, the rotated heads go there and not to `out`, which then has no data. cache, slots
/// and pages are those of kv_scatter::Args, with the same requirements and errors. The result
/// equals, bit for bit, that of a rotation in f32 followed by a scatter.
///
/// With keys and values, k and v [head_dim, kv_heads, m] of the type of qk, a call does what three
/// do: qk goes to `out`, k turned into the cache, and v as it is into v_cache, whose type and shape
/// are those of the cache. Both have the same page table. `out` may be qk but meets neither k nor v.
struct Args {
  TensorView qk, positions, factors, out;
  RopeParams params;
  TensorView cache = {}, slots = {}, pages = {};
  TensorView k = {}, v = {}, v_cache = {};
  /// Made from the same params and factors (params are compared). Optional: without it every row
  /// computes its own powers, cosines and sines, some microseconds each.
  const Table* table = nullptr;
};

/// What completes arguments: the tables of the models that one dispatch runs. One thread at a time.
class Tables {
 public:
  /// Sets args.table to a table of at least `positions` rows in the memory of `device`, made now
  /// if there is none; it lives as long as this object. Reads the factors of `args` from device
  /// memory and waits for `stream`. Fails as Table::Make does.
  Status Prepare(Args& args, Device& device, Stream stream, std::int64_t positions);

 private:
  TableSet tables_;
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = rope::Desc;
  using Args = rope::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  using Prepared = Tables;  ///< what completes the arguments before they are bound
  static constexpr std::string_view kName = "rope";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together or the table was made for other parameters.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, or dims that are odd or more than head_dim or kMaxDims.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace rope
}  // namespace tilewright
