// A context on a GPU, over a libcuda that has none behind it: how it is opened, and what is said
// where it cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "device/cuda_device_fixture.h"
#include "device/elf_compiler.h"
#include "models.h"

namespace tilewright {
namespace {

using cuda::ElfCompiler;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CudaContext : public cuda::CudaDeviceTest {
 protected:
  // A cuBLASLt that this machine may have cannot work with the fake driver.
  CudaContext() { setenv("TILEWRIGHT_CUBLASLT", (folder_ / "nowhere").c_str(), 1); }
  ~CudaContext() override { unsetenv("TILEWRIGHT_CUBLASLT"); }

  ContextOptions Options(const std::string& device = "cuda:0") {
    ContextOptions options;
    options.device = device;
    options.threads = 1;
    options.cache_dir = folder_ / "cache";
    options.cuda_library = TILEWRIGHT_FAKE_CUDA;
    options.artifacts.compiler = compiler_;
    return options;
  }
  static Error Refused(const ContextOptions& options) {
    const auto context = Context::Create(options);
    EXPECT_FALSE(context);
    return context ? Error{} : context.error();
  }

  test::TempDir folder_;
  std::shared_ptr<ElfCompiler> compiler_ = std::make_shared<ElfCompiler>();
};

TEST_F(CudaContext, is_opened_by_number_with_the_kernels_of_its_architecture) {
  const auto context = Context::Create(Options("cuda:1"));
  ASSERT_TRUE(context) << context.error().message;
  const Context& gpu = **context;
  EXPECT_EQ(gpu.device_name(), "cuda:1");
  EXPECT_EQ(gpu.device_note(), "");
  EXPECT_EQ(gpu.device_spec().kind, DeviceKind::kCuda);
  EXPECT_FALSE(gpu.calibrated());
  EXPECT_EQ(gpu.scope().device, gpu.device_spec().ClassId());
  EXPECT_EQ(gpu.scope().libraries, compiler_->identity().ToString());
  ASSERT_NE(gpu.artifacts(), nullptr);
  EXPECT_EQ(gpu.artifacts()->root(), folder_ / "cache/artifacts");
  EXPECT_GT(gpu.kernels().gemm().kernels().size(), 50u);
  gpu.kernels().ForEach([&](std::string_view, const KernelBase& kernel) {
    EXPECT_EQ(kernel.info().device, DeviceKind::kCuda) << kernel.name();
  });
  EXPECT_EQ(compiler_->compiles(), 0) << "nothing is compiled before it is bound";
  EXPECT_EQ(gpu.DefaultSession().activations, DataType::kBF16);
  EXPECT_EQ(gpu.DefaultSession().kv, DataType::kBF16);
  EXPECT_EQ(gpu.DefaultSession().logits, DataType::kF32);
}

TEST_F(CudaContext, on_the_cpu_is_what_it_was) {
  ContextOptions options = Options("cpu");
  const auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_EQ((*context)->artifacts(), nullptr);
  EXPECT_EQ((*context)->DefaultSession().activations, SessionOptions{}.activations);
  EXPECT_EQ(fake_.calls(), 0u);
}

TEST_F(CudaContext, auto_is_the_first_gpu_and_says_so) {
  const auto context = Context::Create(Options("auto"));
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cuda:0");
  EXPECT_THAT((*context)->device_note(), StartsWith("cuda:0 (NVIDIA H200"));
}

TEST_F(CudaContext, auto_is_the_cpu_where_no_gpu_works_and_says_why) {
  ContextOptions options = Options("auto");
  options.cuda_library = folder_ / "libcuda.so.1";
  auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_THAT((*context)->device_note(), StartsWith("cpu: no GPU: "));
  EXPECT_THAT((*context)->device_note(), HasSubstr("libcuda.so.1"));

  options = Options("auto");
  options.artifacts.compiler = nullptr;
  options.artifacts.nvrtc.path = folder_ / "nowhere";
  context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ((*context)->device_name(), "cpu");
  EXPECT_THAT((*context)->device_note(), HasSubstr("device cuda:0: no bundle"));
  EXPECT_THAT((*context)->device_note(), HasSubstr("device cuda:1: no bundle"));
}

TEST_F(CudaContext, a_device_that_is_not_there_is_an_error_of_one_line) {
  const auto expect = [](const Error& error, ErrorCode code, const char* words) {
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_THAT(error.message, HasSubstr(words));
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  };
  expect(Refused(Options("cuda:2")), ErrorCode::kInvalidArgument,
         "device cuda:2: GPU 2: there are 2, counted from 0");
  for (const char* name : {"cuda", "cuda:", "cuda:-1", "cuda:1x", "cuda:1000", "gpu", ""}) {
    expect(Refused(Options(name)), ErrorCode::kInvalidArgument, "must be auto, cpu or cuda:N");
  }
  ContextOptions missing = Options();
  missing.cuda_library = folder_ / "libcuda.so.1";
  expect(Refused(missing), ErrorCode::kUnavailable, "device cuda:0: ");
  ContextOptions bare = Options();
  bare.artifacts.compiler = nullptr;
  bare.artifacts.nvrtc.path = folder_ / "nowhere";
  expect(Refused(bare), ErrorCode::kUnavailable,
         "device cuda:0: no bundle has kernels for sm_90a, and there is no compiler for them");
  // A bundle for another GPU does not help, and is named.
  const auto families = AllKernelFamilies();
  ArtifactStoreOptions elsewhere;
  elsewhere.root = folder_ / "elsewhere";
  elsewhere.compiler = compiler_;
  const auto store = ArtifactStore::Open(families, elsewhere).value();
  const std::vector<KernelSpec> ampere = families.Catalog({80, 0});
  ASSERT_TRUE(WriteBundle(*store, std::span(ampere).first(2), folder_ / "ampere.twb", {}));
  bare.artifacts.bundles = {folder_ / "ampere.twb"};
  expect(Refused(bare), ErrorCode::kUnavailable, "ampere.twb has kernels for sm_80; ");
  ContextOptions no_bundle = Options();
  no_bundle.artifacts.bundles = {folder_ / "none.twb"};
  expect(Refused(no_bundle), ErrorCode::kInvalidArgument, "none.twb");
  fake_.AnswerNext("cuDevicePrimaryCtxRetain", 2);  // CUDA_ERROR_OUT_OF_MEMORY
  expect(Refused(Options()), ErrorCode::kOutOfMemory, "device cuda:0: ");
}

TEST_F(CudaContext, two_of_a_process_are_independent) {
  const auto first = Context::Create(Options("cuda:0"));
  const auto second = Context::Create(Options("cuda:1"));
  ASSERT_TRUE(first && second);
  EXPECT_NE(&(*first)->device(), &(*second)->device());
  EXPECT_NE(&(*first)->kernels(), &(*second)->kernels());
  EXPECT_NE((*first)->artifacts(), (*second)->artifacts());
}

/// A session of a model on the fake GPU, where kernels are launched and compute nothing.
struct OnFakeGpu {
  std::unique_ptr<Context> context;
  std::unique_ptr<DeviceDispatch> dispatch;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
};
OnFakeGpu Open(const ContextOptions& context_options, const std::string& path,
               const SessionOptions& options, bool fuse = true) {
  OnFakeGpu gpu;
  Result<std::unique_ptr<Context>> context = Context::Create(context_options);
  if (!context) {
    ADD_FAILURE() << context.error().message;
    return gpu;
  }
  gpu.context = std::move(*context);
  const bool f32 = options.activations == DataType::kF32;
  gpu.dispatch = gpu.context->MakeDispatch(f32 ? Precision::kF32 : Precision::kAuto);
  ModelOptions model_options;
  model_options.packer = gpu.dispatch.get();
  model_options.device = &gpu.context->device();
  model_options.fuse = fuse;
  Result<std::unique_ptr<Model>> model = Model::Load(path, model_options);
  if (!model) {
    ADD_FAILURE() << model.error().message;
    return gpu;
  }
  gpu.model = std::move(*model);
  Result<std::unique_ptr<Session>> session = Session::Create(*gpu.model, *gpu.dispatch, options);
  if (session) gpu.session = std::move(*session);
  EXPECT_TRUE(session) << session.error().message;
  return gpu;
}

TEST_F(CudaContext, every_node_of_a_llama_pass_is_bound_to_a_kernel) {
  using enum DataType;
  const SynthShape shape = test::WideShape();
  for (const DataType quant : {kBF16, kF16, kF32, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K, kQ5_0, kQ5_1,
                               kQ5_K, kQ2_K, kQ3_K, kIQ4_NL, kIQ4_XS, kMXFP4}) {
    const std::string path =
        test::WriteTiny(folder_, std::string(DataTypeName(quant)), shape, quant);
    for (const DataType activations : {kBF16, kF32, kF16}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(testing::Message() << DataTypeName(quant) << " " << DataTypeName(activations)
                                        << (fuse ? "" : ", nothing fused"));
        SessionOptions options;
        options.activations = activations;
        options.logits = kF32;
        options.kv = activations == kBF16 ? kBF16 : kF16;
        options.context = 128;
        const OnFakeGpu gpu = Open(Options(), path, options, fuse);
        ASSERT_NE(gpu.session, nullptr);
        for (const auto& [rows, wanted] : {std::pair{1, 1}, {5, 5}, {64, 1}}) {
          const auto graph = gpu.session->GraphFor(rows, wanted);
          ASSERT_TRUE(graph) << graph.error().message;
        }
      }
    }
  }
}

TEST_F(CudaContext, every_node_of_every_architecture_is_bound_to_a_kernel) {
  using enum DataType;
  for (const SynthShape& shape : SynthPresets()) {
    if (!shape.name.starts_with("tiny-test") || shape.experts > 0) continue;
    const std::string name(shape.name);
    const std::string path = test::WriteTiny(folder_, name, shape, kF32);
    for (const DataType activations : {kBF16, kF32, kF16}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(testing::Message() << name << " " << DataTypeName(activations)
                                        << (fuse ? "" : ", nothing fused"));
        SessionOptions options;
        options.activations = activations;
        options.logits = kF32;
        options.kv = activations == kBF16 ? kBF16 : kF16;
        options.context = 128;
        const OnFakeGpu gpu = Open(Options(), path, options, fuse);
        ASSERT_NE(gpu.session, nullptr);
        for (const auto& [rows, wanted] : {std::pair{1, 1}, {5, 5}, {64, 1}}) {
          const auto graph = gpu.session->GraphFor(rows, wanted);
          ASSERT_TRUE(graph) << graph.error().message;
        }
      }
    }
  }
}

