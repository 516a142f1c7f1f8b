// Chains of products in the passes of models on a GPU, over a libcuda that has none behind it: which
// steps are one, and what keeps others from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_device_fixture.h"
#include "device/elf_compiler.h"
#include "graph/device/find_chains.h"
#include "models.h"
#include "tilewright/cuda/gemm_chain_params.h"

namespace tilewright {
namespace {

using enum DataType;
using cuda::ElfCompiler;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A dispatch on the fake GPU.
class CudaChains : public cuda::CudaDeviceTest {
 protected:
  // A cuBLASLt that this machine may have cannot work with the fake driver.
  CudaChains() {
    setenv("TILEWRIGHT_CUBLASLT", (folder_ / "nowhere").c_str(), 1);
    ContextOptions options;
    options.device = "cuda:0";
    options.threads = 1;
    options.cache_dir = folder_ / "cache";
    options.cuda_library = TILEWRIGHT_FAKE_CUDA;
    options.artifacts.compiler = compiler_;
    context_ = Context::Create(options).value();
    dispatch_ = context_->MakeDispatch();
  }
  ~CudaChains() override { unsetenv("TILEWRIGHT_CUBLASLT"); }

  struct Bound {
    Graph graph;
    DeviceMemory arena;
    BoundSteps steps;
    FoundChains found;

    std::string NameOf(const ChainedProduct& product) const {
      return graph.node(steps.steps[product.step]->node).name;
    }
    std::vector<std::string> NamesOf(const ProductChain& chain) const {
      std::vector<std::string> names;
      for (const ChainedProduct& product : chain.products) names.push_back(NameOf(product));
      return names;
    }
  };
  /// The steps of `graph`, each by itself, and the chains among them.
  Bound Bind(Graph graph, Reuse reuse = Reuse::kBehindNext) {
    Bound bound;
    bound.graph = std::move(graph);
    const Status right = VerifyGraph(bound.graph);
    EXPECT_TRUE(right) << right.error().message;
    const MemoryPlan plan = PlanMemory(bound.graph, reuse);
    bound.arena = context_->device().Allocate(plan.bytes).value();
    BindMemory(bound.graph, plan, bound.arena.data());
    Result<BoundSteps> steps = dispatch_->BindSteps(bound.graph);
    if (!steps) {
      ADD_FAILURE() << steps.error().message;
      return bound;
    }
    bound.steps = *std::move(steps);
    bound.found = FindChains(bound.graph, bound.steps.steps);
    return bound;
  }

