// The CPU dispatch against the float64 reference dispatch, on small random models of every shape
// and type. ctest runs this program once for each instruction-set level.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/numeric.h"
#include "engine/verified_test_util.h"
#include "models.h"

namespace tilewright {
namespace {

using test::EditedModel;
using test::LogitBound;
using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::RunnerOptions;
using test::TinyShape;
using test::WideShape;
using test::WorstRow;
using test::WriteTiny;

constexpr DataType kQuants[] = {
    DataType::kF32,  DataType::kF16,    DataType::kBF16,   DataType::kQ4_0,
    DataType::kQ4_1, DataType::kQ8_0,   DataType::kQ6_K,   DataType::kQ4_K,
    DataType::kQ5_0, DataType::kQ5_1,   DataType::kQ5_K,   DataType::kQ2_K,
    DataType::kQ3_K, DataType::kIQ4_NL, DataType::kIQ4_XS, DataType::kMXFP4};

class Numbers : public test::IsaTest {
 protected:
  /// A prompt of 13 rows, then rows one by one and two by two: products of many, one and few rows.
  static std::vector<float> Run(Session& session, int vocab) {
    const std::vector<TokenId> tokens = RandomTokens(18, vocab, 7);
    const std::span<const TokenId> all(tokens);
    std::vector<float> logits = LogitsOf(session, all.first(13), 0, 0, 13);
    for (const auto& part : {LogitsOf(session, all.subspan(13, 3), 0, 13, 1),
                             LogitsOf(session, all.subspan(16), 0, 16, 2)}) {
      logits.insert(logits.end(), part.begin(), part.end());
    }
    return logits;
  }

  std::vector<float> Reference(const std::string& path, bool fuse = false) {
    auto runner = Runner::Make(path, {.fuse = fuse, .float64 = true});
    return runner ? Run(*runner->session, runner->model->config().vocab) : std::vector<float>();
  }

  void Check(const std::string& path, const SynthShape& shape, std::span<const float> want,
             const RunnerOptions& options, const std::string& what) {
    auto runner = Runner::Make(path, options);
    ASSERT_NE(runner, nullptr) << what;
    const auto vocab = static_cast<std::size_t>(shape.vocab);
    const double distance = WorstRow(Run(*runner->session, shape.vocab), want, vocab);
    const double bound = LogitBound(shape, options.activations, options.kv);
    EXPECT_LE(distance, bound) << what;
    closest_ = std::max(closest_, distance / bound);
  }
  void TearDown() override { std::printf("largest distance / bound: %.2f\n", closest_); }

  double closest_ = 0;
};

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kBF16, Precision::kI8};
const char* NameOf(Precision precision) {
  return precision == Precision::kF32 ? "f32" : precision == Precision::kBF16 ? "bf16" : "int8";
}

TEST_F(Numbers, every_weight_type_fused_and_unfused_with_every_activation_type_is_right) {
  for (const DataType quant : kQuants) {
    const SynthShape shape = WideShape();
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(quant)), shape, quant);
    const std::vector<float> want = Reference(path);
    for (const bool fuse : {true, false}) {
      for (const Precision precision : kPrecisions) {
        Check(path, shape, want, {.activations = precision, .fuse = fuse},
              std::string(DataTypeName(quant)) + " weights, " + NameOf(precision) +
                  (fuse ? ", fused" : ", unfused"));
        test::NoteVerified({.operation = "model",
                            .subject = DataTypeName(quant),
                            .device = IsaName(DetectCpu().value().isa),
                            .how = NameOf(precision)});
      }
    }
  }
}

/// In the second shape rows are not whole blocks of 256, so that the types are those of the
/// smaller blocks.
TEST_F(Numbers, files_of_mixed_types_are_right) {
  SynthShape wide = WideShape(), narrow = TinyShape();
  wide.layers = 3;  // blocks 0 and 1 of one type, block 2 of another
  for (const char* mix : {"q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "iq4_xs"}) {
    for (const SynthShape& shape : {wide, narrow}) {
      const std::string path = WriteMix(folder_, shape, mix);
      const std::vector<float> want = Reference(path);
      for (const Precision precision : {Precision::kF32, Precision::kI8})
        Check(path, shape, want, {.activations = precision}, std::string(mix) + NameOf(precision));
    }
  }
}

TEST_F(Numbers, plain_weights_are_right_too) {
  for (const DataType quant : kQuants) {
    const SynthShape shape = WideShape();
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(quant)), shape, quant);
    Check(path, shape, Reference(path), {.pack = false},
          std::string(DataTypeName(quant)) + " plain");
  }
}