TEST_F(CudaContext, products_are_posed_with_the_alignment_that_their_kernels_need) {
  const std::string path = test::WriteTiny(folder_, "posed", test::WideShape(), DataType::kQ8_0);
  SessionOptions options{.kv = DataType::kBF16,
                         .activations = DataType::kBF16,
                         .logits = DataType::kF32,
                         .context = 128};
  const OnFakeGpu gpu = Open(Options(), path, options);
  ASSERT_NE(gpu.session, nullptr);
  ASSERT_TRUE(gpu.session->GraphFor(1, 1));
  const std::vector<DecidedGemm> decided = gpu.dispatch->Decisions();
  EXPECT_FALSE(decided.empty());
  for (const DecidedGemm& product : decided) {
    // Lines of 8 and 16 blocks of 34 bytes.
    EXPECT_EQ(product.plan.problem().align_a, 4) << KeyOf(product.plan.problem());
    EXPECT_EQ(product.plan.problem().align_b, 4) << KeyOf(product.plan.problem());
    EXPECT_THAT(std::string(product.plan.kernel().name()), StartsWith("gemv_int8."));
  }
}

TEST_F(CudaContext, a_pass_that_was_prepared_only_moves_its_inputs_and_launches) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(folder_, "steady", shape, DataType::kQ4_K);
  SessionOptions options{.kv = DataType::kBF16,
                         .activations = DataType::kBF16,
                         .logits = DataType::kF32,
                         .context = 128};
  const OnFakeGpu gpu = Open(Options(), path, options);
  ASSERT_NE(gpu.session, nullptr);
  const auto pass = [&](int position) {
    const Row row{1, position, 0, true};
    const auto logits = gpu.session->Forward(std::span(&row, 1));
    ASSERT_TRUE(logits) << logits.error().message;
    ASSERT_EQ(logits->size(), static_cast<std::size_t>(shape.vocab));
  };
  pass(0);
  const int compiled = compiler_->compiles();
  EXPECT_GT(compiled, 0);
  for (int position = 1; position < 5; ++position) {
    fake_.StartCounting();
    pass(position);
    // The second run captures the launches, which are replayed as one from then on.
    const std::size_t launches = fake_.calls("cuLaunchKernelEx");
    if (position == 1) {
      // A block: qkv of what it normalises, attention that turns its row and fills the cache,
      // o with the sum, gate and up of what they normalise with silu, down with the sum.
      // Then the embedding, and the logits of what they normalise.
      EXPECT_EQ(launches, static_cast<std::size_t>(5 * shape.layers + 2));
    } else {
      EXPECT_EQ(launches, 0u);
    }
    EXPECT_EQ(fake_.calls("cuStreamBeginCapture"), position == 1 ? 1u : 0u);
    EXPECT_EQ(fake_.calls("cuGraphLaunch"), 1u);
    for (const char* rare : {"cuMemAlloc", "cuMemHostAlloc", "cuMemFree", "cuModuleLoadDataEx",
                             "cuTensorMapEncodeTiled", "cuModuleGetFunction"}) {
      EXPECT_EQ(fake_.calls(rare), 0u) << rare;
    }
    EXPECT_EQ(fake_.calls("cuStreamSynchronize"), 1u) << "for the logits";
  }
  EXPECT_EQ(compiler_->compiles(), compiled);
}

