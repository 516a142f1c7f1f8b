// What may be shared between threads, and which threads there are. CI runs this under TSan.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "core/test_executor.h"
#include "models.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::RandomTokens;
using test::Runner;
using test::WriteTiny;

/// Threads of this process. One that was joined may still be listed for a moment; the kernel marks
/// it as exiting (PF_EXITING, proc(5)) before it lets the join return, and it is not counted.
int ThreadCount() {
  constexpr unsigned long kExiting = 4;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    if (!std::getline(std::ifstream(entry.path() / "stat"), stat)) continue;
    // After the name in parentheses: state, five numbers, flags.
    std::istringstream words(stat.substr(stat.rfind(')') + 1));
    std::string word;
    for (int i = 0; i < 6; ++i) words >> word;
    if (unsigned long flags = 0; words >> flags && (flags & kExiting) == 0) ++count;
  }
  return count;
}

/// The caller's allocator: counts, and refuses beyond `limit` bytes.
class CountingAllocator final : public Allocator {
 public:
  explicit CountingAllocator(std::size_t limit = SIZE_MAX) : limit_(limit) {}
  void* Allocate(std::size_t bytes, std::size_t alignment) override {
    if (held_ + bytes > limit_) return nullptr;
    void* memory = DefaultAllocator().Allocate(bytes, alignment);
    if (memory == nullptr) return nullptr;
    held_ += bytes;
    most_ = std::max(most_.load(), held_.load());
    ++blocks_;
    return memory;
  }
  void Free(void* memory, std::size_t bytes) override {
    held_ -= bytes;
    --blocks_;
    DefaultAllocator().Free(memory, bytes);
  }
  std::size_t held() const { return held_; }
  std::size_t most() const { return most_; }
  int blocks() const { return blocks_; }

 private:
  std::size_t limit_;
  std::atomic<std::size_t> held_{0}, most_{0};
  std::atomic<int> blocks_{0};
};

/// A packed GEMM of 32 rows with everything it needs; `fill` makes the activations differ.
struct Product {
  GemmPlan plan;
  const Buffer* weights;
  std::vector<float> a, d;
  Buffer partials;

  Product(const GemmPlan& bound, const Buffer& packed, float fill) : plan(bound), weights(&packed) {
    const GemmDesc& p = plan.problem();
    a.resize(static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.k));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = fill + static_cast<float>(i % 7);
    d.resize(static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n));
    partials = Buffer::Make(std::max<std::size_t>(plan.partials_bytes(), 64));
  }
  Status Launch(Stream stream) {
    const GemmDesc& p = plan.problem();
    GemmArgs args;
    args.a = a.data(), args.b = weights->data(), args.d = d.data();
    args.a_layout = {.type = p.type_a, .rows = p.m, .cols = p.k, .ld = p.k};
    args.b_layout = {.type = p.type_b,
                     .order = Order::kColMajor,
                     .rows = p.k,
                     .cols = p.n,
                     .ld = p.k,
                     .pack = p.pack_b};
    args.d_layout = args.c_layout = {.type = p.type_c, .rows = p.m, .cols = p.n, .ld = p.n};
    Workspace workspace;
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    std::fill(d.begin(), d.end(), -1.0f);
    return Run(plan, args, workspace, stream);
  }
};

TEST(Threads, two_run_one_plan_with_two_workspaces) {
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  const DeviceSpec device = DetectCpu().value();
  for (const DataType type : {DataType::kF32, DataType::kQ4_1, DataType::kQ8_0, DataType::kQ6_K}) {
    GemmDesc desc;
    desc.m = 32, desc.n = 96, desc.k = 512, desc.type_b = type, desc.pack_b = kPackAny;
    FeasibleOptions own;
    own.providers = Bit(Provider::kOwn);
    const GemmCandidates candidates =
        Feasible(Validate(desc).value(), kernels->gemm(), device, own);
    const GemmPlan plan = Bind(Choose(candidates, nullptr).value()).value();
    const Kernel& kernel = *plan.spec().kernel;
    const MatrixLayout plain{
        .type = type, .order = Order::kColMajor, .rows = desc.k, .cols = desc.n, .ld = desc.k};
    Buffer weights = Buffer::Make(BytesOf(type, std::int64_t{desc.k} * desc.n));
    // 0x3c3c is a small positive number as f16, f32 and q-block alike.
    std::memset(weights.data(), 0x3c, weights.size());
    if (kernel.desc().pack_b != kPackPlain) {
      Buffer packed = Buffer::Make(kernel.PackedBytes(plain));
      ASSERT_TRUE(kernel.PackB(weights.data(), plain, packed.data(), {}));
      weights = std::move(packed);
    }
    std::vector<Product> products;
    products.emplace_back(plan, weights, 1.0f);
    products.emplace_back(plan, weights, -2.5f);
    std::vector<std::vector<float>> want;
    for (Product& product : products) {
      auto pool = MakeThreadPool(2);
      ASSERT_TRUE(product.Launch({pool.get()}));
      want.push_back(product.d);
    }
    EXPECT_NE(want[0], want[1]);
    std::atomic<int> failures{0};
    auto work = [&](int which) {
      auto pool = MakeThreadPool(2);
      for (int turn = 0; turn < 20; ++turn) {
        Product& product = products[static_cast<std::size_t>(which)];
        if (!product.Launch({pool.get()}) || product.d != want[static_cast<std::size_t>(which)])
          ++failures;
      }
    };
    std::thread first(work, 0), second(work, 1);
    first.join();
    second.join();
    EXPECT_EQ(failures, 0) << kernel.name();
  }
}

