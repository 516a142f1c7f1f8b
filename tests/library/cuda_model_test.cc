// Whole models on a GPU: the logits of the float64 oracle within what the roundings allow, for every
// type of weights and activations, and the text of the CPU. Skipped where no GPU can be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine/verified_test_util.h"
#include "gpu_model.h"
#include "models.h"
#include "on_host.h"
#include "serving.h"
#include "tilewright/cuda_device.h"

namespace tilewright {
namespace {

using test::Best;
using test::Bound;
using test::CudaModel;
using test::ExpectSameChoices;
using test::LogitsOf;
using test::NodeBound;
using test::OnGpu;
using test::RandomTokens;
using test::RoundingCase;
using test::RoundingCases;
using test::Runner;

/// A prompt in passes of 13 and 40 rows, then tokens one by one; the text is the same for all.
std::vector<float> Talk(Session& session, int vocab) {
  const std::vector<TokenId> tokens = RandomTokens(65, vocab, 3);
  std::vector<float> all = LogitsOf(session, std::span(tokens).first(13), 0, 0, 13);
  const auto add = [&](const std::vector<float>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(LogitsOf(session, std::span(tokens).subspan(13, 40), 0, 13, 40));
  add(LogitsOf(session, std::span(tokens).subspan(53), 0, 53, 1));
  return all;
}

class CudaModelOfType : public CudaModel, public testing::WithParamInterface<DataType> {};

TEST_P(CudaModelOfType, gives_the_logits_of_the_oracle_for_every_type_of_activations) {
  const SynthShape shape = test::WideShape();
  const std::string path =
      test::WriteTiny(*folder_, std::string(DataTypeName(GetParam())), shape, GetParam());
  const auto oracle = Runner::Make(path, {.float64 = true});
  ASSERT_NE(oracle, nullptr);
  const std::vector<float> want = Talk(*oracle->session, shape.vocab);
  for (const RoundingCase& c : RoundingCases(GetParam())) {
    for (const bool fuse : {true, false}) {
      SCOPED_TRACE(c.name + (fuse ? "" : ", nothing fused"));
      const OnGpu gpu = Load(path, Options(c.activations, c.kv), fuse, true, c.precision);
      ASSERT_NE(gpu.session, nullptr);
      const std::vector<float> got = Talk(*gpu.session, shape.vocab);
      const double bound = Bound(shape, c.activations, c.kv, c.int8());
      EXPECT_LT(test::WorstRow(got, want, static_cast<std::size_t>(shape.vocab)), bound);
      ExpectSameChoices(got, want, static_cast<std::size_t>(shape.vocab), bound);
      test::NoteVerified({.operation = "model",
                          .subject = DataTypeName(GetParam()),
                          .device = test::GpuLevel(context_->device().spec()),
                          .how = c.int8() ? "int8" : DataTypeName(c.activations)});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, CudaModelOfType,
                         testing::Values(DataType::kBF16, DataType::kF16, DataType::kF32,
                                         DataType::kQ4_0, DataType::kQ4_1, DataType::kQ8_0,
                                         DataType::kQ4_K, DataType::kQ6_K, DataType::kQ5_0,
                                         DataType::kQ5_1, DataType::kQ5_K, DataType::kQ2_K,
                                         DataType::kQ3_K, DataType::kIQ4_NL, DataType::kIQ4_XS,
                                         DataType::kMXFP4),
                         [](const auto& type) { return std::string(DataTypeName(type.param)); });

TEST_P(CudaModelOfType, every_node_is_what_the_oracle_and_the_cpu_make_of_its_inputs) {
  const SynthShape shape = test::WideShape();
  const std::string path =
      test::WriteTiny(*folder_, std::string(DataTypeName(GetParam())), shape, GetParam());
  for (const RoundingCase& c : RoundingCases(GetParam())) {
    SCOPED_TRACE(c.name);
    const OnGpu gpu = Load(path, Options(c.activations, c.kv), true, false, c.precision);
    ASSERT_NE(gpu.session, nullptr);
    EXPECT_GT(test::ExpectNodesOfBoth(*gpu.model, *gpu.dispatch, Options(c.activations, c.kv),
                                      NodeBound(c.activations, c.int8())),
              50);
  }
}

TEST_F(CudaModel, sequences_in_one_pass_are_each_what_they_are_alone) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "batch", shape, DataType::kQ8_0);
  SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
  const OnGpu alone = Load(path, options);
  options.slots = 3;
  const OnGpu together = Load(path, options);
  ASSERT_NE(together.session, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(60, shape.vocab, 8);
  std::vector<std::vector<float>> want(3);
  for (int slot = 0; slot < 3; ++slot) {
    const auto own = std::span(tokens).subspan(static_cast<std::size_t>(slot) * 7);
    want[static_cast<std::size_t>(slot)] = LogitsOf(*alone.session, own.first(30), 0, 0, 1);
  }
  std::vector<std::vector<float>> got(3);
  for (int position = 0; position < 30; ++position) {
    std::vector<Row> rows;
    for (int slot = 0; slot < 3; ++slot)
      rows.push_back({tokens[static_cast<std::size_t>(slot * 7 + position)], position, slot, true});
    const auto logits = together.session->Forward(rows);
    ASSERT_TRUE(logits) << logits.error().message;
    for (std::size_t slot = 0; slot < 3; ++slot) {
      const auto row = logits->subspan(slot * static_cast<std::size_t>(shape.vocab),
                                       static_cast<std::size_t>(shape.vocab));
      got[slot].insert(got[slot].end(), row.begin(), row.end());
    }
  }
  // Kernels for one row and for several add in different orders.
  const double bound = Bound(shape, DataType::kBF16, DataType::kBF16);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    EXPECT_LT(test::WorstRow(got[slot], want[slot], static_cast<std::size_t>(shape.vocab)), bound)
        << "slot " << slot;
  }
}

/// Of one row: its keys and values are in the caches all the same.
TEST_F(CudaModel, attention_that_turns_its_row_gives_the_bits_of_rotation_and_attention) {
  for (const int head_dim : {64, 128}) {
    SynthShape shape = test::WideShape();
    shape.head_dim = head_dim;
    const std::string path =
        test::WriteTiny(*folder_, "turn" + std::to_string(head_dim), shape, DataType::kQ8_0);
    for (const DataType type : {DataType::kBF16, DataType::kF16}) {
      const auto load = [&](FusionSet fusions) {
        return Load(path, Options(type, type), true, true, Precision::kAuto, fusions);
      };
      const OnGpu together = load(FusionSet::All());
      const OnGpu apart = load(FusionSet::All().Without(Fusion::kRopeAttention));
      ASSERT_NE(together.session, nullptr);
      ASSERT_NE(apart.session, nullptr);
      const auto has = [](const OnGpu& gpu, std::int64_t rows) {
        const auto graph = gpu.session->GraphFor(rows, 1);
        EXPECT_TRUE(graph);
        const auto nodes = (*graph)->nodes();
        return std::any_of(nodes.begin(), nodes.end(), [](const TensorNode& node) {
          return node.op == TensorOp::kRopeAttention;
        });
      };
      EXPECT_TRUE(has(together, 1));
      EXPECT_FALSE(has(together, 2));
      EXPECT_FALSE(has(apart, 1));
      EXPECT_EQ(Talk(*together.session, shape.vocab), Talk(*apart.session, shape.vocab))
          << head_dim << " " << DataTypeName(type);
    }
  }
}

TEST_F(CudaModel, a_pass_run_again_gives_the_same_bits) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "again", shape, DataType::kQ4_K);
  const OnGpu gpu = Load(path, Options(DataType::kBF16, DataType::kBF16));
  ASSERT_NE(gpu.session, nullptr);
  EXPECT_EQ(Talk(*gpu.session, shape.vocab), Talk(*gpu.session, shape.vocab));
}

TEST_F(CudaModel, kernels_that_start_early_give_the_bits_of_kernels_in_turn) {
  const SynthShape shape = test::WideShape();
  ASSERT_EQ(setenv("TILEWRIGHT_PDL", "0", 1), 0);
  ContextOptions options;
  options.device = "cuda:0";
  options.threads = 1;
  options.cache_dir = folder_->str() + "/cache";
  if (const char* bundle = std::getenv("TILEWRIGHT_GPU_BUNDLE"))
    options.artifacts.bundles = {bundle};
  Result<std::unique_ptr<Context>> in_turn = Context::Create(options);
  ASSERT_EQ(unsetenv("TILEWRIGHT_PDL"), 0);
  ASSERT_TRUE(in_turn) << in_turn.error().message;
  for (const DataType weights : {DataType::kBF16, DataType::kQ4_K}) {
    const std::string path =
        test::WriteTiny(*folder_, "early_" + std::string(DataTypeName(weights)), shape, weights);
    for (const bool fuse : {true, false}) {
      const auto talk = [&] {
        const OnGpu gpu = Load(path, Options(DataType::kBF16, DataType::kBF16), fuse);
        return gpu.session != nullptr ? Talk(*gpu.session, shape.vocab) : std::vector<float>();
      };
      Context* const early = std::exchange(context_, in_turn->get());
      const std::vector<float> want = talk();
      context_ = early;
      ASSERT_FALSE(want.empty());
      EXPECT_TRUE(talk() == want) << DataTypeName(weights) << (fuse ? "" : ", nothing fused");
    }
  }
}

TEST_F(CudaModel, many_sequences_that_come_and_go_are_each_what_they_are_alone) {
  const SynthShape shape = test::WideShape();
  const test::Sequences sequences = test::SequencesOf({}, shape.vocab);
  for (const DataType quant : {DataType::kQ8_0, DataType::kBF16}) {
    SCOPED_TRACE(DataTypeName(quant));
    const std::string path =
        test::WriteTiny(*folder_, "serve" + std::string(DataTypeName(quant)), shape, quant);
    SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
    for (const Precision precision : {Precision::kBF16, Precision::kAuto}) {
      options.slots = 1;
      const OnGpu alone = Load(path, options, true, true, precision);
      options.slots = 16;
      const OnGpu together = Load(path, options, true, true, precision);
      ASSERT_NE(together.session, nullptr);
      const auto want = test::LogitsAlone(*alone.session, sequences);
      const auto got = test::ServedLogits(*together.session, sequences, 16, shape.vocab);
      ASSERT_EQ(got.size(), want.size());
      // Kernels for one row and for several add in different orders; those for a few round to int8.
      const bool int8 = precision == Precision::kAuto && quant == DataType::kQ8_0;
      const double bound = Bound(shape, DataType::kBF16, DataType::kBF16, int8);
      for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].size(), want[i].size());
        EXPECT_LT(test::WorstRow(got[i], want[i], static_cast<std::size_t>(shape.vocab)), bound)
            << "sequence " << i;
      }
    }
  }
}