TEST_F(Numbers, fusing_changes_nothing_in_float64) {
  const std::string path = WriteTiny(folder_, "q4_1", WideShape(), DataType::kQ4_1);
  const std::vector<float> unfused = Reference(path, false), fused = Reference(path, true);
  EXPECT_LE(WorstRow(fused, unfused, static_cast<std::size_t>(WideShape().vocab)), 1e-7);
}

TEST_F(Numbers, every_fusion_is_right_alone_and_absent) {
  const std::string path = WriteTiny(folder_, "q4_1", WideShape(), DataType::kQ4_1);
  const std::vector<float> want = Reference(path);
  for (int i = 0; i < kFusions; ++i) {
    const auto fusion = static_cast<Fusion>(i);
    for (const FusionSet set : {FusionSet::Of(fusion), FusionSet::All().Without(fusion)}) {
      SCOPED_TRACE(set.ToString());
      auto exact = Runner::Make(path, {.fusions = set, .float64 = true});
      ASSERT_NE(exact, nullptr);
      const auto graph = exact->session->GraphFor(4, 1);
      ASSERT_TRUE(graph) << graph.error().message;
      const auto has = [&](TensorOp op) {
        const auto nodes = (*graph)->nodes();
        return std::any_of(nodes.begin(), nodes.end(), [&](const auto& n) { return n.op == op; });
      };
      // A norm in the product that reads it brings the sum in front of it into a product too. Where
      // weights are not merged several products read a norm, but for that of the logits.
      const bool normed = set.Has(Fusion::kNormMulMat);
      const bool all_merged = set.Has(Fusion::kMergeQkv) && set.Has(Fusion::kMergeGateUp);
      const bool some_merged = set.Has(Fusion::kMergeQkv) || set.Has(Fusion::kMergeGateUp);
      const bool gated = has(TensorOp::kMulMatSwiGlu) || has(TensorOp::kNormMulMatSwiGlu);
      EXPECT_EQ(has(TensorOp::kNormMulMat), normed);
      EXPECT_EQ(has(TensorOp::kMulMatAdd), set.Has(Fusion::kResidual) || (normed && some_merged));
      EXPECT_EQ(gated, set.Has(Fusion::kMergeGateUp) && set.Has(Fusion::kMulMatSwiGlu));
      EXPECT_EQ(has(TensorOp::kNormMulMatSwiGlu), gated && normed);
      EXPECT_EQ(has(TensorOp::kSwiGlu), set.Has(Fusion::kSwiGlu) && !gated);
      const bool turns = set.Has(Fusion::kRopeAttention);  // of the oracle, whatever the rows
      EXPECT_EQ(has(TensorOp::kRopeAttention), turns);
      EXPECT_EQ(has(TensorOp::kRopeQkvScatter), set.Has(Fusion::kRopeQkv) && !turns);
      EXPECT_EQ(has(TensorOp::kRopeScatter),
                set.Has(Fusion::kRopeScatter) && !set.Has(Fusion::kRopeQkv) && !turns);
      EXPECT_EQ(has(TensorOp::kAddRmsNorm), set.Has(Fusion::kAddNorm) &&
                                                !set.Has(Fusion::kResidual) &&
                                                !(normed && all_merged));
      for (const Precision precision : kPrecisions) {
        Check(path, WideShape(), want, {.activations = precision, .fusions = set},
              set.ToString() + " " + NameOf(precision));
      }
    }
  }
}

