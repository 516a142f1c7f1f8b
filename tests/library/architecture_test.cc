// What an architecture describes is what the builder computes: passes of models with and without
// biases, norms of heads and norms after, against arithmetic written out here in float64.
#include "model/arch/architecture.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <tuple>

#include "model/arch/hyperparameters.h"
#include "model/load/load.h"
#include "models.h"

namespace tilewright {
namespace {

using test::EditedModel;
using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WriteTiny;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Vector = std::vector<double>;

constexpr float kSecondBase = 500;
constexpr std::int32_t kSecondWindow = 3;
constexpr float kAttentionCap = 0.75f, kLogitCap = 1.5f, kEmbeddingScale = 3;

template <bool kBase, bool kWindow>
BlockSpec WithAnotherSecondBlock(const ModelConfig& config, std::int32_t index) {
  BlockSpec block = DenseBlock(config, index);
  if (kBase && index == 1) block.rope.base = kSecondBase;
  if (kWindow && index == 1) block.window = kSecondWindow;
  return block;
}

void ReadWithCaps(Hyperparameters& from, ModelConfig& config) {
  Architectures().front()->read(from, config);
  config.attention_softcap = kAttentionCap;
  config.logit_softcap = kLogitCap;
}

void ReadWithScale(Hyperparameters& from, ModelConfig& config) {
  Architectures().front()->read(from, config);
  config.embedding_scale = kEmbeddingScale;
}

/// An architecture with all that the tests add to the first one of the registry.
struct Variant {
  const char* what = "";
  bool biases = false, head_norms = false, post_norms = false, half_split = false, bases = false,
       windows = false, gelu = false, caps = false, scale = false;

  std::vector<TensorRule> Rules() const {
    const Architecture& base = *Architectures().front();
    std::vector<TensorRule> rules(base.tensors.begin(), base.tensors.end());
    if (biases) {
      rules.push_back({"blk.{}.attn_q.bias", WeightRole::kQBias, Extent::kQueries});
      rules.push_back({"blk.{}.attn_k.bias", WeightRole::kKBias, Extent::kKeys});
      rules.push_back({"blk.{}.attn_v.bias", WeightRole::kVBias, Extent::kKeys});
    }
    if (head_norms) {
      rules.push_back({"blk.{}.attn_q_norm.weight", WeightRole::kQNorm, Extent::kHeadDim});
      rules.push_back({"blk.{}.attn_k_norm.weight", WeightRole::kKNorm, Extent::kHeadDim});
    }
    if (post_norms) {
      rules.push_back(
          {"blk.{}.post_attention_norm.weight", WeightRole::kAttnPostNorm, Extent::kHidden});
      rules.push_back({"blk.{}.post_ffw_norm.weight", WeightRole::kFfnPostNorm, Extent::kHidden});
    }
    return rules;
  }

  Architecture Make(std::span<const TensorRule> rules) const {
    Architecture made = *Architectures().front();
    made.tensors = rules;
    if (half_split) made.rope = RopeMode::kHalfSplit;
    if (bases) made.block = &WithAnotherSecondBlock<true, false>;
    if (windows) made.block = &WithAnotherSecondBlock<false, true>;
    if (gelu) made.block = &GeluBlock;
    if (caps) made.read = &ReadWithCaps;
    if (scale) made.read = &ReadWithScale;
    if (bases && windows) made.block = &WithAnotherSecondBlock<true, true>;
    return made;
  }
};

constexpr Variant kVariants[] = {
    {.what = "as registered"},
    {.what = "biases", .biases = true},
    {.what = "norms of heads", .head_norms = true},
    {.what = "norms after", .post_norms = true},
    {.what = "RoPE of halves", .half_split = true},
    {.what = "another base in a block", .bases = true},
    {.what = "a window in a block", .windows = true},
    {.what = "gelu", .gelu = true},
    {.what = "soft caps", .caps = true},
    {.what = "scaled embeddings", .scale = true},
    {.what = "all",
     .biases = true,
     .head_norms = true,
     .post_norms = true,
     .half_split = true,
     .bases = true,
     .windows = true,
     .caps = true},
};

/// The model in float64, one token after the other, as the papers have it.
class Oracle {
 public:
  Oracle(const GgufFile& file, const SynthShape& shape, const Variant& variant)
      : file_(file), shape_(shape), variant_(variant) {}