TEST_F(CudaModel, batches_of_every_size_are_padded_without_a_trace) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "batches", shape, DataType::kQ8_0);
  SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
  options.slots = 256;
  const OnGpu gpu = Load(path, options);
  ASSERT_NE(gpu.session, nullptr);
  test::ExpectBatchesOfEverySize(*gpu.session, shape.vocab,
                                 Bound(shape, DataType::kBF16, DataType::kBF16));
}

/// Whatever makes a captured pass stale happens here: rows cross the edges of buckets, the cache
/// grows and moves, sequences join and end. A decorator keeps the other session from capturing.
TEST_F(CudaModel, replayed_passes_give_the_bits_of_those_launched_one_by_one) {
  const SynthShape shape = test::WideShape();
  const test::Sequences sequences =
      test::SequencesOf({.sequences = 12, .slots = 6, .longest = 100}, shape.vocab);
  for (const DataType quant : {DataType::kQ4_K, DataType::kBF16}) {
    SCOPED_TRACE(DataTypeName(quant));
    const std::string path =
        test::WriteTiny(*folder_, "replay" + std::string(DataTypeName(quant)), shape, quant);
    SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
    options.slots = 6;
    const OnGpu gpu = Load(path, options);
    ASSERT_NE(gpu.session, nullptr);
    std::int64_t calls = 0;
    const auto eager = MakeTraceDispatch(*gpu.dispatch, [&](std::string_view) { ++calls; });
    auto launched = Session::Create(*gpu.model, *eager, options);
    ASSERT_TRUE(launched) << launched.error().message;
    const auto want = test::ServedLogits(**launched, sequences, 6, shape.vocab);
    const std::int64_t of_one_by_one = calls;
    EXPECT_GT(of_one_by_one, 0);
    const std::int64_t pages = gpu.session->kv_bytes();
    EXPECT_EQ(test::ServedLogits(*gpu.session, sequences, 6, shape.vocab), want);
    EXPECT_GT(gpu.session->kv_bytes(), pages) << "the cache was to grow";
    EXPECT_EQ(calls, of_one_by_one) << "the other session has no decorator";
  }
}

