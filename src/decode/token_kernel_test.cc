#include "device/cuda/kernels/cluster_emulation.h"
#include "device/cuda/kernels/launch_emulation.h"
#include "device/cuda/kernels/tagged_emulation.h"
// After them: the kernels use their built-ins.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/block_format.h"
#include "core/test_util.h"
#include "decode/families.h"
#include "decode/token_kernel.cuh"
#include "decode/token_schedule.h"
#include "ops/gemm/cuda/gemv/gemv_int8_kernel.cuh"

// The source of the kernel, run on the CPU with all its CTAs side by side: logits and caches have the bits of the
// kernels that it stands for, run one after the other.

namespace tilewright::decode {
namespace {

using tw::Epilogue;
using tw::Type;

std::size_t Size(std::int64_t count) { return static_cast<std::size_t>(count); }
constexpr DataType DataTypeOf(Type type) { return static_cast<DataType>(type); }

template <Type kBodyType, Type kOtherType, int kDim = 64, int kWarpCount = 4, int kAttention = 2,
          int kPartCount = 2, int kRing = 3>
struct Spec {
  static constexpr Type kBody = kBodyType, kOther = kOtherType;
  static constexpr int kHeadDim = kDim, kWarps = kWarpCount, kStages = kRing;
  static constexpr int kAttentionWarps = kAttention, kParts = kPartCount, kAttentionStages = 1;
  static int Cta() { return static_cast<int>(blockIdx.y); }
  static int Ctas() { return static_cast<int>(gridDim.y); }
  static KernelSpec Its() {
    KernelSpec spec = DecodeTokenSpec({90, 'a'}, DataTypeOf(kBody), DataTypeOf(kOther), kHeadDim,
                                      kAttentionWarps, kParts);
    spec.warps = kWarps;
    spec.stages = kStages;
    return spec;
  }
};

struct Sizes {
  int hidden = 512, heads = 4, kv_heads = 2, ffn = 576, vocab = 70, layers = 2;
  int context = 160, page = 0;
  int ctas = 3;
};

/// A model with random weights, and its caches.
template <class S>
class Net {
 public:
  explicit Net(const Sizes& sizes) : z(sizes) {
    for (int l = 0; l < z.layers; ++l) {
      const Type kind = l % 2 == 0 ? S::kBody : S::kOther;
      layers.push_back({Norm(),
                        Weights(S::kBody, (z.heads + 2 * z.kv_heads) * S::kHeadDim, z.hidden),
                        Weights(S::kBody, z.hidden, z.heads * S::kHeadDim), Norm(),
                        Weights(S::kBody, 2 * z.ffn, z.hidden), Weights(kind, z.hidden, z.ffn),
                        kind, Cache(), Cache()});
    }
    output_norm = Norm();
    output = Weights(S::kOther, z.vocab, z.hidden);
    for (int i = 0; i < S::kHeadDim / 2; ++i) {
      const double turns = std::pow(10000.0, -2.0 * i / S::kHeadDim) / (2 * std::numbers::pi);
      frequencies.push_back(static_cast<unsigned long long>(std::ldexp(turns, 64)));
    }
    for (int i = 0; i < Pages(); ++i) pages.push_back((i * 7 + 3) % Pages());
    embedded = std::vector<tw::u16>(Size(z.hidden));
  }
  int PageSize() const { return z.page > 0 ? z.page : z.context; }
  int Pages() const { return z.context / PageSize(); }

  void Begin(int at) {
    position = at;
    const std::vector<float> row = test::RandomFloats(Size(z.hidden), 1000 + Size(at));
    ASSERT_TRUE(EncodeRow(DataType::kBF16, row.data(), z.hidden, embedded.data()));
  }

  struct LayerOf {
    std::vector<float> attention_norm;
    test::GuardedBytes qkv, o;
    std::vector<float> ffn_norm;
    test::GuardedBytes gate_up, down;
    Type down_type;
    std::vector<tw::u16> k, v;
  };