  /// [tokens][vocab]
  std::vector<float> Logits(std::span<const TokenId> tokens) {
    std::vector<float> all;
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      const Vector table = Values("token_embd.weight");
      const auto row = table.begin() + std::int64_t{tokens[position]} * shape_.hidden;
      Vector x(row, row + shape_.hidden);
      for (double& value : x) value *= variant_.scale ? double{kEmbeddingScale} : 1;
      for (int block = 0; block < shape_.layers; ++block) x = Block(block, position, x);
      x = Norm(x, Values("output_norm.weight"));
      for (const double logit : Multiply("token_embd.weight", x))
        all.push_back(static_cast<float>(variant_.caps ? Cap(logit, double{kLogitCap}) : logit));
    }
    return all;
  }

 private:
  static double Cap(double x, double limit) { return limit * std::tanh(x / limit); }

  const Vector& Values(const std::string& name) {
    Vector& values = values_[name];
    if (!values.empty()) return values;
    const std::span<const std::byte> bytes = file_.Bytes(*file_.Tensor(name).value());
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      values.push_back(value);
    }
    return values;
  }

  /// w [n][k] times x.
  Vector Multiply(const std::string& name, const Vector& x) {
    const Vector& w = Values(name);
    Vector out(w.size() / x.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) out[n] += w[n * x.size() + k] * x[k];
    }
    return out;
  }

  Vector Norm(const Vector& x, const Vector& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + shape_.norm_epsilon);
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }

  void Rotate(Vector& head, int block, std::size_t position) const {
    const double base = variant_.bases && block == 1 ? kSecondBase : shape_.rope_base;
    const std::size_t pairs = head.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
      double& a = variant_.half_split ? head[i] : head[2 * i];
      double& b = variant_.half_split ? head[i + pairs] : head[2 * i + 1];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = x * std::sin(angle) + y * std::cos(angle);
    }
  }

  /// Projected, with bias and norm, a vector for each head; `rotate`: as queries and keys are.
  std::vector<Vector> Heads(const std::string& prefix, const char* letter, const Vector& x,
                            int block, std::size_t position, bool rotate) {
    const std::string name = prefix + "attn_" + letter;
    Vector all = Multiply(name + ".weight", x);
    if (variant_.biases) {
      const Vector& bias = Values(name + ".bias");
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += bias[i];
    }
    std::vector<Vector> heads;
    for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(shape_.head_dim)) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
      Vector head(first, first + shape_.head_dim);
      if (rotate && variant_.head_norms) head = Norm(head, Values(name + "_norm.weight"));
      if (rotate) Rotate(head, block, position);
      heads.push_back(std::move(head));
    }
    return heads;
  }

  static double Dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  Vector Attend(const Vector& q, int block, std::size_t kv_head) {
    const std::size_t seen = keys_[block].size();
    const std::size_t window = variant_.windows && block == 1 ? kSecondWindow : seen;
    std::vector<double> weights(seen, -HUGE_VAL);
    double most = -HUGE_VAL, sum = 0;
    for (std::size_t at = seen - std::min(window, seen); at < seen; ++at) {
      weights[at] =
          Dot(q, keys_[block][at][kv_head]) / std::sqrt(static_cast<double>(shape_.head_dim));
      if (variant_.caps) weights[at] = Cap(weights[at], double{kAttentionCap});
      most = std::max(most, weights[at]);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    Vector out(q.size());
    for (std::size_t at = 0; at < weights.size(); ++at) {
      const Vector& value = values_of_[block][at][kv_head];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weights[at] / sum * value[i];
    }
    return out;
  }

  double Activated(double x) const {
    if (!variant_.gelu) return x / (1 + std::exp(-x));
    return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }

  Vector Add(Vector x, Vector sum, const std::string& norm) {
    if (variant_.post_norms) sum = Norm(sum, Values(norm));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += sum[i];
    return x;
  }

  Vector Block(int block, std::size_t position, Vector x) {
    const std::string prefix = "blk." + std::to_string(block) + ".";
    const Vector normed = Norm(x, Values(prefix + "attn_norm.weight"));
    const auto queries = Heads(prefix, "q", normed, block, position, true);
    keys_[block].push_back(Heads(prefix, "k", normed, block, position, true));
    values_of_[block].push_back(Heads(prefix, "v", normed, block, position, false));
    Vector attended;
    for (std::size_t head = 0; head < queries.size(); ++head) {
      const std::size_t share = static_cast<std::size_t>(shape_.heads / shape_.kv_heads);
      const Vector out = Attend(queries[head], block, head / share);
      attended.insert(attended.end(), out.begin(), out.end());
    }
    x = Add(x, Multiply(prefix + "attn_output.weight", attended),
            prefix + "post_attention_norm.weight");
    const Vector middle = Norm(x, Values(prefix + "ffn_norm.weight"));
    Vector gate = Multiply(prefix + "ffn_gate.weight", middle);
    const Vector up = Multiply(prefix + "ffn_up.weight", middle);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = Activated(gate[i]) * up[i];
    return Add(x, Multiply(prefix + "ffn_down.weight", gate), prefix + "post_ffw_norm.weight");
  }

  const GgufFile& file_;
  const SynthShape& shape_;
  const Variant& variant_;
  std::map<std::string, Vector> values_;
  std::map<int, std::vector<std::vector<Vector>>> keys_, values_of_;  // [block][position][head]
};