TEST_F(CudaContext, a_pass_that_goes_on_from_the_one_in_front_is_one_launch) {
  const SynthShape shape = test::WideShape();
  const std::string path = test::WriteTiny(folder_, "ahead", shape, DataType::kQ4_K);
  const SessionOptions options{.kv = DataType::kBF16,
                               .activations = DataType::kBF16,
                               .logits = DataType::kF32,
                               .context = 256,
                               .slots = 4,
                               .page_size = 64};
  const OnFakeGpu gpu = Open(Options(), path, options);
  ASSERT_NE(gpu.session, nullptr);
  std::vector<Row> rows = {{1, 0, 0, true}, {2, 0, 2, true}, {3, 0, 1, true}, {4, 0, 3, true}};
  const auto go_on = [&] {
    for (Row& row : rows) row = {kBestOfLast, row.position + 1, row.slot, true};
    const Status submitted = gpu.session->Submit(rows);
    ASSERT_TRUE(submitted) << submitted.error().message;
  };
  ASSERT_TRUE(gpu.session->Submit(rows));
  go_on();  // is captured
  const auto received = [&] { return gpu.session->Receive().has_value(); };
  while (rows[0].position < 100) {
    ASSERT_TRUE(received());
    fake_.StartCounting();
    go_on();
    // The cache grows by a page, for which the pass is prepared and, the time after, captured again.
    const std::int32_t beyond = rows[0].position - options.page_size;
    if (beyond == 0 || beyond == 1) continue;
    EXPECT_EQ(fake_.calls("cuGraphLaunch"), 1u) << rows[0].position;
    EXPECT_EQ(fake_.calls("cuEventRecord"), 1u);
    for (const char* other : {"cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
                              "cuStreamSynchronize", "cuLaunchKernelEx"}) {
      EXPECT_EQ(fake_.calls(other), 0u) << other << ", position " << rows[0].position;
    }
  }
  // Other rows than those in front are sent.
  rows.pop_back();
  ASSERT_TRUE(received());
  fake_.StartCounting();
  go_on();
  EXPECT_EQ(fake_.calls("cuMemcpyHtoDAsync"), 1u);
  while (received()) continue;
}

