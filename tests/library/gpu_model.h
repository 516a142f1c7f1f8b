#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models.h"

/// Models on a GPU, and how far their numbers may be from others, for tests.

namespace tilewright::test {

/// A model on cuda:0.
struct OnGpu {
  std::unique_ptr<DeviceDispatch> dispatch;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
};

/// One context for all tests: kernels that one of them compiled serve the others.
class CudaModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempDir();
    ContextOptions options;
    options.device = "cuda:0";
    options.threads = 2;
    options.cache_dir = folder_->str() + "/cache";
    if (const char* bundle = std::getenv("TILEWRIGHT_GPU_BUNDLE"))
      options.artifacts.bundles = {bundle};
    Result<std::unique_ptr<Context>> context = Context::Create(options);
    if (context) {
      context_ = context->release();
    } else {
      why_not_ = context.error().message;
    }
  }
  static void TearDownTestSuite() {
    delete std::exchange(context_, nullptr);
    delete folder_;
  }
  void SetUp() override {
    if (context_ == nullptr) GTEST_SKIP() << why_not_;
  }

  /// `pack`: let the dispatch choose how weights lie; else they stay as in the file. `precision`:
  /// how far activations that are not f32 may be rounded.
  static OnGpu Load(const std::string& path, const SessionOptions& options, bool fuse = true,
                    bool pack = true, Precision precision = Precision::kAuto,
                    FusionSet fusions = FusionSet::All()) {
    return LoadOn(*context_, path, options, fuse, pack, precision, fusions);
  }
  static OnGpu LoadOn(Context& context, const std::string& path, const SessionOptions& options,
                      bool fuse = true, bool pack = true, Precision precision = Precision::kAuto,
                      FusionSet fusions = FusionSet::All()) {
    OnGpu gpu;
    if (options.activations == DataType::kF32) precision = Precision::kF32;
    gpu.dispatch = context.MakeDispatch(precision);
    ModelOptions model_options;
    if (pack) model_options.packer = gpu.dispatch.get();
    model_options.executor = &context.executor();
    model_options.device = &context.device();
    model_options.fuse = fuse;
    model_options.fusions = fusions;
    Result<std::unique_ptr<Model>> model = Model::Load(path, model_options);
    if (!model) {
      ADD_FAILURE() << model.error().message;
      return gpu;
    }
    gpu.model = std::move(*model);
    Result<std::unique_ptr<Session>> session = Session::Create(*gpu.model, *gpu.dispatch, options);
    if (session) {
      gpu.session = std::move(*session);
    } else {
      ADD_FAILURE() << session.error().message;
    }
    return gpu;
  }
  static SessionOptions Options(DataType activations, DataType kv) {
    SessionOptions options = context_->DefaultSession();
    options.activations = activations;
    options.kv = kv;
    options.context = 128;
    options.page_size = 64;
    // Which passes have chains depends on how long the first ones take; their bits differ.
    options.chains = Chains::kOff;
    return options;
  }

  static inline TempDir* folder_ = nullptr;
  static inline Context* context_ = nullptr;
  static inline std::string why_not_;
};

/// Half a unit in the last place.
inline double Rounding(DataType type) {
  switch (type) {
    case DataType::kBF16:
      return 0x1p-9;
    case DataType::kF16:
      return 0x1p-12;
    default:
      return 0x1p-25;
  }
}

/// What may separate the logits from the oracle's, as test::LogitBound: between the operations of a
/// block ten tensors are rounded, and the weights of its four products may be unpacked to the type
/// of the activations; then embedding, last norm and output; keys and values; f32 sums. `int8`: what
/// products read may be rounded to a 127th of the largest of 32, which is 2.5 times the root mean
/// square of normal values; errors of a step are that by a root of 12.
inline double Bound(const SynthShape& shape, DataType activations, DataType kv, bool int8 = false) {
  const double products = 4 * shape.layers + 1;
  const double squares =
      (int8 ? products * std::pow(2.5 / 127, 2) / 12 : 0) +
      (14 * shape.layers + 3) * std::pow(Rounding(activations), 2) +
      2 * shape.layers * std::pow(Rounding(kv), 2) +
      products * std::max(shape.hidden, shape.ffn) * std::pow(Rounding(DataType::kF32), 2);
  return 3 * std::sqrt(squares);
}

inline std::size_t Best(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Row by row the token with the largest logit is the same, or nearly as good: no further below the
/// best than both errors together.
inline void ExpectSameChoices(std::span<const float> got, std::span<const float> want,
                              std::size_t vocab, double bound) {
  for (std::size_t at = 0; at < want.size(); at += vocab) {
    const auto wanted = want.subspan(at, vocab);
    const std::size_t mine = Best(got.subspan(at, vocab)), theirs = Best(wanted);
    if (mine == theirs) continue;
    double norm = 0;
    for (const float value : wanted) norm += static_cast<double>(value) * value;
    const double apart = static_cast<double>(wanted[theirs]) - wanted[mine];
    EXPECT_LE(apart, 2 * bound * std::sqrt(norm)) << "row " << at / vocab;
  }
}

/// Activations as they lie between operations, and how far products may round them.
struct RoundingCase {
  std::string name;
  DataType activations, kv;
  Precision precision;
  bool int8() const { return precision == Precision::kI8; }
};
inline std::vector<RoundingCase> RoundingCases(DataType weights) {
  std::vector<RoundingCase> cases = {{"bf16", DataType::kBF16, DataType::kBF16, Precision::kBF16},
                                     {"f32", DataType::kF32, DataType::kF16, Precision::kF32},
                                     {"f16", DataType::kF16, DataType::kF16, Precision::kBF16}};
  if (GetTypeInfo(weights).block_quantised)
    cases.push_back({"bf16, int8 in products", DataType::kBF16, DataType::kBF16, Precision::kI8});
  return cases;
}

/// What may separate a node from the oracle's, with the same inputs: its result is rounded, the
/// weights of a product may be unpacked to the type of the activations or its activations rounded
/// to that, and attention rounds its weights. `int8`: as in Bound, of any values; the largest of 32
/// is at most a root of 32 times their root mean square.
inline double NodeBound(DataType activations, bool int8 = false) {
  const double rounded = int8 ? std::sqrt(32.0 / 12) / 127 : 0;
  return activations == DataType::kF32 ? 1e-4 : 4 * Rounding(activations) + rounded;
}

}  // namespace tilewright::test
