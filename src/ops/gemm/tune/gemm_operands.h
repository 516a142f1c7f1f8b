#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/gemm/reference.h"
#include "ops/gemm/tune/operands.h"
#include "ops/gemm/tune/row_spreads.h"
#include "tilewright/gemm.h"
#include "tilewright/tune.h"

namespace tilewright {

/// The operands of a product that is measured, on the host with plain weights, and the comparison of
/// a result with the oracle. Weights are kept from one problem to the next that has the same.
class GemmOperands {
 public:
  explicit GemmOperands(std::uint64_t seed) : trial_{.seed = seed} {}
  /// kUnsupported for what cannot be made: indexed rows of D or of one group, scales beside groups,
  /// packed activations, batch_dim = n.
  Status Make(const GemmDesc& problem);
  /// What the weights depend on: a measurer keeps its copies of them while this is the same.
  const std::string& weight_key() const { return weight_key_; }

  const GemmDesc& problem() const { return problem_; }
  MatrixLayout PlainB() const;
  const Buffer& plain_b() const { return plain_b_; }
  const Buffer& a(Activations kind) const { return a_[static_cast<int>(kind)]; }
  const Buffer& c() const { return c_; }  ///< empty where C is not read
  const Buffer& u() const { return u_; }  ///< scales, empty where there are none
  const Buffer& v() const { return v_; }
  const Buffer& norm() const { return norm_; }  ///< weights of the prologue's norm, or empty
  const RowSpreads& spreads() const { return spreads_; }  ///< empty without groups
  std::size_t result_bytes() const { return result_bytes_; }

  /// Which activations the check uses: both kinds, but no whole numbers where two large values are
  /// multiplied into f16, which overflows.
  std::vector<Activations> Kinds() const;
  /// The call over the operands here; `d` is left to the caller. Whole numbers of a grouped product
  /// are all in one group.
  GemmArgs Args(Activations kind) const;
  /// The spread over groups of the launch of that number that is timed; nothing without groups.
  void PutMixture(int launch, GemmArgs& args) const;
  /// The verdict on what a kernel left in `d`, which lies on the host. A GPU's kernels may unpack
  /// blocks to the 16 bits that tensor cores multiply: they must agree with the oracle of the
  /// weights as they are, or with that of the weights so rounded. A CPU's kernels that multiply bf16
  /// may be off by the rounding of their weights, however they unpack them.
  Tuner::Outcome Judge(const Kernel& kernel, Activations kind, void* d, Executor& executor);

 private:
  void PutSpread(const std::int32_t* offsets, GemmArgs& args) const;
  Status MakeWeights();
  Status MakeActivations();
  Status MakeRounded(Executor& executor);
  Tuner::Outcome Compare(const GemmArgs& args, DataType type_b, const GemmCheck& check) const;
  std::int64_t ScalesOfB() const;
  bool Pairs() const { return problem_.type_b == DataType::kU4; }

  TrialOptions trial_;
  GemmDesc problem_;
  std::string weight_key_;
  Buffer plain_b_, v_, u_, c_, norm_;
  Buffer rounded_b_;  ///< the weights in type_a, made when they are first needed
  DataType rounded_type_ = DataType::kNone;
  Buffer a_[2];  // by Activations
  RowSpreads spreads_;
  std::size_t result_bytes_ = 0;
};

/// The weights of a product in the layout that a kernel reads: how many bytes, and packing them.
/// kInternal where the kernel gives no size.
Pack LayoutFor(const GemmDesc& problem, const Kernel& kernel);
Result<std::size_t> PackedBytesFor(const GemmOperands& operands, const Kernel& kernel);
Status PackFor(const GemmOperands& operands, const Kernel& kernel, void* packed, Stream stream);

}  // namespace tilewright