TEST_F(Numbers, rope_scatter_rope_qkv_and_add_norm_change_no_bit) {
  const std::string path = WriteTiny(folder_, "q4_1", WideShape(), DataType::kQ4_1);
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    const auto logits = [&](FusionSet set) {
      auto runner = Runner::Make(path, {.kv = kv, .fusions = set});
      return runner ? Run(*runner->session, WideShape().vocab) : std::vector<float>();
    };
    const std::vector<float> want = logits(FusionSet::None());
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(logits(FusionSet::Of(Fusion::kRopeScatter)), want) << DataTypeName(kv);
    EXPECT_EQ(logits(FusionSet::Of(Fusion::kRopeQkv)), want) << DataTypeName(kv);
    EXPECT_EQ(logits(FusionSet::Of(Fusion::kAddNorm)), want) << DataTypeName(kv);
  }
}

TEST_F(Numbers, quantising_once_changes_no_bit) {
  // Of few rows int8 kernels are compared with each other: products through tiles of bf16 round others.
  const Result<DeviceSpec> device = DetectCpu();
  ASSERT_TRUE(device);
  const auto capped = device->isa == Isa::kAmx ? setenv("TILEWRIGHT_ISA", "avx512", 1) : 0;
  ASSERT_EQ(capped, 0);
  for (const DataType quant : {DataType::kQ4_1, DataType::kQ8_0}) {
    const std::string path =
        WriteTiny(folder_, std::string(DataTypeName(quant)), WideShape(), quant);
    const FusionSet apart =
        FusionSet::All().Without(Fusion::kMergeQkv).Without(Fusion::kMergeGateUp);
    const auto logits = [&](FusionSet set) {
      auto runner = Runner::Make(path, {.activations = Precision::kI8, .fusions = set});
      return runner ? Run(*runner->session, WideShape().vocab) : std::vector<float>();
    };
    const std::vector<float> want = logits(apart.Without(Fusion::kQuantiseOnce));
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(logits(apart), want) << DataTypeName(quant);
    EXPECT_EQ(logits(FusionSet::Of(Fusion::kQuantiseOnce)), logits(FusionSet::None()));
  }
  if (device->isa == Isa::kAmx) {
    ASSERT_EQ(unsetenv("TILEWRIGHT_ISA"), 0);
  }
}

// Where tiles of bf16 take prompts, they do so with and without it.
TEST_F(Numbers, quantising_once_leaves_a_prompt_to_the_kernels_that_it_had) {
  const std::string path = WriteTiny(folder_, "q4_0", WideShape(), DataType::kQ4_0);
  const FusionSet apart = FusionSet::All().Without(Fusion::kMergeQkv).Without(Fusion::kMergeGateUp);
  const auto logits = [&](FusionSet set) {
    auto runner = Runner::Make(path, {.activations = Precision::kI8, .fusions = set});
    if (!runner) return std::vector<float>();
    const std::vector<TokenId> tokens = RandomTokens(48, WideShape().vocab, 9);
    return LogitsOf(*runner->session, tokens, 0, 0, 48);
  };
  const std::vector<float> want = logits(apart.Without(Fusion::kQuantiseOnce));
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(logits(apart), want);
}

TEST_F(Numbers, norms_and_logits_may_have_types_of_their_own) {
  const std::string path = WriteTiny(folder_, "f32", WideShape(), DataType::kF32);
  const std::vector<float> want = Reference(path);
  const auto vocab = static_cast<std::size_t>(WideShape().vocab);
  const RunnerOptions options{
      .normed = DataType::kBF16, .logits = DataType::kBF16, .pack = false, .vendor = false};
  auto runner = Runner::Make(path, options);
  ASSERT_NE(runner, nullptr);
  const auto graph = runner->session->GraphFor(4, 4);
  ASSERT_TRUE(graph) << graph.error().message;
  int normed = 0, logits = 0, others = 0;
  for (const TensorNode& node : (*graph)->nodes()) {
    if (!Computes(node.op) || WritesCache(node.op)) continue;
    const bool norm = node.op == TensorOp::kRmsNorm, last = node.name == "output";
    EXPECT_EQ(node.out.dtype, norm || last ? DataType::kBF16 : DataType::kF32) << node.name;
    ++(norm ? normed : last ? logits : others);
  }
  EXPECT_EQ(normed, 2 * WideShape().layers + 1);
  EXPECT_EQ(logits, 1);
  EXPECT_GT(others, 0);
  const std::vector<float> got = Run(*runner->session, WideShape().vocab);
  for (const float value : got)
    ASSERT_EQ(BF16ToF32(F32ToBF16(value)), value) << "the logits were rounded to bf16";
  const double worst = WorstRow(got, want, vocab);
  EXPECT_LE(worst, LogitBound(WideShape(), Precision::kBF16, DataType::kF32) + 0x1p-8);
  EXPECT_GT(worst, 0x1p-12);
}