TEST(Threads, two_sessions_on_two_threads_share_a_model_and_a_context) {
  test::TempDir folder;
  const std::string path = WriteTiny(folder, "q4_1", test::TinyShape(), DataType::kQ4_1);
  auto runner = Runner::Make(path, {.activations = Precision::kAuto, .vendor = false});
  ASSERT_NE(runner, nullptr);
  const int vocab = runner->model->config().vocab;
  std::vector<std::vector<TokenId>> tokens = {RandomTokens(20, vocab, 1),
                                              RandomTokens(20, vocab, 2)};
  std::vector<std::vector<float>> want;
  for (const auto& each : tokens) {
    std::vector<float> logits = LogitsOf(*runner->session, std::span(each).first(12), 0, 0, 12);
    for (const float x : LogitsOf(*runner->session, std::span(each).subspan(12), 0, 12, 1))
      logits.push_back(x);
    want.push_back(logits);
  }
  // An executor serves one caller at a time, so each thread has its own; everything else is shared.
  std::vector<std::vector<float>> got(2);
  auto work = [&](std::size_t which) {
    auto pool = MakeThreadPool(2);
    DispatchOptions options;
    options.activations = Precision::kAuto;
    options.feasible = runner->context->feasible_options();
    options.tuned = runner->context->tuned();
    const std::unique_ptr<Device> device = MakeCpuDevice(
        runner->context->device_spec(), {.executor = pool.get(), .allocator = nullptr});
    DeviceDispatch dispatch(runner->context->kernels(), *device, options);
    SessionOptions session_options;
    session_options.kv = DataType::kF32;
    session_options.context = 128;
    auto session = Session::Create(*runner->model, dispatch, session_options);
    ASSERT_TRUE(session) << session.error().message;
    got[which] = LogitsOf(**session, std::span(tokens[which]).first(12), 0, 0, 12);
    for (const float x : LogitsOf(**session, std::span(tokens[which]).subspan(12), 0, 12, 1))
      got[which].push_back(x);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  EXPECT_EQ(got[0], want[0]);
  EXPECT_EQ(got[1], want[1]);
}

TEST(Threads, none_is_started_when_the_caller_brings_an_executor) {
  test::TempDir folder;
  const std::string path = WriteTiny(folder, "q4_1", test::TinyShape(), DataType::kQ4_1);
  const int before = ThreadCount();
  test::CallersThread executor(3);
  ContextOptions options;
  options.executor = &executor;
  options.cache_mode = CacheMode::kRefresh;
  // oneDNN keeps threads of its own, which the library does not start by itself either.
  options.providers = Bit(Provider::kOwn);
  auto context = Context::Create(options);
  ASSERT_TRUE(context) << context.error().message;
  EXPECT_EQ(ThreadCount(), before);
  EXPECT_EQ(&(*context)->executor(), &executor);
  EXPECT_EQ((*context)->device_spec().cores, 3);
  auto dispatch = (*context)->MakeDispatch();
  ModelOptions model_options;
  model_options.packer = dispatch.get();
  model_options.executor = &executor;
  auto model = Model::Load(path, model_options);
  ASSERT_TRUE(model) << model.error().message;
  auto session = Session::Create(**model, *dispatch, {});
  ASSERT_TRUE(session) << session.error().message;
  const int calls = executor.calls();
  const std::vector<TokenId> prompt = RandomTokens(40, (*model)->config().vocab, 1);
  GenerateOptions generate;
  generate.max_tokens = 4;
  ASSERT_TRUE(Generate(**session, prompt, {}, generate));
  EXPECT_EQ(ThreadCount(), before);
  EXPECT_GT(executor.calls(), calls) << "the work went through the caller's executor";
  EXPECT_GT(executor.tasks(), executor.calls()) << "some of it in several tasks";
}

TEST(Threads, a_context_starts_as_many_as_were_asked_for_and_ends_them) {
  const int before = ThreadCount();
  {
    ContextOptions options;
    options.threads = 3;
    options.cache_mode = CacheMode::kRefresh;
    auto context = Context::Create(options);
    ASSERT_TRUE(context) << context.error().message;
    EXPECT_EQ((*context)->executor().workers(), 3);
    EXPECT_EQ(ThreadCount(), before + 2);
  }
  EXPECT_EQ(ThreadCount(), before);
}

/// The CPU with the caller's memory.
std::unique_ptr<Device> DeviceOver(Allocator& allocator) {
  return MakeCpuDevice(DetectCpu().value(), {.executor = nullptr, .allocator = &allocator});
}

TEST(CallersAllocator, gives_every_buffer_and_gets_every_one_back) {
  test::TempDir folder;
  const SynthShape shape = test::WideShape();
  const std::string path = WriteTiny(folder, "q4_1", shape, DataType::kQ4_1);
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  CountingAllocator weights, rest;
  {
    const std::unique_ptr<Device> for_weights = DeviceOver(weights), device = DeviceOver(rest);
    DispatchOptions options;
    options.feasible.providers = Bit(Provider::kOwn);
    DeviceDispatch dispatch(*kernels, *device, options);
    ModelOptions model_options;
    model_options.packer = &dispatch;
    model_options.device = for_weights.get();
    auto model = Model::Load(path, model_options);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(weights.blocks(), 1) << "one block for all packed weights, staging given back";
    std::size_t matrices = 0;
    for (const GgufTensor& tensor : (*model)->file().tensors()) {
      if (tensor.dims == 2) matrices += tensor.bytes;
    }
    EXPECT_GE(weights.held(), matrices);
    EXPECT_LE(weights.held(), matrices * 3 / 2);
    EXPECT_EQ(rest.blocks(), 0);

    SessionOptions session_options;
    session_options.context = 64;
    auto session = Session::Create(**model, dispatch, session_options);
    ASSERT_TRUE(session) << session.error().message;
    EXPECT_EQ((*session)->kv_bytes(), 0) << "no position is held yet";
    ASSERT_FALSE(LogitsOf(**session, RandomTokens(33, shape.vocab, 1), 0, 0, 33).empty());
    ASSERT_EQ((*session)->kv_bytes(),
              std::int64_t{64} * 2 * shape.layers * shape.kv_heads * shape.head_dim * 2);
    EXPECT_GT(rest.held(), static_cast<std::size_t>((*session)->kv_bytes()));
    EXPECT_GE(rest.blocks(), shape.layers + 3) << "cache, inputs, activations and scratch";
  }
  EXPECT_EQ(weights.blocks() + rest.blocks(), 0);
  EXPECT_EQ(weights.held() + rest.held(), 0u);
}

/// Of all weights of a model, as the CPU dispatch packs them.
std::size_t PackedBytes(const std::string& path, const Kernels& kernels) {
  CountingAllocator allocator;
  const std::unique_ptr<Device> device = DeviceOver(allocator);
  DispatchOptions options;
  options.feasible.providers = Bit(Provider::kOwn);
  DeviceDispatch dispatch(kernels, *device, options);
  ModelOptions model_options;
  model_options.packer = &dispatch;
  model_options.device = device.get();
  const auto model = Model::Load(path, model_options);
  return model ? allocator.most() : 0;
}

TEST(CallersAllocator, that_refuses_makes_an_error_wherever_it_refuses) {
  test::TempDir folder;
  const SynthShape shape = test::WideShape();
  const std::string path = WriteTiny(folder, "q4_1", shape, DataType::kQ4_1);
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  const std::vector<TokenId> prompt = RandomTokens(40, shape.vocab, 1);
  std::set<std::string> seen;
  // The weights are one block and come first; from there on in small steps, so that each of the
  // others is refused once.
  std::size_t limit = 0;
  bool ran = false;
  while (!ran && limit < (std::size_t{64} << 20)) {
    CountingAllocator allocator(limit);
    const std::unique_ptr<Device> device = DeviceOver(allocator);
    DispatchOptions options;
    options.feasible.providers = Bit(Provider::kOwn);
    DeviceDispatch dispatch(*kernels, *device, options);
    const auto status = [&]() -> Status {
      ModelOptions model_options;
      model_options.packer = &dispatch;
      model_options.device = device.get();
      auto model = Model::Load(path, model_options);
      if (!model) return Fail(model.error());
      SessionOptions session_options;
      session_options.context = 64;
      auto session = Session::Create(**model, dispatch, session_options);
      if (!session) return Fail(session.error());
      GenerateOptions generate;
      generate.max_tokens = 2;
      auto result = Generate(**session, prompt, {}, generate);
      if (!result) return Fail(result.error());
      return {};
    }();
    ran = status.has_value();
    if (ran) break;
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory) << status.error().message;
    EXPECT_NE(status.error().message.find_first_of("0123456789"), std::string::npos)
        << "no number in: " << status.error().message;
    seen.insert(status.error().message.substr(0, 12));
    limit = limit == 0 ? PackedBytes(path, *kernels) : limit + 4096;
  }
  EXPECT_TRUE(ran);
  EXPECT_GE(seen.size(), 3u) << "weights, KV cache and activations at least";
}

}  // namespace
}  // namespace tilewright