  Matrix MatrixOf(const test::GuardedBytes& w, Type type, int n, int k) const {
    return {w.data(), DataTypeOf(type), n, k};
  }
  TokenModel Model() {
    TokenModel model;
    for (LayerOf& l : layers) {
      model.layers.push_back(
          {l.attention_norm.data(),
           MatrixOf(l.qkv, S::kBody, (z.heads + 2 * z.kv_heads) * S::kHeadDim, z.hidden),
           l.k.data(), l.v.data(), MatrixOf(l.o, S::kBody, z.hidden, z.heads * S::kHeadDim),
           l.ffn_norm.data(), MatrixOf(l.gate_up, S::kBody, 2 * z.ffn, z.hidden),
           MatrixOf(l.down, l.down_type, z.hidden, z.ffn)});
    }
    model.output_norm = output_norm.data();
    model.output = MatrixOf(output, S::kOther, z.vocab, z.hidden);
    model.epsilon = kEpsilon;
    model.head_dim = S::kHeadDim;
    model.embedded = embedded.data();
    model.logits = logits.data();
    model.attention = Attention();
    return model;
  }
  cuda::RopeAttentionParams Attention() {
    cuda::RopeAttentionParams p{};
    cuda::AttentionParams& a = p.attention;
    a.positions = &position, a.slots = &slot;
    a.pages = z.page > 0 ? pages.data() : nullptr;
    a.kv_head = S::kHeadDim;
    a.kv_position = std::int64_t{S::kHeadDim} * z.kv_heads;
    a.kv_page = a.kv_position * PageSize();
    a.pages_slot = Pages();
    a.rows = 1, a.heads = z.heads, a.kv_heads = z.kv_heads;
    a.context = z.context, a.sequences = 1;
    a.page_size = PageSize(), a.physical_pages = Pages();
    a.splits = S::kParts;
    a.scale = 1.0f / std::sqrt(static_cast<float>(S::kHeadDim));
    p.turns = frequencies.data();
    p.dims = S::kHeadDim;
    return p;
  }

  /// The kernels that the token stands for, one after the other.
  void RunApart() {
    std::vector<tw::u16> x = embedded;
    for (LayerOf& l : layers) {
      std::vector<tw::u16> qkv(Size((z.heads + 2 * z.kv_heads) * S::kHeadDim));
      Gemv<S::kBody, Type::kNone, Type::kBF16, Epilogue::kNone, true>(
          x, l.qkv, l.attention_norm, nullptr, qkv.data(), qkv.size());
      std::vector<tw::u16> attended(Size(z.heads * S::kHeadDim));
      Attend(l, qkv, attended);
      std::vector<tw::u16> middle(x.size());
      Gemv<S::kBody, Type::kBF16, Type::kBF16, Epilogue::kAdd, false>(attended, l.o, {}, x.data(),
                                                                      middle.data(), x.size());
      std::vector<tw::u16> gated(Size(z.ffn));
      Gemv<S::kBody, Type::kNone, Type::kBF16, Epilogue::kSwiGlu, true>(
          middle, l.gate_up, l.ffn_norm, nullptr, gated.data(), 2 * gated.size());
      if (l.down_type == S::kBody) {
        Gemv<S::kBody, Type::kBF16, Type::kBF16, Epilogue::kAdd, false>(
            gated, l.down, {}, middle.data(), x.data(), x.size());
      } else {
        Gemv<S::kOther, Type::kBF16, Type::kBF16, Epilogue::kAdd, false>(
            gated, l.down, {}, middle.data(), x.data(), x.size());
      }
    }
    Gemv<S::kOther, Type::kNone, Type::kF32, Epilogue::kNone, true>(x, output, output_norm, nullptr,
                                                                    logits.data(), logits.size());
  }

  static constexpr float kEpsilon = 1e-5f;
  Sizes z;
  std::vector<LayerOf> layers;
  std::vector<float> output_norm;
  test::GuardedBytes output{0};
  std::vector<unsigned long long> frequencies;
  std::vector<int> pages;
  std::vector<tw::u16> embedded;
  std::vector<float> logits = std::vector<float>(Size(z.vocab), std::nanf(""));
  int position = 0, slot = 0;

