#include "model/synth/mixes.h"

#include <algorithm>

namespace tilewright::synth {
namespace {

using enum DataType;
constexpr auto kV = WeightRole::kV, kAttnOutput = WeightRole::kAttnOutput,
               kDown = WeightRole::kDown;

constexpr MixRule kRulesQ2K[] = {{.role = kV, .type = kQ4_K, .least_group = 4},
                                 {.role = kV, .type = kQ3_K},
                                 {.role = kDown, .type = kQ3_K},
                                 {.role = kAttnOutput, .type = kQ3_K}};
constexpr MixRule kRulesQ2KS[] = {{.role = kV, .type = kQ4_K, .least_group = 4},
                                  {.role = kDown, .type = kQ4_K, .part = Part::kFirstEighth}};
constexpr MixRule kRulesQ3KM[] = {{.role = kV, .type = kQ5_K, .part = Part::kFirstTwo},
                                  {.role = kV, .type = kQ4_K},
                                  {.role = kDown, .type = kQ5_K, .part = Part::kFirstSixteenth},
                                  {.role = kDown, .type = kQ4_K},
                                  {.role = kAttnOutput, .type = kQ4_K}};
constexpr MixRule kRulesQ3KL[] = {{.role = kV, .type = kQ5_K},
                                  {.role = kDown, .type = kQ5_K},
                                  {.role = kAttnOutput, .type = kQ5_K}};
constexpr MixRule kRulesQ4KS[] = {{.role = kV, .type = kQ5_K, .part = Part::kFirstFour},
                                  {.role = kDown, .type = kQ5_K, .part = Part::kFirstEighth}};
constexpr MixRule kRulesSpreadQ6K[] = {{.role = kV, .type = kQ6_K, .part = Part::kSpread},
                                       {.role = kDown, .type = kQ6_K, .part = Part::kSpread}};
constexpr MixRule kRulesIq4[] = {{.role = kV, .type = kQ5_K, .least_group = 4},
                                 {.role = kDown, .type = kQ5_K, .part = Part::kFirstEighth}};

constexpr MixRule kRulesExperts[] = {{.role = WeightRole::kExpertGate, .type = kMXFP4},
                                     {.role = WeightRole::kExpertUp, .type = kMXFP4},
                                     {.role = WeightRole::kExpertDown, .type = kMXFP4}};

constexpr Mix kMixes[] = {{"q2_k", 10, kQ2_K, kRulesQ2K},
                          {"q2_k_s", 21, kQ2_K, kRulesQ2KS},
                          {"q3_k_s", 11, kQ3_K, {}},
                          {"q3_k_m", 12, kQ3_K, kRulesQ3KM},
                          {"q3_k_l", 13, kQ3_K, kRulesQ3KL},
                          {"q4_k_s", 14, kQ4_K, kRulesQ4KS},
                          {"q4_k_m", 15, kQ4_K, kRulesSpreadQ6K},
                          {"q5_k_s", 16, kQ5_K, {}},
                          {"q5_k_m", 17, kQ5_K, kRulesSpreadQ6K},
                          {"iq4_nl", 25, kIQ4_NL, kRulesIq4},
                          {"iq4_xs", 30, kIQ4_XS, kRulesIq4},
                          {"mxfp4_moe", 38, kQ8_0, kRulesExperts, kQ8_0}};

bool Holds(Part part, std::int32_t block, std::int32_t blocks) {
  switch (part) {
    case Part::kAll:
      return true;
    case Part::kFirstTwo:
      return block < 2;
    case Part::kFirstFour:
      return block < 4;
    case Part::kFirstSixteenth:
      return block < blocks / 16;
    case Part::kFirstEighth:
      return block < blocks / 8;
    case Part::kSpread:
      return block < blocks / 8 || block >= 7 * blocks / 8 || (block - blocks / 8) % 3 == 2;
  }
  return false;
}

}  // namespace

std::span<const Mix> Mixes() { return kMixes; }

const Mix* FindMix(std::string_view name) {
  const auto* found = std::ranges::find(kMixes, name, &Mix::name);
  return found != std::end(kMixes) ? found : nullptr;
}

DataType TypeIn(const Mix& mix, WeightRole role, std::int32_t block, const ModelConfig& config) {
  if (role == WeightRole::kOutput || (role == WeightRole::kEmbedding && config.tied))
    return mix.output;
  for (const MixRule& rule : mix.rules) {
    if (rule.role == role && config.heads >= rule.least_group * config.kv_heads &&
        Holds(rule.part, block, config.layers)) {
      return rule.type;
    }
  }
  return mix.base;
}

DataType NarrowType(DataType type, std::int64_t cols) {
  if (cols % kLeastBlock != 0) return DataType::kF16;
  switch (type) {
    case kQ2_K:
    case kQ3_K:
    case kIQ4_XS:
      return kIQ4_NL;
    case kQ4_K:
      return kQ5_0;
    case kQ5_K:
      return kQ5_1;
    default:
      return kQ8_0;
  }
}

}  // namespace tilewright::synth