TEST_F(CudaContext, kernels_that_are_compiled_are_told_one_by_one) {
  const std::string path = test::WriteTiny(folder_, "told", test::WideShape(), DataType::kQ8_0);
  ContextOptions options = Options();
  int told = 0;
  options.artifacts.on_compiled = [&told](const KernelSpec& spec, double ms) {
    ++told;
    EXPECT_EQ(spec.arch, (CudaArch{90, 'a'}));
    EXPECT_GT(ms, 0);
  };
  SessionOptions session_options{.kv = DataType::kBF16,
                                 .activations = DataType::kBF16,
                                 .logits = DataType::kF32,
                                 .context = 128};
  for (const bool warm : {false, true}) {
    const int before = told;
    const OnFakeGpu gpu = Open(options, path, session_options);
    ASSERT_NE(gpu.session, nullptr);
    const auto graph = gpu.session->GraphFor(1, 1);
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_EQ(told > before, !warm);
    EXPECT_EQ(told, compiler_->compiles());
  }
}

/// A prompt, its tokens one by one and several sequences at once, greedy and drawing: the first
/// error.
Status Serve(Session& session, int slots) {
  std::vector<Row> prompt, batch;
  for (int position = 0; position < 64; ++position)
    prompt.push_back({1, position, 0, position == 63});
  for (int slot = 1; slot < slots; ++slot) batch.push_back({1, 0, slot, true});
  const Row next{1, 64, 0, true};
  if (auto logits = session.Forward(prompt); !logits) return Fail(logits.error());
  for (const int top : {1, 40}) {
    if (auto best = session.ForwardTop(std::span(&next, 1), top); !best) return Fail(best.error());
    if (auto best = session.ForwardTop(batch, top); !best) return Fail(best.error());
  }
  return {};
}