TEST_F(Numbers, experts_that_take_every_row_are_right_and_those_without_rows_change_nothing) {
  const SynthShape shape = FindSynthPreset("tiny-test-mixtral").value();
  const std::string sound = WriteTiny(folder_, "sound", shape, DataType::kF32);
  EditedModel model(sound);
  // Routers of zeros: equal logits go to the first experts, whatever the row.
  for (int layer = 0; layer < shape.layers; ++layer) {
    auto& router = model.tensor("blk." + std::to_string(layer) + ".ffn_gate_inp.weight").bytes;
    std::fill(router.begin(), router.end(), std::byte{0});
  }
  const std::string hot = folder_ / "hot.gguf", poisoned = folder_ / "poisoned.gguf";
  model.Write(hot);
  ASSERT_LT(shape.experts_used, shape.experts);
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (const char* name : {"gate", "up", "down"}) {
      auto& bytes =
          model
              .tensor("blk." + std::to_string(layer) + ".ffn_" + std::string(name) + "_exps.weight")
              .bytes;
      const std::size_t expert = bytes.size() / static_cast<std::size_t>(shape.experts);
      const auto used =
          static_cast<std::ptrdiff_t>(expert * static_cast<std::size_t>(shape.experts_used));
      std::fill(bytes.begin() + used, bytes.end(), std::byte{0xff});  // NaN
    }
  }
  model.Write(poisoned);
  const std::vector<float> want = Reference(hot);
  EXPECT_GT(WorstRow(want, Reference(sound), static_cast<std::size_t>(shape.vocab)), 1e-3);
  for (const bool fuse : {true, false}) {
    Check(hot, shape, want, {.fuse = fuse}, fuse ? "hot, fused" : "hot, unfused");
    Check(poisoned, shape, want, {.fuse = fuse}, fuse ? "poisoned, fused" : "poisoned, unfused");
  }
}

TEST_F(Numbers, every_type_of_kv_cache_is_right) {
  const std::string path = WriteTiny(folder_, "q8_0", WideShape(), DataType::kQ8_0);
  const std::vector<float> want = Reference(path);
  for (const DataType kv : {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0}) {
    Check(path, WideShape(), want, {.kv = kv}, "KV cache of " + std::string(DataTypeName(kv)));
  }
}

TEST_F(Numbers, every_grouping_of_heads_and_odd_sizes_are_right) {
  struct Case {
    int heads, kv_heads, head_dim, hidden, ffn;
    bool tied;
  };
  const Case cases[] = {
      {4, 4, 16, 64, 128, true},    // every head has its own keys
      {4, 2, 16, 64, 128, false},   // two heads share
      {6, 2, 32, 192, 160, true},   // three share; ffn is no multiple of a tile
      {4, 1, 16, 64, 96, false},    // all share one
      {2, 1, 80, 160, 352, false},  // head_dim of no power of two
      {3, 1, 96, 288, 224, true},   //
      {2, 2, 48, 64, 64, true},     // heads * head_dim differs from hidden
      {5, 5, 6, 96, 32, false},     // a head below any vector
      {1, 1, 128, 128, 144, true},  //
  };
  for (const Case& c : cases) {
    SynthShape shape = TinyShape();
    shape.heads = c.heads, shape.kv_heads = c.kv_heads, shape.head_dim = c.head_dim;
    shape.hidden = c.hidden, shape.ffn = c.ffn, shape.tied = c.tied;
    const std::string name = std::to_string(c.heads) + "_" + std::to_string(c.kv_heads) + "_" +
                             std::to_string(c.head_dim);
    // The attention output has heads * head_dim inputs: blocks of 32 must divide it.
    const DataType quant =
        c.heads * c.head_dim % 32 == 0 && c.ffn % 32 == 0 ? DataType::kQ4_0 : DataType::kBF16;
    const std::string path = WriteTiny(folder_, name, shape, quant);
    const std::vector<float> want = Reference(path);
    for (const bool fuse : {true, false}) {
      Check(path, shape, want, {.kv = DataType::kF16, .fuse = fuse},
            name + (fuse ? " fused" : " unfused"));
    }
  }
}