  test::TempDir folder_;
  std::shared_ptr<ElfCompiler> compiler_ = std::make_shared<ElfCompiler>();
  std::unique_ptr<Context> context_;
  std::unique_ptr<DeviceDispatch> dispatch_;
};

/// The graph of a pass of a small Llama in which every row has logits.
class CudaChainsOfModel : public CudaChains {
 protected:
  Graph PassOf(const std::string& path, std::int32_t rows) {
    ModelOptions model_options;
    model_options.packer = dispatch_.get();
    model_options.device = &context_->device();
    model_ = Model::Load(path, model_options).value();
    SessionOptions options = context_->DefaultSession();
    options.chains = Chains::kOff;
    options.context = 128;
    options.slots = rows;
    session_ = Session::Create(*model_, *dispatch_, options).value();
    return *session_->GraphFor(rows, rows).value();
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;
};

/// What stands in the place of `args`, a line each.
std::string Text(const GemmArgs& args) {
  return std::string(args.prologue == Prologue::kRmsNorm ? "norm " : "") +
         (args.epilogue == Epilogue::kGatedSilu ? "gated " : "") +
         (args.beta == 1 ? "added" : "alone");
}

TEST_F(CudaChainsOfModel, are_a_layers_products_from_o_to_the_next_layers_qkv) {
  const std::string path = test::WriteTiny(folder_, "llama", test::WideShape(), kQ8_0);
  for (const std::int32_t rows : {16, 32, 64}) {
    SCOPED_TRACE(rows);
    const Bound bound = Bind(PassOf(path, rows));
    ASSERT_EQ(bound.found.chains.size(), 2u);
    const ProductChain& first = bound.found.chains[0];
    EXPECT_THAT(bound.NamesOf(first), ElementsAre("blk.0.attn_output", "blk.0.ffn_gate_up",
                                                  "blk.0.ffn_down", "blk.1.attn_qkv"));
    EXPECT_THAT(bound.NamesOf(bound.found.chains[1]),
                ElementsAre("blk.1.attn_output", "blk.1.ffn_gate_up", "blk.1.ffn_down"));
    const auto texts = [&](std::size_t count) {
      std::vector<std::string> all;
      for (const GemmArgs& args : first.Args(count)) all.push_back(Text(args));
      return all;
    };
    EXPECT_THAT(texts(4), ElementsAre("added", "norm gated alone", "added", "norm alone"));
    EXPECT_THAT(texts(3), ElementsAre("added", "norm gated alone", "alone"))
        << "the residual is that of the norm behind it";
    const std::vector<GemmArgs> args = first.Args(4);
    for (std::size_t i = 1; i < args.size(); ++i) EXPECT_EQ(args[i].a, args[i - 1].d);
    EXPECT_EQ(args[2].c, args[0].d) << "the sum of o is the residual of down";
    EXPECT_EQ(args[1].epsilon,
              bound.graph.node(bound.steps.steps[first.products[0].step + 1]->node).params.epsilon);
    EXPECT_EQ(bound.found.ends.front().step, 3u);
    EXPECT_THAT(bound.found.ends.front().reason.ToString(),
                HasSubstr("rope_qkv_scatter 'blk.0.v_scatter', needs a product of mul_mat "
                          "'blk.0.attn_qkv'"));
    EXPECT_THAT(bound.found.ends.back().reason.ToString(), HasSubstr("D of f32, needs bf16"));
  }
}

TEST_F(CudaChainsOfModel, are_not_of_more_rows_than_keep_the_memory_busy) {
  const std::string path = test::WriteTiny(folder_, "llama", test::WideShape(), kQ8_0);
  const Bound bound = Bind(PassOf(path, 128));
  EXPECT_TRUE(bound.found.chains.empty());
  ASSERT_FALSE(bound.found.ends.empty());
  EXPECT_THAT(bound.found.ends[0].reason.ToString(), HasSubstr("128 rows, needs at most 64"));
}

TEST_F(CudaChainsOfModel, end_where_the_type_of_the_weights_changes) {
  const std::string path = test::WriteMix(folder_, test::WideShape(), "q4_k_m");
  const Bound bound = Bind(PassOf(path, 32));
  bool ended = false;
  for (const ChainEnd& end : bound.found.ends)
    ended = ended || end.reason.have.starts_with("weights of ");
  EXPECT_TRUE(ended) << "the mix has weights of several types within a layer";
  for (const ProductChain& chain : bound.found.chains) {
    for (const ChainedProduct& product : chain.products)
      EXPECT_EQ(product.args.b_layout.type, chain.products[0].args.b_layout.type);
  }
}

/// Two products with a residual and a norm between them, x [256, 32].
class CudaChainOfTwo : public CudaChains {
 protected:
  static constexpr std::int64_t kCols = 256, kRows = 32;