 private:
  std::vector<float> Norm() {
    std::vector<float> norm = test::RandomFloats(Size(z.hidden), ++seed_);
    for (float& w : norm) w = 1 + 0.3f * w;
    return norm;
  }
  test::GuardedBytes Weights(Type type, int n, int k) {
    test::GuardedBytes w(BytesOf(DataTypeOf(type), k) * Size(n));
    for (int r = 0; r < n; ++r) {
      std::vector<float> row = test::RandomFloats(Size(k), ++seed_);
      for (float& value : row) value *= 2 / std::sqrt(static_cast<float>(k));
      EXPECT_TRUE(
          EncodeRow(DataTypeOf(type), row.data(), k,
                    static_cast<std::byte*>(w.data()) + BytesOf(DataTypeOf(type), k) * Size(r)));
    }
    return w;
  }
  std::vector<tw::u16> Cache() {
    const std::size_t count = Size(z.context * z.kv_heads * S::kHeadDim);
    std::vector<tw::u16> cache(count);
    const std::vector<float> values = test::RandomFloats(count, ++seed_);
    EXPECT_TRUE(
        EncodeRow(DataType::kBF16, values.data(), static_cast<std::int64_t>(count), cache.data()));
    return cache;
  }

  template <Type kW, Type kC, Type kY, Epilogue kEpilogue, bool kNorm>
  void Gemv(const std::vector<tw::u16>& x, const test::GuardedBytes& w,
            const std::vector<float>& norm, const void* c, void* y, std::size_t n) {
    constexpr int kWarps = 2, kSegment = 32 * tw::Int8Codes<kW>::kChunk;
    tw::GemvParams p{};
    p.x = x.data(), p.w = w.data(), p.c = c, p.y = y;
    p.w_row_bytes = static_cast<long long>(w.size() / n);
    p.m = 1, p.n = static_cast<int>(n), p.k = static_cast<int>(x.size());
    p.alpha = 1, p.beta = c != nullptr ? 1.0f : 0.0f;
    p.norm = norm.data(), p.epsilon = kEpsilon;
    cuda::CudaLaunch launch;
    launch.grid = {3, 1, 1};
    launch.block = {32 * kWarps, 1, 1};
    launch.dynamic_smem_bytes = 100000;
    launch.params = cuda::KernelParams(p);
    EXPECT_TRUE(tw::emulation::RunLaunch<tw::GemvParams>(
        launch, 32 * kWarps, [](const tw::GemvParams& params) {
          tw::GemvInt8Run<Type::kBF16, kW, kC, kY, kEpilogue, 1, 2, kWarps, kSegment, 2, kNorm>(
              params, tw::emulation::smem);
        }));
    EXPECT_FALSE(tw::emulation::fault);
  }

  struct AttentionSpec {
    static constexpr Type kType = Type::kBF16;
    static constexpr int kHeadDim = S::kHeadDim, kWarps = S::kAttentionWarps, kStages = 1;
    static constexpr int kCluster = S::kParts;
    static constexpr bool kForesees = false, kTurns = true;
  };
  void Attend(LayerOf& l, const std::vector<tw::u16>& qkv, std::vector<tw::u16>& out) {
    cuda::RopeAttentionParams p = Attention();
    p.attention.q = qkv.data();
    p.k = qkv.data() + z.heads * S::kHeadDim;
    p.v = qkv.data() + (z.heads + z.kv_heads) * S::kHeadDim;
    p.attention.q_head = p.k_head = p.v_head = S::kHeadDim;
    p.attention.k_cache = l.k.data(), p.attention.v_cache = l.v.data();
    p.attention.out = out.data();
    cuda::CudaLaunch launch;
    launch.grid = {static_cast<unsigned>(z.kv_heads), S::kParts, 1};
    launch.block = {32 * S::kAttentionWarps, 1, 1};
    launch.dynamic_smem_bytes =
        cuda::AttentionDecodeSmem(S::kHeadDim, S::kAttentionWarps, 1, S::kParts) +
        cuda::AttentionNewRowSmem(S::kHeadDim);
    launch.params = cuda::KernelParams(p);
    tw::emulation::barriers.clear();
    EXPECT_TRUE(tw::emulation::RunLaunch<cuda::RopeAttentionParams>(
        launch, 32 * S::kAttentionWarps,
        [](const cuda::RopeAttentionParams& params) {
          tw::AttentionDecode<AttentionSpec>(params, tw::emulation::OwnSmem()).Run();
        },
        S::kParts));
    EXPECT_FALSE(tw::emulation::fault);
  }

