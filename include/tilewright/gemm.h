#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tilewright/operation.h"
#include "tilewright/result.h"
#include "tilewright/tensor_op.h"
#include "tilewright/types.h"

namespace tilewright {

// D[m, n] = alpha * A[m, k] * B[k, n] + beta * C[m, n]
//
// A is the activations, B the weights. A row-major A has k contiguous. Weights stored as W[n][k]
// (GGUF, PyTorch) are a column-major B. ld counts elements between rows (row-major) or columns
// (column-major); block formats lie along k.

/// How a matrix is quantised when the scales lie beside it (U for A, V for B). GGUF block formats
/// carry their own: kNone.
enum class QuantType : std::uint8_t {
  kNone,
  kK,  ///< one scale (and zero) for `group` consecutive k of one row of A or column of B
  kB,  ///< one scale for a `group` x `group` block of B
};
struct Quant {
  QuantType type = QuantType::kNone;
  std::uint8_t reserved = 0;
  std::uint16_t group = 0;
  auto operator<=>(const Quant&) const = default;
};

/// "plain", "any", the name of one of the library's own layouts as in kernel ids
/// (docs/kernel_ids.md), or "pack<number>".
std::string PackName(Pack pack);

enum class Epilogue : std::uint8_t {
  kNone = 0,
  /// B's columns come in pairs of kGatedBlock: first gate, then up. D has n / 2 columns: silu(gate)
  /// * up.
  kGatedSilu = 1,
};
constexpr int kGatedBlock = 16;

/// What is done to the rows of A before they are multiplied. 16 bits, so that a GemmDesc has no
/// padding.
enum class Prologue : std::uint16_t {
  kNone,
  /// Each row is divided by the root of its mean square, and multiplied with the norm's weights.
  kRmsNorm,
};

/// Which alpha and beta the caller will pass, as far as it is known when the kernel is chosen.
enum class Scaling : std::uint8_t {
  kOneZero,  ///< alpha = 1, beta = 0; C is never read
  kOneOne,   ///< alpha = 1, beta = 1: the fused residual
  kAny,
};

/// Which dimension is the number of tokens, the one that varies from call to call.
enum class BatchDim : std::uint8_t { kM = 0, kN = 1 };

/// A GEMM problem: the key of every cache and record. Every field that feasibility or launch reads
/// is here; the one list of fields is ForEachField below. No pointers, no padding.
struct GemmDesc {
  std::int32_t m = 0, n = 0, k = 0;
  /// Groups; with num > 1 the batch dimension counts the rows of all groups together.
  std::int32_t num = 1;
  Quant quant_a, quant_b;
  Pack pack_a = kPackPlain, pack_b = kPackPlain;
  Prologue prologue = Prologue::kNone;
  DataType type_a = DataType::kF32, type_b = DataType::kF32;
  DataType type_c = DataType::kF32;                             ///< D has C's type
  DataType type_u = DataType::kNone, type_v = DataType::kNone;  ///< scales of A and B
  DataType type_norm = DataType::kNone;                         ///< weights of the prologue's norm
  Order order_a = Order::kRowMajor, order_b = Order::kColMajor, order_c = Order::kRowMajor;
  Striding striding_a = Striding::kFlat, striding_b = Striding::kFlat, striding_c = Striding::kFlat;
  Epilogue epilogue = Epilogue::kNone;
  Scaling scaling = Scaling::kOneZero;
  BatchDim batch_dim = BatchDim::kM;
  std::int8_t group_axis = -1;  ///< -1 dense; else the dimension (0 m, 1 n) that the groups divide
  Precision precision = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;
  /// log2 of the bytes to which base address and ld are both aligned; 0 = nothing promised.
  std::uint8_t align_a = 0, align_b = 0, align_c = 0;
  std::uint8_t align_norm = 0;  ///< the same of the norm's weights