TEST_F(CudaContext, with_only_the_bundle_of_its_model_compiles_nothing) {
  using enum DataType;
  constexpr int kSlots = 9;
  const CudaArch hopper{90, 'a'};
  for (const DataType quant : {kQ4_K, kQ8_0, kBF16}) {
    SCOPED_TRACE(DataTypeName(quant));
    const std::string name(DataTypeName(quant));
    const std::string path = test::WriteTiny(folder_, name, test::WideShape(), quant);
    const Result<ModelKernels> needed = KernelsOfModel(GgufFile::Open(path).value(), hopper);
    ASSERT_TRUE(needed) << needed.error().message;
    EXPECT_THAT(needed->unserved, testing::IsEmpty());
    EXPECT_LT(needed->specs.size(), AllKernelFamilies().Catalog(hopper).size() / 3);
    ArtifactStoreOptions making;
    making.root = folder_ / ("store_" + name);
    making.compiler = compiler_;
    const auto store = ArtifactStore::Open(AllKernelFamilies(), making).value();
    const std::string bundle = folder_ / (name + ".twb");
    ASSERT_TRUE(WriteBundle(*store, needed->specs, bundle, {}));
    for (const DataType activations : {kBF16, kF32}) {
      ContextOptions options = Options();
      options.cache_dir = folder_ / ("cache_" + name + std::string(DataTypeName(activations)));
      options.artifacts.bundles = {bundle};
      std::vector<std::string> missing;
      options.artifacts.on_compiled = [&missing](const KernelSpec& spec, double) {
        missing.push_back(SpecName(spec));
      };
      SessionOptions session;
      session.kv = kBF16, session.activations = activations, session.logits = kF32;
      session.slots = kSlots;
      const OnFakeGpu gpu = Open(options, path, session);
      ASSERT_NE(gpu.session, nullptr);
      const Status served = Serve(*gpu.session, kSlots);
      EXPECT_TRUE(served) << served.error().message;
      EXPECT_THAT(missing, testing::IsEmpty()) << DataTypeName(activations);
    }
  }
}