/// Logits of `slots` sequences, each of its own tokens, a pass for every one of `positions`.
std::vector<float> Decoded(Session& session, int slots, int positions, int vocab) {
  const std::vector<TokenId> tokens = RandomTokens(slots * positions, vocab, 5);
  std::vector<float> all;
  for (int position = 0; position < positions; ++position) {
    std::vector<Row> rows;
    for (int slot = 0; slot < slots; ++slot)
      rows.push_back(
          {tokens[static_cast<std::size_t>(position * slots + slot)], position, slot, true});
    const auto logits = session.Forward(rows);
    EXPECT_TRUE(logits) << logits.error().message;
    if (!logits) return all;
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

TEST_F(CudaModel, chains_of_products_give_the_logits_of_separate_kernels) {
  if (context_->device_spec().compute_capability != 90) GTEST_SKIP() << "no kernels for chains";
  // Every product has a k-tile and more for each multiprocessor.
  SynthShape shape = test::WideShape();
  shape.hidden = shape.ffn = 2560;
  shape.heads = 20;
  shape.kv_heads = 4;
  shape.head_dim = 128;
  constexpr int kPositions = 4;
  for (const DataType quant : {DataType::kQ8_0, DataType::kQ4_K}) {
    const std::string path =
        test::WriteTiny(*folder_, "chains" + std::string(DataTypeName(quant)), shape, quant);
    for (const int slots : {16, 32, 64}) {
      SCOPED_TRACE(std::string(DataTypeName(quant)) + ", " + std::to_string(slots) + " rows");
      SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
      options.slots = slots;
      const auto decoded = [&](Chains chains) {
        options.chains = chains;
        const OnGpu gpu = Load(path, options);
        if (gpu.session == nullptr) return std::vector<float>();
        std::vector<float> logits = Decoded(*gpu.session, slots, kPositions, shape.vocab);
        std::vector<Row> rows;
        for (int slot = 0; slot < slots; ++slot) rows.push_back({1, kPositions, slot, true});
        const auto times = gpu.session->TimePass(rows, 1);
        EXPECT_TRUE(times) << times.error().message;
        int launches = 0;
        if (times) {
          for (const StepGroup& group : times->groups)
            launches += group.kernel.starts_with("gemm_chain.") ? group.count : 0;
        }
        EXPECT_EQ(launches, chains == Chains::kOn ? shape.layers : 0);
        return logits;
      };
      const std::vector<float> separate = decoded(Chains::kOff), chained = decoded(Chains::kOn);
      ASSERT_FALSE(separate.empty());
      ASSERT_EQ(chained.size(), separate.size());
      EXPECT_LT(test::WorstRow(chained, separate, static_cast<std::size_t>(shape.vocab)),
                Bound(shape, DataType::kBF16, DataType::kBF16));
      EXPECT_TRUE(decoded(Chains::kOn) == chained) << "other bits than before";
    }
  }
}

TEST_F(CudaModel, the_best_logits_are_found_where_they_are_computed) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "best", shape, DataType::kQ8_0);
  for (const DataType logits : {DataType::kF32, DataType::kBF16}) {
    SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
    options.slots = 2;
    options.logits = logits;
    const OnGpu all = Load(path, options), best = Load(path, options);
    ASSERT_NE(best.session, nullptr);
    test::ExpectBestOfAllLogits(*all.session, *best.session, shape.vocab);
    test::ExpectGeneratedAsSampled(*best.session, *all.session, shape.vocab);
  }
}