  auto operator<=>(const GemmDesc&) const = default;
};
static_assert(std::has_unique_object_representations_v<GemmDesc>);

/// Calls f(name, field reference) for every field, in key order. `Desc` is GemmDesc or const
/// GemmDesc.
template <class Desc, class F>
requires std::is_same_v<std::remove_const_t<Desc>, GemmDesc>
void ForEachField(Desc& desc, F&& f) {
  f("m", desc.m), f("n", desc.n), f("k", desc.k), f("num", desc.num);
  f("type_a", desc.type_a), f("type_b", desc.type_b), f("type_c", desc.type_c);
  f("type_u", desc.type_u), f("type_v", desc.type_v);
  f("order_a", desc.order_a), f("order_b", desc.order_b), f("order_c", desc.order_c);
  f("striding_a", desc.striding_a), f("striding_b", desc.striding_b),
      f("striding_c", desc.striding_c);
  f("quant_a", desc.quant_a), f("quant_b", desc.quant_b);
  f("pack_a", desc.pack_a), f("pack_b", desc.pack_b);
  f("epilogue", desc.epilogue), f("scaling", desc.scaling);
  f("batch_dim", desc.batch_dim), f("group_axis", desc.group_axis);
  f("precision", desc.precision), f("guarantee", desc.guarantee);
  f("align_a", desc.align_a), f("align_b", desc.align_b), f("align_c", desc.align_c);
  f("prologue", desc.prologue), f("type_norm", desc.type_norm), f("align_norm", desc.align_norm);
}

/// Canonical text of a problem, "m=1 n=576 k=576 type_a=f32 ...": every field by name, so that an
/// unknown one is seen and a reordered struct changes nothing. ParseKey is its inverse; unknown
/// names and values are errors naming them.
std::string KeyOf(const GemmDesc& desc);
Result<GemmDesc> ParseKey(std::string_view key);

inline std::int32_t BatchOf(const GemmDesc& d) { return d.batch_dim == BatchDim::kM ? d.m : d.n; }
inline void SetBatch(GemmDesc& d, std::int32_t batch) {
  (d.batch_dim == BatchDim::kM ? d.m : d.n) = batch;
}

/// The transposed problem, D^T = B^T A^T: A and B, U and V, m and n are exchanged; the orders and
/// batch_dim flip.
GemmDesc Transpose(const GemmDesc& desc);

/// One matrix of a problem.
struct MatrixLayout {
  DataType type = DataType::kF32;
  Order order = Order::kRowMajor;
  std::int32_t rows = 0, cols = 0;
  std::int64_t ld = 0;  ///< elements between rows (row-major) or columns (column-major)
  Pack pack = kPackPlain;
  std::int32_t num = 1;
  /// num > 1: on A and C, num + 1 row offsets of the groups. On B (weights): nullptr.
  const std::int32_t* offsets = nullptr;
  /// Striding::kIndexed: logical row r is memory row idxs[r], which must be one: it is not checked.
  const std::int32_t* idxs = nullptr;

  auto operator<=>(const MatrixLayout&) const = default;
};

/// Weights of a grouped problem: with num > 1 and ld == 0, `b` points to num of these; with ld > 0
/// the matrices follow each other (for u4 and fp8, `v` then follows the same rule: [num][k /
/// group][n / group or n]).
struct StridedPtr {
  const void* data = nullptr;
  std::int64_t ld = 0;
};

/// Pointers and layouts of one call. Scales are row-major, ld in elements (0: dense): U [m][k /
/// group_a]; V [k / group_b][n] for kK, [k / group_b][n / group_b rounded up] for kB. With u4 an
/// element of V is a pair (scale, zero), which ld counts once: value = scale * (q - zero). D may
/// equal C. With beta == 0, C is not read and may be nullptr. Nothing else may overlap.
struct GemmArgs {
  float alpha = 1.0f, beta = 0.0f;
  const void* a = nullptr;
  const void* u = nullptr;
  const void* b = nullptr;
  const void* v = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  MatrixLayout a_layout{}, u_layout{}, b_layout{}, v_layout{}, c_layout{}, d_layout{};
  Epilogue epilogue = Epilogue::kNone;  ///< what DescOf puts into the problem; a plan has its own
  /// B is not written by work that may still be queued, as a model's weights are not: kernels may
  /// read it ahead of the work in front of them.
  bool constant_b = false;
  /// What DescOf puts into the problem; a plan has its own. With Prologue::kRmsNorm row r of A stands
  /// for a[r, i] / sqrt(mean over i of a[r, i]^2 + epsilon) * norm[i], not rounded in between.
  Prologue prologue = Prologue::kNone;
  const void* norm = nullptr;  ///< [k] of type_norm; with constant_b as constant as B
  DataType type_norm = DataType::kNone;
  float epsilon = 0.0f;
};

/// What the caller wants beyond the operands.
struct Operation {
  DispatchPolicy dispatch = DispatchPolicy::kDefault;
  Epilogue epilogue = Epilogue::kNone;
  Prologue prologue = Prologue::kNone;
  Quant quant_a, quant_b;
  BatchDim batch_dim = BatchDim::kM;
  Precision precision = Precision::kAuto;
  Guarantee guarantee = Guarantee::kFastest;
};

struct GemmShape {
  std::int32_t m = 0, n = 0, k = 0, num = 1;
};

/// What a kernel computes: sets as bit masks over the enums (Bit(DataType::kF32) | ...).
struct KernelDesc {
  std::uint32_t type_a = 0, type_b = 0, type_c = 0;
  std::uint32_t order_a = Bit(Order::kRowMajor), order_b = Bit(Order::kColMajor),
                order_c = Bit(Order::kRowMajor);
  std::uint32_t striding_a = Bit(Striding::kFlat), striding_b = Bit(Striding::kFlat),
                striding_c = Bit(Striding::kFlat);
  std::uint32_t quant_a = Bit(QuantType::kNone), quant_b = Bit(QuantType::kNone);
  std::uint32_t epilogue = Bit(Epilogue::kNone);
  std::uint32_t prologue = Bit(Prologue::kNone);
  std::uint32_t scaling = Bit(Scaling::kOneZero) | Bit(Scaling::kOneOne) | Bit(Scaling::kAny);
  Pack pack_a = kPackPlain, pack_b = kPackPlain;  ///< the layout it wants its operands in
  Precision activations = Precision::kF32;        ///< what it rounds A to; kF32 = not at all
  std::int32_t tile_m = 1, tile_n = 1, tile_k = 1;
  std::int32_t max_m = 0;                 ///< most rows that a GEMV accepts; 0 = any number
  std::int32_t align_n = 1, align_k = 1;  ///< n and k must be multiples
  int stages = 1;
  bool split_k = false;
  bool transpose = false;  ///< a Transpose() wrapper
};

class Kernel;
using LaunchSpec = BasicLaunchSpec<Kernel>;

/// GEMM as an operation.
struct GemmOp {
  using Desc = GemmDesc;
  using Args = GemmArgs;
  using KernelType = Kernel;
  using Spec = LaunchSpec;
  static constexpr std::string_view kName = "gemm";

