// What was prepared runs without allocating, locking or reading the environment, on any thread.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "models.h"
#include "probe.h"

namespace tilewright {
namespace {

using test::LogitsOf;
using test::ProbeCounts;
using test::Runner;
using test::WriteTiny;

class SteadyPath : public test::IsaTest {
 protected:
  void SetUp() override {
    if (!test::ProbeWorks()) GTEST_SKIP() << "a sanitizer's malloc cannot be counted";
    IsaTest::SetUp();
  }
};

void ExpectNothing(const ProbeCounts& counts, const std::string& what) {
  EXPECT_EQ(counts.allocations, 0) << what;
  EXPECT_EQ(counts.locks, 0) << what;
  EXPECT_EQ(counts.environment, 0) << what;
}

TEST_F(SteadyPath, the_probe_sees_what_it_counts) {
  std::mutex mutex;
  test::StartProbe();
  auto memory = std::make_unique<std::vector<int>>(1000);
  mutex.lock();
  mutex.unlock();
  const bool set = std::getenv("TILEWRIGHT_NO_SUCH_VARIABLE") != nullptr;
  Buffer small = Buffer::Make(100);
  Buffer large = Buffer::Make(std::size_t{8} << 20);
  const ProbeCounts counts = test::StopProbe();
  EXPECT_FALSE(set);
  EXPECT_GE(counts.allocations, 4);
  EXPECT_EQ(counts.locks, 1);
  EXPECT_EQ(counts.environment, 1);
}

struct Case {
  const char* name;
  DataType quant;
  Precision activations;
  DataType kv;
  bool fuse;
  int threads;
};
constexpr Case kCases[] = {
    {"q4_1 auto", DataType::kQ4_1, Precision::kAuto, DataType::kF16, true, 2},
    {"q4_0 f32 unfused", DataType::kQ4_0, Precision::kF32, DataType::kF32, false, 2},
    {"q8_0 int8", DataType::kQ8_0, Precision::kI8, DataType::kQ8_0, true, 3},
    {"q6_k auto serial", DataType::kQ6_K, Precision::kAuto, DataType::kBF16, true, 1},
    {"bf16 bf16", DataType::kBF16, Precision::kBF16, DataType::kBF16, true, 2},
    {"f32 f32", DataType::kF32, Precision::kF32, DataType::kF32, true, 2},
};

TEST_F(SteadyPath, a_prepared_pass_allocates_locks_and_reads_nothing_from_the_first_run_on) {
  for (const Case& c : kCases) {
    SynthShape shape = test::WideShape();
    shape.rope_factor = 8;
    const std::string path = WriteTiny(folder_, std::string(DataTypeName(c.quant)), shape, c.quant);
    // Vendor libraries are counted apart: what they do inside their own calls is theirs.
    auto runner = Runner::Make(path, {.activations = c.activations,
                                      .kv = c.kv,
                                      .fuse = c.fuse,
                                      .threads = c.threads,
                                      .vendor = false});
    ASSERT_NE(runner, nullptr);
    std::vector<Row> prompt;
    for (int i = 0; i < 21; ++i) prompt.push_back({i + 3, i, 0, i == 20});
    for (const auto& [rows, wanted] : {std::pair{21, 1}, std::pair{1, 1}, std::pair{3, 0}}) {
      const auto graph = runner->session->GraphFor(rows, wanted);
      ASSERT_TRUE(graph) << graph.error().message;
    }
    const std::vector<Row> few = {{7, 21, 0, false}, {8, 22, 0, false}, {9, 23, 0, false}};
    std::vector<bool> ok;
    ok.reserve(64);
    for (int turn = 0; turn < 2; ++turn) {
      test::StartProbe();
      ok.push_back(runner->session->Forward(prompt).has_value());
      ok.push_back(runner->session->Forward(few).has_value());
      for (int position = 24; position < 48; ++position) {
        const Row row{position, position, 0, true};
        ok.push_back(runner->session->Forward(std::span(&row, 1)).has_value());
      }
      const ProbeCounts counts = test::StopProbe();
      ExpectNothing(counts, c.name + std::string(turn == 0 ? ", first run" : ", second run"));
    }
    for (const bool each : ok) EXPECT_TRUE(each) << c.name;
  }
}

TEST_F(SteadyPath, a_token_of_a_generation_allocates_nothing_but_for_buffers_that_double) {
  const std::string path = WriteTiny(folder_, "q4_1", test::WideShape(), DataType::kQ4_1);
  auto runner = Runner::Make(path, {.activations = Precision::kAuto, .vendor = false});
  ASSERT_NE(runner, nullptr);
  const std::vector<TokenId> prompt = test::RandomTokens(9, runner->model->config().vocab, 5);
  const auto allocations = [&](int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    test::StartProbe();
    const bool ok = Generate(*runner->session, prompt, {}, options).has_value();
    const ProbeCounts counts = test::StopProbe();
    EXPECT_TRUE(ok);
    return counts.allocations;
  };
  allocations(4);
  // The sampler's memory of recent tokens doubles a few times; a hundred tokens would show.
  EXPECT_LE(allocations(104) - allocations(4), 8);
}

TEST_F(SteadyPath, a_plan_runs_without_allocating) {
  const Result<DeviceSpec> device = DetectCpu();
  ASSERT_TRUE(device);
  std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  auto pool = MakeThreadPool(2);
  for (const int m : {1, 5, 64}) {
    GemmDesc desc;
    desc.m = m, desc.n = 192, desc.k = 256;
    desc.type_b = DataType::kQ8_0;
    desc.pack_b = kPackAny;
    FeasibleOptions own;
    own.providers = Bit(Provider::kOwn);
    const auto plan = Bind(
        Choose(Feasible(Validate(desc).value(), kernels->gemm(), *device, own), nullptr).value());
    ASSERT_TRUE(plan) << plan.error().message;
    const Kernel& kernel = *plan->spec().kernel;
    const MatrixLayout plain{.type = DataType::kQ8_0,
                             .order = Order::kColMajor,
                             .rows = desc.k,
                             .cols = desc.n,
                             .ld = desc.k};
    Buffer weights = Buffer::Make(BytesOf(DataType::kQ8_0, std::int64_t{desc.k} * desc.n));
    std::fill_n(weights.as<std::byte>(), weights.size(), std::byte{0});
    Buffer packed = Buffer::Make(std::max<std::size_t>(kernel.PackedBytes(plain), 64));
    if (kernel.desc().pack_b != kPackPlain) {
      ASSERT_TRUE(kernel.PackB(weights.data(), plain, packed.data(), {pool.get()}));
    }
    std::vector<float> a(static_cast<std::size_t>(m) * 256, 1.0f),
        d(static_cast<std::size_t>(m) * 192);
    GemmArgs args;
    args.a = a.data(), args.d = d.data();
    args.b = kernel.desc().pack_b != kPackPlain ? packed.data() : weights.data();
    args.a_layout = {.type = DataType::kF32, .rows = m, .cols = 256, .ld = 256};
    args.b_layout = plain;
    args.b_layout.pack = plan->problem().pack_b;
    args.d_layout = {.type = DataType::kF32, .rows = m, .cols = 192, .ld = 192};
    args.c_layout = args.d_layout;
    Buffer partials = Buffer::Make(std::max<std::size_t>(plan->partials_bytes(), 64));
    Workspace workspace;
    workspace.partials = partials.data(), workspace.partials_size = partials.size();
    test::StartProbe();
    const bool ok = tilewright::Run(*plan, args, workspace, {pool.get()}).has_value() &&
                    tilewright::Run(*plan, args, workspace, {pool.get()}).has_value();
    const ProbeCounts counts = test::StopProbe();
    ExpectNothing(counts, std::string(kernel.name()));
    EXPECT_TRUE(ok);
  }
}

TEST_F(SteadyPath, the_first_launch_of_a_vendor_kernel_allocates_no_more_than_later_ones) {
  const Result<DeviceSpec> device = DetectCpu();
  ASSERT_TRUE(device);
  const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
  FeasibleOptions vendor;
  vendor.providers = Bit(Provider::kVendor);
  int tried = 0;
  for (const int m : {1, 13, 64}) {
    GemmDesc desc;
    desc.m = m, desc.n = 192, desc.k = 256;
    const auto choice =
        Choose(Feasible(Validate(desc).value(), kernels->gemm(), *device, vendor), nullptr);
    if (!choice) continue;  // built without one, or it needs more than this level has
    ++tried;
    const auto plan = Bind(*choice);
    ASSERT_TRUE(plan) << plan.error().message;
    std::vector<float> a(static_cast<std::size_t>(m) * 256, 1.0f), b(192 * 256, 1.0f),
        d(static_cast<std::size_t>(m) * 192);
    GemmArgs args;
    args.a = a.data(), args.b = b.data(), args.d = d.data();
    args.a_layout = {.type = DataType::kF32, .rows = m, .cols = 256, .ld = 256};
    args.b_layout = {
        .type = DataType::kF32, .order = Order::kColMajor, .rows = 256, .cols = 192, .ld = 256};
    args.d_layout = {.type = DataType::kF32, .rows = m, .cols = 192, .ld = 192};
    args.c_layout = args.d_layout;
    Workspace workspace;
    long allocations[2] = {};
    for (long& count : allocations) {
      test::StartProbe();
      const bool ok = tilewright::Run(*plan, args, workspace, {}).has_value();
      count = test::StopProbe().allocations;
      EXPECT_TRUE(ok);
    }
    EXPECT_LE(allocations[0], allocations[1] + 16) << "m = " << m;
    EXPECT_LE(allocations[1], 64) << "m = " << m;
    EXPECT_EQ(d[0], 256.0f);
  }
  // None may be feasible at a capped level of instruction sets; that is no test left out.
  const auto is_vendor = [](const Kernel* k) { return k->info().provider == Provider::kVendor; };
  if (std::ranges::none_of(kernels->gemm().kernels(), is_vendor))
    GTEST_SKIP() << "built without a vendor library";
  if (device->features == DetectCpuCappedAt(Isa::kAmx).features) {
    EXPECT_GT(tried, 0);
  }
}

}  // namespace
}  // namespace tilewright