  NodeId Leaf(const char* name, LeafKind kind, DataType type, std::array<std::int64_t, 4> shape) {
    const auto bytes =
        static_cast<std::size_t>(BytesOf(type, shape[0] * shape[1] * shape[2] * shape[3]));
    memory_.push_back(context_->device().Allocate(bytes).value());
    return graph_.AddLeaf(name, kind, Contiguous(memory_.back().data(), type, shape));
  }
  NodeId Product(const char* name, NodeId x, NodeId w, DataType type = kBF16) {
    return graph_.AddOp(TensorOp::kMulMat, name, {x, w}, type,
                        {graph_.node(w).out.shape[1], kRows, 1, 1});
  }
  /// From a chain of two with a residual and a norm between them.
  struct Different {
    DataType x = kBF16, sum = kBF16, second_weight = kQ8_0;
    LeafKind first_weight = LeafKind::kWeight, norm_weight = LeafKind::kWeight;
    bool keep_product = false, keep_normed = false;
    bool read_product = false, read_normed = false;
    bool no_norm = false, no_residual = false, not_behind = false, added_to_itself = false;
  };
  Bound Build(const Different& what, Reuse reuse = Reuse::kBehindNext) {
    const NodeId x = Leaf("x", LeafKind::kInput, what.x, {kCols, kRows, 1, 1});
    const NodeId residual = Leaf("residual", LeafKind::kInput, what.sum, {kCols, kRows, 1, 1});
    const NodeId first_weight = Leaf("w0", what.first_weight, kQ8_0, {kCols, kCols, 1, 1});
    const NodeId second_weight =
        Leaf("w1", LeafKind::kWeight, what.second_weight, {kCols, 2 * kCols, 1, 1});
    const NodeId gain = Leaf("gain", what.norm_weight, kF32, {kCols, 1, 1, 1});
    // In the arena, so that its memory can be given to what comes behind it.
    const NodeId inner =
        graph_.AddOp(TensorOp::kAdd, "inner", {x, x}, what.x, {kCols, kRows, 1, 1});
    const NodeId first = Product("first", inner, first_weight, what.sum);
    NodeId normed = first;
    if (!what.no_norm) {
      if (what.no_residual) {
        normed =
            graph_.AddOp(TensorOp::kRmsNorm, "norm", {first, gain}, kBF16, {kCols, kRows, 1, 1});
      } else {
        const NodeId sum =
            graph_.AddOp(TensorOp::kBuffer, "sum", {}, what.sum, {kCols, kRows, 1, 1});
        normed = graph_.AddOp(TensorOp::kAddRmsNorm, "norm",
                              {first, what.added_to_itself ? first : residual, gain, sum}, kBF16,
                              {kCols, kRows, 1, 1});
      }
    }
    const NodeId second = Product("second", what.not_behind ? x : normed, second_weight);
    graph_.node(second).keep = true;
    graph_.node(first).keep = what.keep_product;
    graph_.node(normed).keep = what.keep_normed || what.not_behind;
    const auto read = [&](NodeId id) {
      const NodeId reader =
          graph_.AddOp(TensorOp::kAdd, "reader", {id, id}, kBF16, {kCols, kRows, 1, 1});
      graph_.node(reader).keep = true;
    };
    if (what.read_product) read(first);
    if (what.read_normed) read(normed);
    return Bind(graph_, reuse);
  }
  /// Why there is no chain; "" where there is.
  std::string Why(const Different& what, Reuse reuse = Reuse::kBehindNext) {
    graph_ = Graph();
    const Bound bound = Build(what, reuse);
    if (!bound.found.chains.empty()) return "";
    return bound.found.ends.empty() ? "no product" : bound.found.ends[0].reason.ToString();
  }

  Graph graph_;
  std::vector<DeviceMemory> memory_;
};

TEST_F(CudaChainOfTwo, is_found_with_and_without_a_norm_and_a_residual) {
  EXPECT_EQ(Why({}), "");
  EXPECT_EQ(Why({.no_norm = true}), "");
  EXPECT_EQ(Why({.no_residual = true}), "");
  // What still is written may have other readers.
  EXPECT_EQ(Why({.keep_product = true, .no_residual = true}), "");
  EXPECT_EQ(Why({.read_product = true, .no_residual = true}), "");
  EXPECT_EQ(Why({.keep_product = true, .no_norm = true}), "");
}

TEST_F(CudaChainOfTwo, is_none_where_somebody_reads_what_it_does_not_write) {
  EXPECT_THAT(Why({.keep_product = true}), HasSubstr("mul_mat 'first', which is kept"));
  EXPECT_THAT(Why({.read_product = true}), HasSubstr("'first', which add 'reader' reads too"));
  EXPECT_THAT(Why({.keep_normed = true}), HasSubstr("add_rms_norm 'norm', which is kept"));
  EXPECT_THAT(Why({.added_to_itself = true}),
              HasSubstr("'first', which add_rms_norm 'norm' reads twice"));
  EXPECT_THAT(Why({.read_normed = true}), HasSubstr("'norm', which add 'reader' reads too"));
}

TEST_F(CudaChainOfTwo, is_none_of_other_types_or_of_something_else) {
  EXPECT_THAT(Why({.x = kF32, .sum = kF32}), HasSubstr("'first': A of f32, needs bf16"));
  EXPECT_THAT(Why({.sum = kF32}), HasSubstr("'first': D of f32, needs bf16"));
  EXPECT_THAT(Why({.second_weight = kQ4_K}), HasSubstr("weights of q4_k behind q8_0"));
  EXPECT_THAT(Why({.not_behind = true}), HasSubstr("'norm', needs the norm of one product's rows"));
  EXPECT_THAT(Why({.no_norm = true, .not_behind = true}), HasSubstr("a product of something else"));
}

TEST_F(CudaChainOfTwo, is_none_of_weights_that_may_change) {
  EXPECT_THAT(Why({.first_weight = LeafKind::kInput}), HasSubstr("weights that may change"));
  EXPECT_THAT(Why({.norm_weight = LeafKind::kInput}), HasSubstr("needs constant ones of f32"));
}

TEST_F(CudaChainOfTwo, is_none_of_a_kernel_that_is_pinned) {
  const Bound bound = Build({});
  ASSERT_EQ(bound.found.chains.size(), 1u);
  for (const ChainedProduct& product : bound.found.chains[0].products) {
    const PreparedStep& step = *bound.steps.steps[product.step];
    const auto problem = dispatch_->ProblemOf<GemmOp>(bound.graph, bound.graph.node(step.node));
    ASSERT_TRUE(problem);
    Pins pins;
    pins.by_problem[{"gemm", KeyOf(*problem)}] = {step.kernel, step.spec};
    dispatch_ = context_->MakeDispatch(Precision::kAuto, Guarantee::kFastest, &pins);
    EXPECT_THAT(Why({}), HasSubstr("'" + bound.NameOf(product) + "': a kernel that is pinned"));
    dispatch_ = context_->MakeDispatch();
  }
}

/// The sum is written by the product now, all of whose CTAs read the activations.
TEST_F(CudaChainOfTwo, is_none_where_the_sum_lies_in_the_memory_of_the_activations) {
  EXPECT_THAT(Why({}, Reuse::kAtOnce), HasSubstr("a result in the memory of the activations"));
}

/// A model with products large enough for a k-tile on every multiprocessor, and its passes of 32 rows.
class CudaChainedPasses : public CudaChains {
 protected:
  static constexpr std::int32_t kSlots = 32;