  static std::span<const NodeRule> NodeRules();
  static GemmArgs ArgsOf(const NodeView& node);
};

/// The problem of a dense call: sizes, types, orders, packs and epilogue from the layouts, scaling
/// from alpha and beta. Groups and scales beside the operands are ignored here: Validate with an
/// Operation handles those.
Result<GemmDesc> DescOf(const GemmArgs& args, const CallTerms& terms);

/// The arguments of the most common product, D[m][n] = A[m][k] * W[n][k]^T: activations and result
/// are f32, row-major and dense; weights of `type` are as GGUF and PyTorch store them.
/// kInvalidArgument names a size below 1, a k that does not divide into blocks, or a span that is
/// shorter than its matrix. The memory must outlive the call that uses the arguments.
Result<GemmArgs> DenseGemm(std::span<const float> a, DataType type, std::span<const std::byte> w,
                           std::span<float> d, const GemmShape& shape);

/// One GEMM implementation on one device.
class Kernel : public OpKernel<GemmOp> {
 public:
  Kernel(KernelInfo info, KernelDesc desc) : OpKernel(std::move(info)), desc_(desc) {}
  const KernelDesc& desc() const { return desc_; }

  /// The base compares every field of the problem with desc(). An override calls the base first.
  /// pack_b == kPackAny in a problem means "packed as this kernel wants".
  std::optional<Rejection> IsFeasible(const GemmDesc& problem) const override;

  /// Every swizzle up to GetMaxSwizzle with each of some split counts up to GetMaxSplits.
  std::vector<LaunchSpec> Specs(const GemmDesc& problem, const DeviceSpec& device,
                                const LaunchLimits& limits) const override;

  /// Largest swizzle (log2) that changes the traversal of `shape`.
  virtual int GetMaxSwizzle(const GemmShape& shape) const;

  /// Largest useful number of k splits whose barriers and partials fit the given workspace; 1
  /// without split-K.
  virtual int GetMaxSplits(const GemmShape& shape, int swizzle, std::size_t barriers_size,
                           std::size_t partials_size) const;

  /// Bytes of Workspace::partials that Launch needs for `problem` with `spec`. WorkspaceFor returns
  /// this, unless that is overridden too.
  virtual std::size_t PartialsBytes(const GemmDesc& problem, const LaunchSpec& spec,
                                    const DeviceSpec& device) const;
  WorkspaceSize WorkspaceFor(const GemmDesc& problem, const LaunchSpec& spec,
                             const DeviceSpec& device) const override;

  /// Bytes of B packed as desc().pack_b; 0 when that is kPackPlain. `b` is the plain layout (rows
  /// k, cols n, column-major).
  virtual std::size_t PackedBytes(const MatrixLayout& b) const;

  /// Packs plain weights into `packed` (PackedBytes(b) bytes, 64-byte aligned). Done once, at load.
  virtual Status PackB(const void* plain, const MatrixLayout& b, void* packed, Stream stream) const;

  // Launch fails with ErrorCode::kInvalidArgument for a spec with more splits or swizzle than the
  // maxima; it never lowers them silently.

 protected:
  KernelDesc desc_;
};

/// A kernel that computes D^T = B^T A^T with `kernel`: bitwise what `kernel` gives for the
/// transposed problem. Rejects Epilogue::kGatedSilu, whose pairs run along n, and a prologue, which
/// is that of A. `kernel` must outlive it.
std::unique_ptr<Kernel> Transpose(Kernel& kernel);

/// Groups specs whose kernels agree in the chosen properties; the tuner measures one leader of each
/// group first.
struct ClusteringParam {
  bool tile = true;
  bool precision = true;
  bool splits = true;
  bool pack = true;
};
std::vector<std::vector<LaunchSpec>> Cluster(std::span<const LaunchSpec> specs,
                                             const ClusteringParam& param);

/// All GEMM kernels of a process.
using Registry = OpRegistry<GemmOp>;

// The library's stages have a specialisation for GEMM. It is declared here so that the general
// template is never instantiated in its place.
template <class Op>
struct OpTraits;
template <>
struct OpTraits<GemmOp>;

namespace gemm {
using Op = GemmOp;
using Desc = GemmDesc;
using Args = GemmArgs;
using Kernel = tilewright::Kernel;
using Registry = tilewright::Registry;
}  // namespace gemm

}  // namespace tilewright