TEST_F(CudaModel, passes_submitted_ahead_find_what_passes_in_turn_find) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "ahead", shape, DataType::kQ8_0);
  SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
  options.slots = 2;
  options.context = 192;
  options.page_size = 64;
  const OnGpu ahead = Load(path, options), in_turn = Load(path, options);
  ASSERT_NE(ahead.session, nullptr);
  test::ExpectSubmittedAsInTurn(*ahead.session, *in_turn.session, shape.vocab);
}

TEST_F(CudaModel, two_contexts_in_one_process_share_nothing) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "two", shape, DataType::kQ8_0);
  const SessionOptions options = Options(DataType::kBF16, DataType::kBF16);
  const OnGpu first = Load(path, options);
  ASSERT_NE(first.session, nullptr);
  const std::vector<float> want = Talk(*first.session, shape.vocab);
  {
    ContextOptions other;
    other.device = "cuda:0";
    other.threads = 1;
    other.cache_dir = folder_->str() + "/cache";
    if (const char* bundle = std::getenv("TILEWRIGHT_GPU_BUNDLE"))
      other.artifacts.bundles = {bundle};
    Result<std::unique_ptr<Context>> second = Context::Create(other);
    ASSERT_TRUE(second) << second.error().message;
    Context* const kept = std::exchange(context_, second->get());
    const OnGpu again = Load(path, options);
    context_ = kept;
    ASSERT_NE(again.session, nullptr);
    EXPECT_EQ(Talk(*again.session, shape.vocab), want);
  }
  EXPECT_EQ(Talk(*first.session, shape.vocab), want) << "after the other context has gone";
}