  CudaChainedPasses() {
    fake_.SetKernels([this](const cuda::FakeCuda::Launch& launch) {
      ++launches_;
      if (!launch.cooperative) return 0;
      cuda::GemmChainParams params;
      static_assert(sizeof params <= sizeof launch.params);
      std::memcpy(&params, launch.params.data(), sizeof params);
      chains_.push_back(params.count);
      EXPECT_GT(params.wait_ns, 0u);
      if (gives_up_ || std::exchange(gives_up_once_, false)) {
        *params.alarm = 1;
        gave_up_ = true;
      }
      EXPECT_TRUE(gave_up_ || *params.alarm == 0);
      return 0;
    });
    SynthShape shape = test::WideShape();
    shape.hidden = shape.ffn = 2560;
    shape.heads = 20;
    shape.kv_heads = 4;
    shape.head_dim = 128;
    path_ = test::WriteTiny(folder_, "large", shape, kQ8_0);
    ModelOptions model_options;
    model_options.packer = dispatch_.get();
    model_options.device = &context_->device();
    model_ = Model::Load(path_, model_options).value();
  }
  ~CudaChainedPasses() override {
    fake_.SetKernels({});
    fake_.SetLaunchTimes({});
  }

  std::unique_ptr<Session> MakeSession(Chains chains, std::int32_t page_size = 0) {
    SessionOptions options = context_->DefaultSession();
    if (page_size > 0) options.page_size = page_size;
    EXPECT_EQ(options.chains, Chains::kRace);
    options.chains = chains;
    options.context = 128;
    options.slots = kSlots;
    return Session::Create(*model_, *dispatch_, options).value();
  }
  /// A pass of a token of each sequence; how many products each of its chains had.
  std::vector<int> Pass(Session& session, std::int32_t position, std::int32_t rows = kSlots) {
    std::vector<Row> batch;
    for (std::int32_t slot = 0; slot < rows; ++slot) batch.push_back({1, position, slot, true});
    chains_.clear();
    launches_ = 0;
    const auto best = session.ForwardTop(batch, 1);
    error_ = best ? "" : best.error().message;
    return chains_;
  }

