#include <gtest/gtest.h>

#include "artifact/spec_words.h"
#include "key_inputs.h"

namespace tilewright {
namespace {

TEST(CudaArch, NamesAreReadAndWritten) {
  for (const char* name : {"sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100f", "sm_120"}) {
    const auto arch = ParseCudaArch(name);
    ASSERT_TRUE(arch) << name;
    EXPECT_EQ(arch->ToString(), name);
  }
  EXPECT_EQ(ParseCudaArch("sm_100f")->major(), 10);
  EXPECT_EQ(ParseCudaArch("sm_89")->minor(), 9);
}

TEST(CudaArch, WhatIsNoNameIsRefusedWithTheForm) {
  for (const char* name : {"", "sm_", "90", "sm_9", "sm_1000", "sm_090", "sm_90b", "sm_90aa",
                           "sm_-9", "sm_9 0", "SM_90", "sm_90 ", "compute_90", "sm_a"}) {
    const auto arch = ParseCudaArch(name);
    ASSERT_FALSE(arch) << name;
    EXPECT_EQ(arch.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(arch.error().message.find("sm_90a"), std::string::npos);
  }
}

TEST(CudaArch, CodeRunsWhereItsSuffixSays) {
  const auto runs = [](const char* arch, int capability) {
    return ParseCudaArch(arch)->RunsOn(capability);
  };
  EXPECT_TRUE(runs("sm_80", 80));
  EXPECT_TRUE(runs("sm_80", 89));
  EXPECT_FALSE(runs("sm_89", 80));
  EXPECT_FALSE(runs("sm_80", 90));
  EXPECT_TRUE(runs("sm_90a", 90));
  EXPECT_FALSE(runs("sm_90a", 91));
  EXPECT_FALSE(runs("sm_100a", 103));
  EXPECT_TRUE(runs("sm_100f", 103));
  EXPECT_FALSE(runs("sm_103f", 100));
  EXPECT_FALSE(runs("sm_100f", 110));
}

TEST(SpecName, IsTheInverseOfParsing) {
  for (const KernelSpec& spec : test::FixedSpecs()) {
    const auto again = ParseSpecName(SpecName(spec));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, spec) << SpecName(spec);
  }
}

TEST(SpecName, EveryTypeRoundTrips) {
  for (int i = 0; i < 256; ++i) {
    KernelSpec spec = test::FixedSpecs()[0];
    spec.type_c = static_cast<DataType>(i);
    if (!CheckSpecValues(spec)) continue;
    EXPECT_EQ(ParseSpecName(SpecName(spec)), spec) << SpecName(spec);
  }
}

TEST(SpecName, ReadsAsTheHeaderSays) {
  KernelSpec spec = test::FixedSpecs()[0];
  spec.family = "gemm_mma";
  EXPECT_EQ(SpecName(spec),
            "gemm_mma.bf16-bf16-none-bf16.tn.sm_80.128x128x32.w4.s4.k0.c0x0.none.p0_0_0_0");
}

TEST(SpecName, WhatIsNoNameIsRefusedNamingTheSegment) {
  const std::string good = "f.f32-f32-none-f32.tn.sm_80.1x2x3.w4.s5.k6.c7x8.add.p1_-2_3_4";
  ASSERT_TRUE(ParseSpecName(good));
  const struct {
    std::string from, to, names;
  } cases[] = {{"f.f32", "F.f32", "family"},
               {"f.f32", ".f32", "family"},
               {"f.f32", "abcdefghijklmnopqrstuvwx.f32", "family"},
               {"f32-none", "f32-f99", "types"},
               {"-none-f32", "-none", "types"},
               {".tn.", ".tx.", "orders"},
               {".tn.", ".t.", "orders"},
               {"sm_80", "sm_8", "architecture"},
               {"1x2x3", "1x2", "tile"},
               {"1x2x3", "1x2x65536", "tile"},
               {"1x2x3", "01x2x3", "tile"},
               {"1x2x3", "1x2x-3", "tile"},
               {"1x2x3", "1x2x", "tile"},
               {"w4", "4", "warps"},
               {"s5", "s256", "stages"},
               {"k6", "k6x", "split"},
               {"c7x8", "c7", "cluster"},
               {"add", "mul", "epilogue"},
               {"p1_-2", "p1_-0", "parameters"},
               {"p1_-2", "p1_+2", "parameters"},
               {"_3_4", "_3_2147483648", "parameters"},
               {".p1", "..p1", "segments"},
               {"_3_4", "_3_4.x", "segments"}};
  for (const auto& bad : cases) {
    std::string text = good;
    text.replace(text.find(bad.from), bad.from.size(), bad.to);
    const auto spec = ParseSpecName(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(spec.error().message.find(bad.names), std::string::npos) << spec.error().message;
  }
}

TEST(KernelFamilies, AFamilyThatCannotServeIsNotTaken) {
  const test::InputFamily good(test::FixedInputs());
  const auto refused = [&](void (*spoil)(KernelFamily&)) {
    KernelFamily family = good.get();
    spoil(family);
    KernelFamilies families;
    const Status status = families.Add(family);
    EXPECT_TRUE(families.all().empty());
    return !status && status.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](KernelFamily& f) { f.name = "Keys"; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.name = ""; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.name.chars[20] = 'x'; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.source = ""; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.check = nullptr; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.launch = nullptr; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.limits = nullptr; }));
  EXPECT_TRUE(refused([](KernelFamily& f) { f.catalog = nullptr; }));

  KernelFamilies families;
  ASSERT_TRUE(families.Add(good.get()));
  const Status twice = families.Add(good.get());
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("taken"), std::string::npos);
  EXPECT_EQ(families.Catalog({90, 0}), test::FixedSpecs());
  EXPECT_EQ(families.Find("other"), nullptr);
}

}  // namespace
}  // namespace tilewright