class ArchitectureTest : public testing::Test {
 protected:
  /// A small model with the tensors of `rules` that a synthetic one lacks.
  std::string Write(const Variant& variant, std::span<const TensorRule> rules) {
    const SynthShape shape = test::TinyShape();
    EditedModel model(WriteTiny(folder_, "plain", shape, DataType::kF32));
    const ModelConfig config =
        ReadModelConfig(GgufFile::Open(folder_ / "plain.gguf").value(), *Architectures().front())
            .value();
    std::uint64_t seed = 1;
    for (const TensorRule& rule : rules.subspan(Architectures().front()->tensors.size())) {
      for (std::int32_t block = 0; block < config.layers; ++block) {
        const std::string name = rule.NameIn(block);
        const std::int64_t size = ExtentOf(rule.k, config);
        model.AddF32(name, {size, 1, 1, 1}, 1);
        std::vector<float> values;
        for (const TokenId random : RandomTokens(static_cast<int>(size), 1000, ++seed))
          values.push_back(0.5f + static_cast<float>(random) / 1000);
        std::memcpy(model.tensor(name).bytes.data(), values.data(), values.size() * sizeof(float));
      }
    }
    const std::string path = folder_ / (std::string(variant.what) + ".gguf");
    model.Write(path);
    return path;
  }

  /// Logits of `tokens` by the CPU's kernels, in passes of `chunk` rows; `float64` by the
  /// reference.
  static std::vector<float> Run(const std::string& path, const Architecture& architecture,
                                std::span<const TokenId> tokens, bool fuse, bool float64) {
    const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
    DispatchOptions dispatch_options;
    dispatch_options.activations = Precision::kF32;
    DeviceDispatch cpu(*kernels, HostDevice(), dispatch_options);
    const std::unique_ptr<KernelDispatch> reference = MakeReferenceDispatch();
    ModelOptions options;
    options.fuse = fuse;
    options.packer = float64 ? nullptr : &cpu;
    auto model = LoadModel(GgufFile::Open(path).value(), architecture, options);
    if (!model) return ADD_FAILURE() << model.error().message, std::vector<float>();
    SessionOptions session_options;
    session_options.kv = float64 ? DataType::kF64 : DataType::kF32;
    session_options.activations = float64 ? DataType::kF64 : DataType::kF32;
    KernelDispatch& dispatch = float64 ? *reference : static_cast<KernelDispatch&>(cpu);
    auto session = Session::Create(**model, dispatch, session_options);
    if (!session) return ADD_FAILURE() << session.error().message, std::vector<float>();
    return LogitsOf(**session, tokens, 0, 0, 5);
  }

  test::TempDir folder_;
};

TEST_F(ArchitectureTest, a_pass_computes_what_the_rules_and_blocks_describe) {
  const SynthShape shape = test::TinyShape();
  const std::vector<TokenId> tokens = RandomTokens(8, shape.vocab, 7);
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  std::vector<std::vector<float>> seen;
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.what);
    const std::vector<TensorRule> rules = variant.Rules();
    const Architecture architecture = variant.Make(rules);
    const std::string path = Write(variant, rules);
    const GgufFile file = GgufFile::Open(path).value();
    const std::vector<float> want = Oracle(file, shape, variant).Logits(tokens);
    const double bound = test::LogitBound(shape, Precision::kF32, DataType::kF32);
    EXPECT_LE(test::WorstRow(Run(path, architecture, tokens, true, false), want, vocab), bound);
    EXPECT_LE(test::WorstRow(Run(path, architecture, tokens, false, false), want, vocab), bound);
    EXPECT_LE(test::WorstRow(Run(path, architecture, tokens, true, true), want, vocab), bound);
    // Each variant changes the answer, so that none is left out unseen.
    for (const std::vector<float>& other : seen)
      EXPECT_GT(test::WorstRow(other, want, vocab), 1e-3);
    seen.push_back(want);
  }
}