  std::string path_, error_;
  std::unique_ptr<Model> model_;
  std::vector<int> chains_;
  int launches_ = 0;
  bool gives_up_ = false;
  bool gives_up_once_ = false;  ///< the next chain that runs, which is when somebody waits for it
  bool gave_up_ = false;
};

TEST_F(CudaChainedPasses, launch_each_chain_once) {
  const auto separate = MakeSession(Chains::kOff), chained = MakeSession(Chains::kOn);
  for (int position = 0; position < 4; ++position) {
    EXPECT_THAT(Pass(*separate, position), ElementsAre());
    const int apart = launches_;
    fake_.StartCounting();
    EXPECT_THAT(Pass(*chained, position), ElementsAre(4, 3)) << error_;
    if (position > 1) {
      EXPECT_EQ(fake_.calls("cuGraphLaunch"), 1u);
      for (const char* rare : {"cuLaunchKernelEx", "cuMemAlloc", "cuMemHostAlloc", "cuMemFree",
                               "cuModuleLoadDataEx", "cuEventCreate"}) {
        EXPECT_EQ(fake_.calls(rare), 0u) << rare;
      }
    }
    // Of the first chain three products and two norms have no launch of their own any more, of the second
    // two and one.
    EXPECT_EQ(launches_, apart - 8) << "position " << position;
  }
  EXPECT_TRUE(chained->chain_verdicts().empty()) << "there is no race";
}

TEST_F(CudaChainedPasses, are_the_faster_ones_of_the_first) {
  fake_.SetLaunchTimes([](const cuda::FakeCuda::Launch&) { return 10.0; });
  const auto session = MakeSession(Chains::kRace);
  int with = 0;
  constexpr int kRaced = 20;
  for (int position = 0; position < kRaced; ++position) {
    EXPECT_TRUE(session->chain_verdicts().empty());
    with += Pass(*session, position).empty() ? 0 : 1;
    EXPECT_EQ(error_, "");
  }
  EXPECT_EQ(with, kRaced / 2);
  for (int position = kRaced; position < kRaced + 5; ++position)
    EXPECT_THAT(Pass(*session, position), ElementsAre(4, 3));
  const std::vector<ChainVerdict> verdicts = session->chain_verdicts();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].rows, kSlots);
  EXPECT_TRUE(verdicts[0].chained());
  EXPECT_NEAR(verdicts[0].separate_us - verdicts[0].chained_us, 80, 0.1) << "8 launches of 10 us";
  // What is known of so many rows holds for other passes of as many, as one that finds logits.
  std::vector<Row> batch;
  for (std::int32_t slot = 0; slot < kSlots; ++slot) batch.push_back({1, kRaced + 5, slot, true});
  chains_.clear();
  ASSERT_TRUE(session->Forward(batch));
  EXPECT_THAT(chains_, ElementsAre(4, 3));
  const Result<StepTimes> times = session->TimePass(batch, 1);
  ASSERT_TRUE(times) << times.error().message;
  int timed = 0;
  for (const StepGroup& group : times->groups) {
    if (!group.kernel.starts_with("gemm_chain")) continue;
    timed += group.count;
    EXPECT_GT(group.bytes, 2 * 2560 * 2560.0) << "the weights of all its products";
    EXPECT_GT(group.ops, 2.0 * kSlots * 3 * 2560 * 2560);
  }
  EXPECT_EQ(timed, 2);
}

TEST_F(CudaChainedPasses, that_take_longer_run_no_more) {
  fake_.SetLaunchTimes(
      [](const cuda::FakeCuda::Launch& launch) { return launch.cooperative ? 51.0 : 10.0; });
  const auto session = MakeSession(Chains::kRace);
  for (int position = 0; position < 20; ++position) Pass(*session, position);
  for (int position = 20; position < 25; ++position)
    EXPECT_THAT(Pass(*session, position), ElementsAre());
  const std::vector<ChainVerdict> verdicts = session->chain_verdicts();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_FALSE(verdicts[0].chained());
  EXPECT_NEAR(verdicts[0].separate_us - verdicts[0].chained_us, 80 - 2 * 41, 0.1);
}

TEST_F(CudaChainedPasses, of_few_rows_or_with_padding_are_what_the_rows_of_the_pass_make_them) {
  const auto session = MakeSession(Chains::kRace);
  for (int position = 0; position < 3; ++position) {
    EXPECT_THAT(Pass(*session, position, 4), ElementsAre()) << "position " << position;
    EXPECT_EQ(Pass(*session, position, 20).size(), position == 1 ? 2u : 0u) << "32 with padding";
  }
}

TEST_F(CudaChainedPasses, that_were_given_up_are_an_error_once) {
  const auto session = MakeSession(Chains::kOn);
  EXPECT_THAT(Pass(*session, 0), ElementsAre(4, 3));
  EXPECT_EQ(error_, "");
  gives_up_ = true;
  Pass(*session, 1);
  EXPECT_THAT(error_, HasSubstr("gemm_chain"));
  EXPECT_THAT(error_, HasSubstr("waited more than 2 s"));
  EXPECT_THAT(error_, HasSubstr("without chains of products from now on"));
  for (int position = 1; position < 4; ++position) {
    EXPECT_THAT(Pass(*session, position), ElementsAre());
    EXPECT_EQ(error_, "");
    EXPECT_GT(launches_, 0);
  }
  EXPECT_THAT(Pass(*session, 4, 16), ElementsAre()) << "nor in passes of other rows";
}

TEST_F(CudaChainedPasses, that_were_given_up_are_an_error_of_what_was_submitted) {
  const auto session = MakeSession(Chains::kOn);
  std::vector<Row> batch;
  for (std::int32_t slot = 0; slot < kSlots; ++slot) batch.push_back({1, 0, slot, true});
  gives_up_ = true;
  ASSERT_TRUE(session->Submit(batch));
  const auto refused = session->Receive();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("waited more than 2 s"));
  ASSERT_TRUE(session->Submit(batch));
  EXPECT_TRUE(session->Receive());
}