/// Llama 3's correction of a frequency, written out once more.
float Llama3Factor(double frequency, double factor, double low, double high, double original) {
  const double wave = 2 * 3.14159265358979323846 / frequency;
  if (wave < original / high) return 1;
  if (wave > original / low) return static_cast<float>(factor);
  const double smooth = (original / wave - low) / (high - low);
  return static_cast<float>(1 / ((1 - smooth) / factor + smooth));
}

TEST_F(Numbers, scaling_in_the_metadata_equals_the_same_scaling_in_a_tensor_and_differs_from_none) {
  const SynthShape shape = WideShape();
  const std::string plain = WriteTiny(folder_, "plain", shape, DataType::kF16);
  // A small original context, so that most pairs are slowed within few positions.
  const auto scaled_by_metadata = [&] {
    EditedModel edited(plain);
    edited.SetString("llama.rope.scaling.type", "llama3");
    edited.SetF32("llama.rope.scaling.factor", 8);
    edited.SetF32("llama.rope.scaling.low_freq_factor", 1);
    edited.SetF32("llama.rope.scaling.high_freq_factor", 4);
    edited.SetU32("llama.rope.scaling.original_context_length", 64);
    edited.Write(folder_ / "metadata.gguf");
    return folder_ / "metadata.gguf";
  }();
  const auto scaled_by_tensor = [&] {
    EditedModel edited(plain);
    std::vector<float> factors;
    for (int i = 0; i < shape.head_dim; i += 2) {
      const double frequency =
          std::pow(static_cast<double>(shape.rope_base), -static_cast<double>(i) / shape.head_dim);
      factors.push_back(Llama3Factor(frequency, 8, 1, 4, 64));
    }
    edited.AddF32("rope_freqs.weight", {shape.head_dim / 2, 1, 1, 1}, 1);
    std::memcpy(edited.tensor("rope_freqs.weight").bytes.data(), factors.data(),
                factors.size() * sizeof(float));
    edited.Write(folder_ / "tensor.gguf");
    return folder_ / "tensor.gguf";
  }();
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  const std::vector<float> unscaled = Reference(plain), metadata = Reference(scaled_by_metadata),
                           tensor = Reference(scaled_by_tensor);
  EXPECT_LE(WorstRow(metadata, tensor, vocab), 1e-6);
  EXPECT_GE(WorstRow(metadata, unscaled, vocab), 1e-2);
  for (const std::string& path : {scaled_by_metadata, scaled_by_tensor})
    Check(path, shape, Reference(path), {}, path);
}

TEST_F(Numbers, linear_scaling_and_partly_rotated_heads_are_right) {
  const SynthShape shape = WideShape();
  const std::string plain = WriteTiny(folder_, "plain", shape, DataType::kF32);
  const std::vector<float> unscaled = Reference(plain);
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  const auto check = [&](const std::string& name, auto edit) {
    EditedModel edited(plain);
    edit(edited);
    const std::string path = folder_ / (name + ".gguf");
    edited.Write(path);
    const std::vector<float> want = Reference(path);
    EXPECT_GE(WorstRow(want, unscaled, vocab), 1e-2) << name;
    Check(path, shape, want, {}, name);
  };
  check("linear", [](EditedModel& m) {
    m.SetString("llama.rope.scaling.type", "linear");
    m.SetF32("llama.rope.scaling.factor", 4);
  });
  check("half of each head", [](EditedModel& m) { m.SetU32("llama.rope.dimension_count", 32); });
}

/// How far an operation is from float64, relative, in units of 2^-24: a little more than the worst
/// measured at any level of instruction sets. The sums of k = 512 products take sqrt(k) roundings
/// (8.5 measured), attention sums over few positions (3.2); a norm takes two roundings and a root
/// (1.3), rotations and exponentials one (0.9). One addition or product rounds as the oracle's
/// result does, and what only moves values is exact.
double RoundingsOf(TensorOp op) {
  switch (op) {
    case TensorOp::kMulMat:
      return 12;
    case TensorOp::kAttention:
      return 5;
    case TensorOp::kRmsNorm:
      return 2;
    case TensorOp::kRope:
    case TensorOp::kSilu:
      return 1.5;
    default:
      return 0;
  }
}