  std::uint64_t seed_ = 0;
};

/// The kernel's own memory, between guard bands.
struct OwnMemory {
  explicit OwnMemory(const TokenSchedule& schedule)
      : words(schedule.words * 4),
        partials(schedule.partials * 8),
        state(4 * tw::kTokenStateWords),
        alarm(4) {
    for (test::GuardedBytes* memory : {&words, &partials, &state, &alarm})
      std::memset(memory->data(), 0, memory->size());
  }
  test::GuardedBytes words, partials, state, alarm;
  TokenMemory Of(const TokenSchedule& schedule) {
    return {schedule.steps.data(), static_cast<unsigned*>(words.data()),
            static_cast<unsigned long long*>(partials.data()), static_cast<unsigned*>(state.data()),
            static_cast<unsigned*>(alarm.data())};
  }
  unsigned Error() const { return static_cast<const unsigned*>(state.data())[tw::kTokenError]; }
  unsigned Alarm() const { return *static_cast<const unsigned*>(alarm.data()); }
  std::string Damage() const {
    return words.Damage() + partials.Damage() + state.Damage() + alarm.Damage();
  }
};

/// Runs `ctas` of the CTAs that the schedule has. False where a GPU would hang.
template <class S>
bool Emulate(const TokenSchedule& schedule, const tw::TokenParams& params, unsigned ctas) {
  cuda::CudaLaunch launch;
  launch.grid = {1, ctas, 1};
  launch.block = {DecodeTokenThreads(S::Its()), 1, 1};
  launch.dynamic_smem_bytes = schedule.smem_bytes;
  launch.params = cuda::KernelParams(params);
  tw::emulation::barriers.clear();
  return tw::emulation::RunLaunch<tw::TokenParams>(
      launch, DecodeTokenThreads(S::Its()),
      [](const tw::TokenParams& p) { tw::Token<S>(p, tw::emulation::OwnSmem()).Run(); }, ctas);
}

template <class S>
void ExpectTheSameBits(const Sizes& sizes, std::vector<int> positions) {
  Net<S> apart(sizes), together(sizes);
  const TokenModel model = together.Model();
  const auto schedule = MakeSchedule(model, S::Its(), sizes.ctas);
  ASSERT_TRUE(schedule) << schedule.error().ToString();
  OwnMemory memory(*schedule);
  const tw::TokenParams params = ParamsOf(model, *schedule, memory.Of(*schedule), 1ull << 60);
  for (const int position : positions) {
    SCOPED_TRACE(testing::Message() << "position " << position);
    apart.Begin(position);
    together.Begin(position);
    apart.RunApart();
    std::fill(together.logits.begin(), together.logits.end(), std::nanf(""));
    ASSERT_TRUE(Emulate<S>(*schedule, params, schedule->ctas)) << "a hang";
    ASSERT_FALSE(tw::emulation::fault) << "an illegal access";
    EXPECT_EQ(memory.Damage(), "");
    EXPECT_EQ(memory.Error(), 0u);
    EXPECT_EQ(memory.Alarm(), 0u);
    EXPECT_EQ(std::memcmp(apart.logits.data(), together.logits.data(), 4 * apart.logits.size()), 0);
    EXPECT_TRUE(std::isfinite(apart.logits[0]));
    EXPECT_NE(apart.logits[0], apart.logits[1]);
    for (std::size_t l = 0; l < apart.layers.size(); ++l) {
      EXPECT_EQ(apart.layers[l].k, together.layers[l].k) << "layer " << l;
      EXPECT_EQ(apart.layers[l].v, together.layers[l].v) << "layer " << l;
    }
  }
}

TEST(DecodeToken, HasTheBitsOfTheKernelsItStandsFor) {
  using Plain = Spec<Type::kQ4_1, Type::kQ8_0>;
  ExpectTheSameBits<Plain>({}, {0, 1, 37, 38, 159});
  // Blocks of 256, wide heads, whose parts several CTAs merge, and pages.
  using Wide = Spec<Type::kQ4_K, Type::kQ6_K, 128, 4, 4, 4>;
  ExpectTheSameBits<Wide>({.ffn = 768, .vocab = 72, .context = 640, .page = 64, .ctas = 5},
                          {64, 517});
  // One format, more warps than a product has rows for, and CTAs that share them evenly or not.
  using Even = Spec<Type::kQ4_0, Type::kQ4_0, 64, 8, 2, 8, 2>;
  ExpectTheSameBits<Even>(
      {.hidden = 128, .heads = 6, .ffn = 64, .vocab = 32, .layers = 3, .ctas = 2}, {5, 6});
  ExpectTheSameBits<Even>(
      {.hidden = 64, .heads = 2, .kv_heads = 1, .ffn = 64, .vocab = 16, .ctas = 7}, {159});
}

TEST(DecodeToken, RowsLongerThanThreadsHaveValuesAreReadInTurns) {
  using Long = Spec<Type::kQ4_0, Type::kQ8_0, 64, 4, 2, 2, 2>;
  ExpectTheSameBits<Long>(
      {.hidden = 2176, .heads = 2, .ffn = 4160, .vocab = 16, .layers = 1, .ctas = 2}, {3});
}

TEST(DecodeToken, APaddingRowAndOneWithoutAPlaceAreAsTheKernelsHaveThem) {
  using Plain = Spec<Type::kQ4_1, Type::kQ8_0>;
  ExpectTheSameBits<Plain>({.layers = 1}, {-1});
  Net<Plain> net({.layers = 1});
  const TokenModel model = net.Model();
  const auto schedule = MakeSchedule(model, Plain::Its(), net.z.ctas);
  ASSERT_TRUE(schedule);
  OwnMemory memory(*schedule);
  net.Begin(net.z.context);
  const std::vector<tw::u16> k = net.layers[0].k;
  ASSERT_TRUE(Emulate<Plain>(
      *schedule, ParamsOf(model, *schedule, memory.Of(*schedule), 1ull << 60), schedule->ctas));
  for (const float logit : net.logits) ASSERT_TRUE(std::isnan(logit));
  EXPECT_EQ(net.layers[0].k, k);
}

TEST(DecodeToken, ACtaThatNeverComesEndsTheTokenWithAnError) {
  using Plain = Spec<Type::kQ4_1, Type::kQ8_0>;
  Net<Plain> net({});
  const TokenModel model = net.Model();
  const auto schedule = MakeSchedule(model, Plain::Its(), net.z.ctas);
  ASSERT_TRUE(schedule);
  OwnMemory memory(*schedule);
  tw::TokenParams params = ParamsOf(model, *schedule, memory.Of(*schedule), 100'000);
  net.Begin(9);
  // One of the three is missing: those that wait for its words give up, and so does the next token.
  struct Missing : Plain {
    static int Ctas() { return 3; }
  };
  EXPECT_TRUE(Emulate<Missing>(*schedule, params, 2)) << "a hang";
  EXPECT_FALSE(tw::emulation::fault);
  EXPECT_NE(memory.Error(), 0u);
  EXPECT_NE(memory.Alarm(), 0u);
  const auto before = tw::emulation::nanoseconds;
  EXPECT_TRUE(Emulate<Missing>(*schedule, params, 2)) << "a hang";
  EXPECT_EQ(tw::emulation::nanoseconds, before) << "waits again";
  EXPECT_EQ(memory.Damage(), "");
}

}  // namespace
}  // namespace tilewright::decode