/// The next pass is prepared anew, since the cache has moved, and the one with the alarm is gone by then.
TEST_F(CudaChainedPasses, that_were_given_up_are_an_error_though_the_next_pass_moves_the_cache) {
  constexpr int kPage = 64;
  const auto session = MakeSession(Chains::kOn, kPage);
  std::vector<Row> batch;
  for (std::int32_t slot = 0; slot < kSlots; ++slot) batch.push_back({1, 0, slot, true});
  const auto submit = [&](int position) {
    for (Row& row : batch) row.position = position;
    return session->Submit(batch);
  };
  for (int position = 0; position < kPage - 1; ++position) {
    ASSERT_TRUE(submit(position));
    ASSERT_TRUE(session->Receive());
  }
  gives_up_once_ = true;
  ASSERT_TRUE(submit(kPage - 1));
  ASSERT_TRUE(submit(kPage));
  const auto refused = session->Receive();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("waited more than 2 s"));
  EXPECT_FALSE(submit(kPage)) << "what the pass wrote into the cache is not right";
  ASSERT_TRUE(submit(kPage - 1));
  EXPECT_TRUE(session->Receive());
}

TEST_F(CudaChainedPasses, that_were_given_up_are_an_error_though_nobody_receives_them) {
  const auto session = MakeSession(Chains::kOn);
  std::vector<Row> batch;
  for (std::int32_t slot = 0; slot < kSlots; ++slot) batch.push_back({1, 0, slot, true});
  gives_up_once_ = true;
  ASSERT_TRUE(session->Submit(batch));
  Pass(*session, 1, 16);
  EXPECT_THAT(error_, HasSubstr("waited more than 2 s"));
  Pass(*session, 1, 16);
  EXPECT_THAT(error_, HasSubstr("position = 1, must be 0 to 0"));
  EXPECT_THAT(Pass(*session, 0, 16), ElementsAre());
  EXPECT_EQ(error_, "");
}

TEST_F(CudaChainedPasses, that_the_device_does_not_launch_run_without) {
  const auto session = MakeSession(Chains::kOn);
  constexpr int kTooLarge = 720;  // CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
  // Behind the embedding, norm, qkv, rotation and attention of the first layer.
  fake_.AnswerNext("cuLaunchKernelEx", kTooLarge, 5);
  EXPECT_THAT(Pass(*session, 0), ElementsAre());
  EXPECT_EQ(error_, "");
  EXPECT_GT(launches_, 5);
  EXPECT_THAT(Pass(*session, 1), ElementsAre());
  EXPECT_EQ(error_, "");
}

TEST_F(CudaChainedPasses, are_none_where_the_sums_of_separate_kernels_are_promised) {
  dispatch_ = context_->MakeDispatch(Precision::kAuto, Guarantee::kDeterministic);
  const auto session = MakeSession(Chains::kOn);
  EXPECT_THAT(Pass(*session, 0), ElementsAre());
  EXPECT_EQ(error_, "");
}

}  // namespace
}  // namespace tilewright
