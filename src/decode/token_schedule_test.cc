#include "decode/token_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "decode/families.h"

namespace tilewright::decode {
namespace {

using testing::HasSubstr;

alignas(64) unsigned char weights[64];

Matrix Of(DataType type, int n, int k) { return {weights, type, n, k}; }

/// Llama-3.1-8B with its logits in another format; nothing reads the weights.
TokenModel Model(int layers = 32, DataType type = DataType::kQ4_K) {
  TokenModel model;
  for (int l = 0; l < layers; ++l) {
    model.layers.push_back({.attention_norm = weights,
                            .qkv = Of(type, 6144, 4096),
                            .k_cache = weights,
                            .v_cache = weights,
                            .o = Of(type, 4096, 4096),
                            .ffn_norm = weights,
                            .gate_up = Of(type, 28672, 4096),
                            .down = Of(type, 4096, 14336)});
  }
  model.output_norm = weights;
  model.output = Of(DataType::kQ6_K, 128256, 4096);
  model.epsilon = 1e-5f;
  model.head_dim = 128;
  model.attention.attention.heads = 32;
  model.attention.attention.kv_heads = 8;
  return model;
}
KernelSpec Spec() {
  return DecodeTokenSpec({90, 'a'}, DataType::kQ4_K, DataType::kQ6_K, 128, 8, 8);
}
std::string Refusal(const TokenModel& model, const KernelSpec& spec = Spec(), int sms = 132) {
  const ScheduleResult schedule = MakeSchedule(model, spec, sms);
  return schedule ? std::string() : schedule.error().ToString();
}

TEST(TokenSchedule, HasFiveStepsALayerAndTheLogits) {
  const ScheduleResult schedule = MakeSchedule(Model(), Spec(), 132);
  ASSERT_TRUE(schedule) << schedule.error().ToString();
  EXPECT_EQ(schedule->steps.size(), 32u * 5 + 1);
  EXPECT_EQ(schedule->ctas, 132u);
  EXPECT_EQ(schedule->turns, 32);
  EXPECT_LE(schedule->smem_bytes, 232448u);
  const auto& steps = schedule->steps;
  EXPECT_TRUE(steps.front().flags & tw::kTokenPlainInput);
  EXPECT_TRUE(steps[2].flags & tw::kTokenPlainAddend);
  EXPECT_FALSE(steps[5].flags & tw::kTokenPlainInput);
  EXPECT_FALSE(steps[7].flags & tw::kTokenPlainAddend);
  EXPECT_TRUE(steps.back().flags & tw::kTokenLogits);
  EXPECT_TRUE(steps.back().flags & tw::kTokenOther);
}

TEST(TokenSchedule, EveryStepReadsWhatTheOneInFrontLeftInThatTurn) {
  const ScheduleResult schedule = MakeSchedule(Model(3), Spec(), 132);
  ASSERT_TRUE(schedule);
  const auto& steps = schedule->steps;
  std::vector<int> written(tw::kTokenBuffers, 0);  // the tag that is in each buffer
  for (std::size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "step " << i);
    const bool first = (steps[i].flags & tw::kTokenPlainInput) != 0;
    if (!first) {
      EXPECT_EQ(steps[i].input, steps[i - 1].output);
      EXPECT_EQ(steps[i].tag_in, written[steps[i].input]);
    }
    if ((steps[i].flags & tw::kTokenLogits) != 0) continue;
    // What another turn left in a buffer has another tag, also across tokens.
    const int before = written[steps[i].output];
    EXPECT_EQ(steps[i].tag_out, before + 1);
    written[steps[i].output] = steps[i].tag_out;
  }
  for (const int tag : written) EXPECT_EQ(tag, schedule->turns);
}

TEST(TokenSchedule, UnitsAreDealtWholeAndEvenly) {
  for (const int units : {288, 480, 2048, 64128}) {
    for (const int ctas : {1, 7, 132, 148}) {
      int before = 0, most = 0, least = units;
      for (int cta = 0; cta < ctas; ++cta) {
        EXPECT_EQ(tw::TokenBorder(units, cta, ctas), before);
        const int end = tw::TokenBorder(units, cta + 1, ctas);
        most = std::max(most, end - before), least = std::min(least, end - before);
        before = end;
      }
      EXPECT_EQ(before, units);
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(TokenSchedule, NoCtaIsWithoutRowsOfAProduct) {
  TokenModel model = Model(2);
  model.output.n = 96;  // 48 pairs
  const ScheduleResult schedule = MakeSchedule(model, Spec(), 132);
  ASSERT_TRUE(schedule);
  EXPECT_EQ(schedule->ctas, 48u);
}

TEST(TokenSchedule, BuffersAndSharedMemoryDoNotOverlap) {
  const TokenModel model = Model();
  const ScheduleResult schedule = MakeSchedule(model, Spec(), 132);
  ASSERT_TRUE(schedule);
  const auto& at = schedule->offsets;
  const int sizes[] = {4096, 6144, 4096, 4096, 14336};
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_EQ(at[i] % 4, 0);
    EXPECT_LE(static_cast<std::size_t>(at[i] + sizes[i]), schedule->words);
    if (i > 0) {
      EXPECT_GE(at[i], at[i - 1] + sizes[i - 1]);
    }
  }
  EXPECT_GE(schedule->work_at, DecodeTokenRingBytes(Spec()));
  EXPECT_GE(schedule->landed_at, schedule->work_at + tw::TokenXBytes(14336));
  EXPECT_GE(schedule->steps_at, schedule->landed_at + 16 * 4 * 16 + 16);
}

TEST(TokenSchedule, SaysWhatItHasNoKernelFor) {
  EXPECT_EQ(Refusal(Model()), "");
  EXPECT_THAT(Refusal(Model(0)), HasSubstr("0 layers"));
  EXPECT_THAT(Refusal(Model(400)), HasSubstr("shared memory for 2001 steps"));
  TokenModel model = Model(2);
  model.layers[1].down.type = DataType::kQ8_0;
  EXPECT_THAT(Refusal(model), HasSubstr("down of q8_0, needs q4_k or q6_k"));
  model = Model(2);
  model.layers[1].o.n = 2048;
  EXPECT_THAT(Refusal(model), HasSubstr("layers of one shape"));
  model = Model(2);
  for (Layer& layer : model.layers) layer.o.k = 2048;
  EXPECT_THAT(Refusal(model), HasSubstr("as wide as the one in front"));
  model = Model(2);
  model.layers[0].qkv.data = weights + 8;
  EXPECT_THAT(Refusal(model), HasSubstr("needs multiples of 16"));
  model = Model(2);
  model.output.n = 128255;
  EXPECT_THAT(Refusal(model), HasSubstr("pairs of rows"));
  model = Model(2);
  model.attention.attention.kv_heads = 2;
  EXPECT_NE(Refusal(model), "");
  EXPECT_THAT(
      Refusal(Model(), DecodeTokenSpec({90, 'a'}, DataType::kQ4_K, DataType::kQ6_K, 64, 8, 8)),
      HasSubstr("head_dim = 128, needs 64"));
}

TEST(TokenSchedule, TheMoreFrequentFormatIsTheFirst) {
  const auto formats = FormatsOf(Model());
  ASSERT_TRUE(formats);
  EXPECT_EQ(formats->weights, DataType::kQ4_K);
  EXPECT_EQ(formats->others, DataType::kQ6_K);
  TokenModel model = Model();
  model.output.type = DataType::kQ4_K;
  EXPECT_EQ(FormatsOf(model)->others, DataType::kNone);
  model.layers[3].down.type = DataType::kQ6_K;
  model.layers[4].down.type = DataType::kQ5_K;
  EXPECT_THAT(FormatsOf(model).error().ToString(), HasSubstr("two formats at most"));
}

TEST(DecodeTokenFamily, TakesWhatItsCatalogHasAndSaysWhyNotElse) {
  const KernelFamily family = DecodeTokenFamily();
  EXPECT_TRUE(family.catalog({80}).empty());
  std::set<std::string> names;
  for (const KernelSpec& spec : family.catalog({90, 'a'})) {
    EXPECT_FALSE(family.check(spec)) << SpecName(spec);
    names.insert(SpecName(spec));
  }
  EXPECT_EQ(names.size(), family.catalog({90, 'a'}).size());
  const auto refusal = [&](auto change) {
    KernelSpec spec = Spec();
    change(spec);
    const auto no = family.check(spec);
    return no ? no->ToString() : std::string();
  };
  EXPECT_EQ(refusal([](KernelSpec&) {}), "");
  EXPECT_THAT(refusal([](KernelSpec& s) { s.arch = {80}; }), HasSubstr("sm_90"));
  EXPECT_THAT(refusal([](KernelSpec& s) { s.type_b = DataType::kBF16; }), HasSubstr("type_b"));
  EXPECT_THAT(refusal([](KernelSpec& s) { s.type_a = DataType::kF16; }), HasSubstr("bf16"));
  EXPECT_THAT(refusal([](KernelSpec& s) { s.params[1] = 3; }), HasSubstr("param1"));
  EXPECT_THAT(refusal([](KernelSpec& s) { s.params[2] = 16; }), HasSubstr("param2"));
  EXPECT_THAT(refusal([](KernelSpec& s) { s.split_k = 2; }), HasSubstr("does not use"));
}

}  // namespace
}  // namespace tilewright::decode