TEST_F(ArchitectureTest, every_registered_architecture_runs_a_synthetic_model_of_its_own) {
  for (const Architecture* architecture : Architectures()) {
    SynthShape shape = test::TinyShape();
    shape.architecture = architecture->name;
    if (architecture->presets.front().experts > 0)
      shape.experts = 4, shape.experts_used = 2, shape.expert_ffn = shape.shared_ffn = 64;
    const std::string path =
        WriteTiny(folder_, std::string(architecture->name), shape, DataType::kQ8_0);
    const GgufFile file = GgufFile::Open(path).value();
    EXPECT_EQ(file.String("general.architecture").value(), architecture->name);
    EXPECT_EQ(FindArchitecture(architecture->name), architecture);
    auto runner = Runner::Make(path, {});
    ASSERT_NE(runner, nullptr);
    EXPECT_EQ(runner->model->config().architecture, architecture->name);
    const std::vector<TokenId> tokens = RandomTokens(6, shape.vocab, 1);
    EXPECT_EQ(LogitsOf(*runner->session, tokens, 0, 0, 6).size(),
              6 * static_cast<std::size_t>(shape.vocab));
    for (const SynthShape& preset : architecture->presets)
      EXPECT_EQ(preset.architecture, architecture->name) << preset.name;
  }
}

TEST_F(ArchitectureTest, blocks_with_a_window_are_named_by_a_period_or_one_by_one) {
  const SynthShape shape = FindSynthPreset("tiny-test-gemma3").value();
  EditedModel model(WriteTiny(folder_, "windows", shape, DataType::kF32));
  const std::string key = "gemma3.attention.sliding_window_pattern";
  const auto windowed = [&] {
    model.Write(folder_ / "edited.gguf");
    const Result<ModelConfig> config =
        ReadModelConfig(GgufFile::Open(folder_ / "edited.gguf").value());
    return config ? config->windowed : std::vector<bool>();
  };
  const std::vector<bool> by_six = {true, true, true, true, true, false, true};
  EXPECT_EQ(windowed(), by_six);
  model.RemoveKey(key);
  EXPECT_EQ(windowed(), by_six) << "what the architecture takes without the key";
  model.SetU32(key, 2);
  EXPECT_EQ(windowed(), (std::vector<bool>{true, false, true, false, true, false, true}));
  const std::vector<bool> listed = {false, true, true, false, false, false, true};
  model.SetBools(key, listed);
  EXPECT_EQ(windowed(), listed);
  model.RemoveKey("gemma3.attention.sliding_window");
  EXPECT_EQ(windowed(), std::vector<bool>()) << "without a window";
}

TEST_F(ArchitectureTest, a_model_that_is_in_no_file_gives_the_same_logits) {
  SynthShape untied = test::TinyShape(), tied = test::TinyShape();
  untied.tied = false;
  tied.tied = true;  // two weights are made of one tensor
  const SynthShape phi3 = FindSynthPreset("tiny-test-phi3").value();  // gate and up are one tensor
  for (const auto& [name, shape, quant] : {std::tuple{"untied", untied, DataType::kQ8_0},
                                           {"tied", tied, DataType::kQ8_0},
                                           {"phi3", phi3, DataType::kF32}}) {
    const SynthOptions synth{.shape = shape, .quant = quant, .seed = 1};
    auto runner = test::Runner::Make(test::WriteTiny(folder_, name, shape, quant), {});
    ASSERT_NE(runner, nullptr);
    Result<GgufFile> made = GenerateSynthetic(synth);
    ASSERT_TRUE(made) << made.error().message;
    ModelOptions options;
    options.packer = runner->cpu.get();
    const auto model = Model::Load(std::move(*made), options);
    ASSERT_TRUE(model) << model.error().message;
    const auto session =
        Session::Create(**model, *runner->cpu, {.kv = DataType::kF32, .context = 128});
    ASSERT_TRUE(session) << session.error().message;
    const std::vector<TokenId> tokens = test::RandomTokens(9, shape.vocab, 1);
    EXPECT_EQ(test::LogitsOf(**session, tokens, 0, 0, 9),
              test::LogitsOf(*runner->session, tokens, 0, 0, 9))
        << name;
  }
}

TEST_F(ArchitectureTest, a_shape_of_an_architecture_that_there_is_not_is_refused_by_name) {
  SynthShape shape = test::TinyShape();
  shape.architecture = "mamba";
  const auto report = PlanSynthetic({.shape = shape});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(report.error().message, HasSubstr("'mamba'"));
}

}  // namespace
}  // namespace tilewright