TEST_F(CudaModel, smollm2_says_what_it_says_on_the_cpu) {
  const char* const path = std::getenv("TILEWRIGHT_MODEL");
  if (path == nullptr || !std::filesystem::exists(path)) GTEST_SKIP() << "no SmolLM2 here";
  const std::vector<TokenId> prompt = {504, 3575, 282, 4649, 314, 260, 1826, 282, 253, 2627};
  constexpr int kTokens = 24;
  const auto cpu = Runner::Make(path, {.kv = DataType::kF16, .context = 128});
  ASSERT_NE(cpu, nullptr);
  const auto vocab = static_cast<std::size_t>(cpu->model->config().vocab);
  std::vector<TokenId> said = prompt;
  std::vector<float> want = LogitsOf(*cpu->session, prompt, 0, 0, 64);
  for (int i = 0; i < kTokens; ++i) {
    said.push_back(static_cast<TokenId>(Best(std::span(want).last(vocab))));
    const auto more =
        LogitsOf(*cpu->session, std::span(said).last(1), 0, static_cast<int>(said.size()) - 1, 1);
    want.insert(want.end(), more.begin(), more.end());
  }
  SynthShape shape;
  shape.layers = cpu->model->config().layers;
  shape.hidden = cpu->model->config().hidden, shape.ffn = cpu->model->config().ffn;
  for (const RoundingCase& c : RoundingCases(DataType::kQ4_1)) {
    if (c.activations == DataType::kF16) continue;
    SCOPED_TRACE(c.name);
    const OnGpu gpu = Load(path, Options(c.activations, c.kv), true, true, c.precision);
    ASSERT_NE(gpu.session, nullptr);
    // The CPU's text is fed, so that a near-tie does not end the comparison.
    std::vector<float> got = LogitsOf(*gpu.session, prompt, 0, 0, 64);
    const auto rest = LogitsOf(*gpu.session, std::span(said).subspan(prompt.size()), 0,
                               static_cast<int>(prompt.size()), 1);
    got.insert(got.end(), rest.begin(), rest.end());
    const double bound = Bound(shape, c.activations, c.kv, c.int8());
    EXPECT_LT(test::WorstRow(got, want, vocab), bound);
    ExpectSameChoices(got, want, vocab, bound);
    const OnGpu plain = Load(path, Options(c.activations, c.kv), true, false, c.precision);
    ASSERT_NE(plain.session, nullptr);
    EXPECT_GT(test::ExpectNodesOfBoth(*plain.model, *plain.dispatch, Options(c.activations, c.kv),
                                      NodeBound(c.activations, c.int8())),
              500);
  }
}

TEST_F(CudaModel, two_gpus_give_the_same_answers_at_once_as_alone) {
  const Result<int> count = cuda::CudaDeviceCount();
  if (!count || *count < 2) GTEST_SKIP() << "needs two GPUs";
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(*folder_, "two", shape, DataType::kQ4_0);
  ContextOptions options;
  options.device = "cuda:1";
  options.threads = 2;
  options.cache_dir = folder_->str() + "/cache";
  if (const char* bundle = std::getenv("TILEWRIGHT_GPU_BUNDLE"))
    options.artifacts.bundles = {bundle};
  const auto second = Context::Create(options);
  ASSERT_TRUE(second) << second.error().message;
  const SessionOptions session_options = Options(DataType::kBF16, DataType::kBF16);
  const std::vector<float> alone = Talk(*Load(path, session_options).session, shape.vocab);
  const OnGpu zero = Load(path, session_options);
  const OnGpu one = LoadOn(**second, path, session_options);
  ASSERT_TRUE(zero.session != nullptr && one.session != nullptr);
  // Several texts on each, at the same time; every one begins anew at position 0.
  constexpr int kTexts = 5;
  std::vector<std::vector<float>> of_one(kTexts);
  std::thread other([&] {
    for (std::vector<float>& text : of_one) text = Talk(*one.session, shape.vocab);
  });
  for (int i = 0; i < kTexts; ++i) {
    EXPECT_EQ(Talk(*zero.session, shape.vocab), alone) << "text " << i << " on cuda:0";
  }
  other.join();
  for (const std::vector<float>& text : of_one) EXPECT_EQ(text, alone) << "on cuda:1";
}

}  // namespace
}  // namespace tilewright