TEST_F(CudaContext, weights_that_do_not_fit_say_what_is_free) {
  const std::string path = test::WriteTiny(folder_, "large", test::WideShape(), DataType::kF32);
  const auto context = Context::Create(Options());
  ASSERT_TRUE(context) << context.error().message;
  ModelOptions options;
  options.device = &(*context)->device();
  fake_.AnswerNext("cuMemAlloc", 2);  // CUDA_ERROR_OUT_OF_MEMORY
  const auto model = Model::Load(path, options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(model.error().message, StartsWith("the weights need "));
  EXPECT_THAT(model.error().message, HasSubstr(" are free"));
}

/// Passes of one row after another; the first error.
Status Talk(Session& session, int rows) {
  for (int position = 0; position < rows; ++position) {
    const Row row{1, position, 0, true};
    if (auto logits = session.Forward(std::span(&row, 1)); !logits) return Fail(logits.error());
  }
  return {};
}

TEST_F(CudaContext, two_gpus_run_at_once_each_with_modules_of_its_own_and_one_may_be_lost) {
  const std::string path = test::WriteTiny(folder_, "two", test::WideShape(), DataType::kQ4_0);
  SessionOptions options{.kv = DataType::kBF16,
                         .activations = DataType::kBF16,
                         .logits = DataType::kF32,
                         .context = 128};
  // Launches are refused in another context than that of their module, and so are streams.
  const OnFakeGpu gpus[] = {Open(Options("cuda:0"), path, options),
                            Open(Options("cuda:1"), path, options)};
  ASSERT_TRUE(gpus[0].session != nullptr && gpus[1].session != nullptr);
  constexpr int kRows = 40;
  const auto both = [&](std::array<Status, 2>& results) {
    std::thread other([&] { results[1] = Talk(*gpus[1].session, kRows); });
    results[0] = Talk(*gpus[0].session, kRows);
    other.join();
  };
  std::array<Status, 2> results;
  both(results);
  EXPECT_TRUE(results[0]) << results[0].error().message;
  EXPECT_TRUE(results[1]) << results[1].error().message;

  fake_.AnswerNext("cuGraphLaunch", 700);  // CUDA_ERROR_ILLEGAL_ADDRESS
  const Row row{1, kRows, 0, true};
  ASSERT_FALSE(gpus[0].session->Forward(std::span(&row, 1)));
  both(results);
  ASSERT_FALSE(results[0]);
  EXPECT_THAT(results[0].error().message, HasSubstr("GPU 0 (NVIDIA H200) is lost"));
  EXPECT_TRUE(results[1]) << results[1].error().message;
}

TEST_F(CudaContext, rates_are_measured_when_asked_for_kept_and_used_until_they_are_measured_anew) {
  const DeviceRates peak = (*Context::Create(Options()))->device_spec();
  // A board that takes 1.25 times as long as its clocks allow, and longer where this one is slow.
  std::atomic<int> reads{0}, products{0};
  fake_.SetKernels([&](const cuda::FakeCuda::Launch& launch) {
    const bool reading = launch.symbol.find("gemv") != std::string::npos;
    ++(reading ? reads : products);
    const double us = reading ? 16 * (60 << 20) / (peak.read_gb_s * 1e3)
                              : 2.0 * 4096 * 4096 * 4096 / (peak.bf16_gflop_s * 1e3);
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(1.25 * us));
    return 0;
  });
  ContextOptions options = Options();
  options.calibration = Calibration::kMissing;
  auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_THAT((*context)->warnings(), testing::IsEmpty());
  EXPECT_TRUE((*context)->calibrated());
  EXPECT_GT(reads, 0);
  EXPECT_GT(products, 0);
  const DeviceRates measured = (*context)->device_spec();
  EXPECT_LT(measured.read_gb_s, peak.read_gb_s / 0.9 / 1.25 * 1.001);
  EXPECT_LT(measured.bf16_gflop_s, peak.bf16_gflop_s / 0.73 / 1.25 * 1.001);
  EXPECT_EQ(measured.f32_gflop_s, peak.f32_gflop_s);
  EXPECT_EQ(measured.i8_gop_s, peak.i8_gop_s);

  const int before = reads;
  for (const Calibration kept : {Calibration::kStored, Calibration::kMissing}) {
    options.calibration = kept;
    context = Context::Create(options);
    ASSERT_TRUE(context);
    EXPECT_TRUE((*context)->calibrated());
    EXPECT_EQ(static_cast<const DeviceRates&>((*context)->device_spec()), measured);
    EXPECT_EQ(reads, before) << "nothing is measured again";
  }
  // What no board does is not believed: here everything takes no time at all.
  fake_.SetKernels({});
  options.calibration = Calibration::kAlways;
  options.cache_dir = folder_ / "another";
  context = Context::Create(options);
  ASSERT_TRUE(context);
  ASSERT_EQ((*context)->warnings().size(), 1u);
  EXPECT_THAT((*context)->warnings()[0], HasSubstr("its rates were not measured: read_gb_s: "));
  EXPECT_FALSE((*context)->calibrated());
  EXPECT_EQ(static_cast<const DeviceRates&>((*context)->device_spec()), peak);
  options.calibration = Calibration::kMissing;
  options.cache_mode = CacheMode::kReadonly;
  context = Context::Create(options);
  ASSERT_TRUE(context);
  EXPECT_THAT((*context)->warnings(), testing::IsEmpty()) << "readonly measures nothing";
}

TEST_F(CudaContext, the_vendor_library_is_a_candidate_that_only_this_machine_may_lack) {
  const auto context = Context::Create(Options());
  ASSERT_TRUE(context);
  const Kernel* here = (*context)->kernels().gemm().Find("gemm.any_any_any.xx.cublaslt.any.plain");
  ASSERT_NE(here, nullptr);
  const auto rejected = here->CheckDevice((*context)->device_spec());
  ASSERT_TRUE(rejected);
  EXPECT_THAT(rejected->ToString(), HasSubstr("no cuBLASLt here ($TILEWRIGHT_CUBLASLT: "));
  // As an H200 elsewhere would have it.
  const auto kernels = MakeCudaKernels(*(*context)->artifacts(), {90, 'a'}).value();
  EXPECT_FALSE(kernels->gemm().Find(here->name())->CheckDevice((*context)->device_spec()));
}

}  // namespace
}  // namespace tilewright