TEST_F(Numbers, each_node_stays_within_the_rounding_of_its_operation) {
  const std::string path = WriteTiny(folder_, "q4_1", WideShape(), DataType::kQ4_1);
  // Weights plain: the reference reads no packed ones.
  auto runner = Runner::Make(path, {.fuse = false, .pack = false});
  ASSERT_NE(runner, nullptr);
  auto reference = MakeReferenceDispatch();
  std::map<TensorOp, double> worst;
  int reports = 0;
  auto compare = MakeCompareDispatch(*runner->cpu, *reference, [&](const NodeComparison& c) {
    ++reports;
    worst[c.op] = std::max(worst[c.op], std::isfinite(c.relative_l2) ? c.relative_l2 : HUGE_VAL);
    EXPECT_LE(c.relative_l2, RoundingsOf(c.op) * 0x1p-24) << "node " << c.node << " " << c.name;
  });
  SessionOptions options;
  options.kv = DataType::kF32;
  options.context = 64;
  auto session = Session::Create(*runner->model, *compare, options);
  ASSERT_TRUE(session) << session.error().message;
  for (const auto& [first, count] : {std::pair{0, 9}, std::pair{9, 1}}) {
    const std::vector<TokenId> tokens = RandomTokens(count, runner->model->config().vocab, 3);
    ASSERT_FALSE(LogitsOf(**session, tokens, 0, first, count).empty());
  }
  const Graph* graph = (*session)->GraphFor(1, 1).value();
  const auto nodes = std::count_if(graph->nodes().begin(), graph->nodes().end(),
                                   [](const TensorNode& node) { return Computes(node.op); });
  EXPECT_EQ(reports, 2 * nodes);
  for (const TensorOp op : {TensorOp::kMulMat, TensorOp::kRmsNorm, TensorOp::kAdd, TensorOp::kRope,
                            TensorOp::kAttention, TensorOp::kMul, TensorOp::kSilu,
                            TensorOp::kKvScatter, TensorOp::kEmbedding}) {
    EXPECT_EQ(worst.count(op), 1u) << TensorOpName(op);
  }
  for (const auto& [op, distance] : worst)
    std::printf("%-12s %.2e\n", std::string(TensorOpName(op)).c_str(), distance);
}

TEST_F(
    Numbers,
    a_dispatch_that_meets_a_second_model_at_the_place_of_the_first_uses_the_second_ones_rotations) {
  SynthShape shape = WideShape();
  shape.rope_factor = 8;
  const std::string first = WriteTiny(folder_, "first", shape, DataType::kF16);
  EditedModel edited(first);
  auto* factors = reinterpret_cast<float*>(edited.tensor("rope_freqs.weight").bytes.data());
  for (int i = 0; i < shape.head_dim / 2; ++i) factors[i] = 1 + static_cast<float>(i % 5);
  const std::string second = folder_ / "second.gguf";
  edited.Write(second);
  const std::vector<float> want = Reference(second);

  auto runner = Runner::Make(first, {});
  ASSERT_NE(runner, nullptr);
  Run(*runner->session, shape.vocab);
  const void* place = runner->model->globals()[WeightRole::kRopeFactors].view.data;
  runner->session.reset();
  runner->model.reset();
  ModelOptions model_options;
  model_options.packer = runner->cpu.get();
  auto model = Model::Load(second, model_options);
  ASSERT_TRUE(model) << model.error().message;
  if ((*model)->globals()[WeightRole::kRopeFactors].view.data != place)
    GTEST_SKIP() << "the second file was mapped elsewhere";
  SessionOptions options;
  options.kv = DataType::kF32;
  options.context = 128;
  auto session = Session::Create(**model, *runner->cpu, options);
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_LE(WorstRow(Run(**session, shape.vocab), want, static_cast<std::size_t>(shape.vocab)),
            LogitBound(shape, Precision::kF32, DataType::kF32));
}

}  // namespace
}  // namespace tilewright
