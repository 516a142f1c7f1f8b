#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tilewright/operation.h"
#include "tilewright/stages.h"
#include "tilewright/tensor.h"
#include "tilewright/tensor_op.h"

namespace tilewright::kv_scatter {

/// Rows of keys or values into a cache: the key of a choice.
struct Desc {
  DataType type_x = DataType::kF32;
  DataType type_cache = DataType::kF32;
  std::int32_t rows = 1;
  std::int32_t kv_heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t page_size = 0;  ///< positions of a page; 0: the cache is contiguous
  Guarantee guarantee = Guarantee::kFastest;

  auto operator<=>(const Desc&) const = default;
};
template <class D, class F>
void ForEachField(D& desc, F&& f) {
  f("rows", desc.rows), f("kv_heads", desc.kv_heads), f("head_dim", desc.head_dim);
  f("type_x", desc.type_x), f("type_cache", desc.type_cache), f("page_size", desc.page_size);
  f("guarantee", desc.guarantee);
}
std::string KeyOf(const Desc& desc);

/// cache[:, :, positions[r], slots[r]] = x[:, :, r] for every row r; a row of padding, with
/// position -1, is ignored. x [head_dim, kv_heads, m], any strides but dimension 0 adjacent;
/// positions and slots m int32, no pair twice (unchecked: the rows may run at the same time).
///
/// Without `pages`, cache is [head_dim, kv_heads, context, slots]. With pages, int32 [pages of a
/// sequence, slots], it is [head_dim, kv_heads, page_size, physical pages], and position p of slot
/// s lies in row p % page_size of physical page pages[p / page_size, s].
///
/// The cache is f64, f32, f16, bf16, or q8_0 with head_dim a multiple of 32 (encoded as EncodeRow
/// does). A position below -1, a slot or a physical page out of range is kInvalidArgument, a
/// position that is the context's length or more kExhausted; all are found before anything is
/// written.
struct Args {
  TensorView x, cache, positions, slots;
  TensorView pages = {};  ///< no data: the cache is contiguous
};

struct Op;
using Kernel = OpKernel<Op>;
using Registry = OpRegistry<Op>;

struct Op {
  using Desc = kv_scatter::Desc;
  using Args = kv_scatter::Args;
  using KernelType = Kernel;
  using Spec = BasicLaunchSpec<Kernel>;
  static constexpr std::string_view kName = "kv_scatter";

  static std::span<const NodeRule> NodeRules();
  static Args ArgsOf(const NodeView& node);
};

/// The problem of a call; kInvalidArgument, naming the view and the field, if the views do not fit
/// together.
Result<Desc> DescOf(const Args& args, const CallTerms& terms);

/// kInvalidArgument names a size below 1, or a head that is not whole blocks of the cache's type.
Result<Checked<Op>> Validate(const Desc& desc);

}  // namespace tilewright::kv_scatter
