#include "tilewright/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "core/allocation_probe.h"
#include "core/block_format.h"
#include "model/gguf/gguf_test_util.h"
#include "model/synth/vocabulary.h"
#include "model/synth/weight_source.h"
#include "model/synth/weights.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<DataType> Types() {
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  return types;
}

SynthOptions Tiny(DataType quant, std::uint64_t seed = 1) {
  return {.shape = FindSynthPreset("tiny-test").value(), .quant = quant, .seed = seed};
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};
Moments MomentsOf(const GgufFile& file, const GgufTensor& tensor) {
  const std::int64_t count = tensor.shape[0] * tensor.shape[1];
  std::vector<double> values(static_cast<std::size_t>(count));
  EXPECT_TRUE(DecodeRow(tensor.dtype, file.Bytes(tensor).data(), count, values.data()));
  double sum = 0, squares = 0;
  for (const double value : values) {
    EXPECT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(count);
  return {mean, std::sqrt(squares / static_cast<double>(count) - mean * mean)};
}

TEST(Synth, PresetsHaveTheSizesOfTheirNames) {
  const std::pair<const char*, double> millions[] = {
      {"smollm2-135m", 134.5},      {"smollm2-360m", 361.8},     {"tinyllama-1.1b", 1100.0},
      {"llama-3.2-1b", 1235.8},     {"llama-3.2-3b", 3212.7},    {"mistral-7b", 7248.0},
      {"llama-3.1-8b", 8030.3},     {"llama-3.1-70b", 70553.7},  {"qwen2.5-0.5b", 494.03},
      {"qwen2.5-7b", 7615.6},       {"qwen3-0.6b", 596.05},      {"qwen3-8b", 8190.7},
      {"phi-3.5-mini", 3821.1},     {"gemma-2-2b", 2614.34},     {"gemma-2-9b", 9241.71},
      {"gemma-2-27b", 27227.13},    {"gemma-3-270m", 268.10},    {"gemma-3-1b", 999.89},
      {"mixtral-8x7b", 46702.8},    {"qwen3-30b-a3b", 30532.1},  {"qwen1.5-moe-a2.7b", 14315.8},
      {"gpt-oss-20b", 20914.76},    {"gpt-oss-120b", 116829.16}, {"exaone-3.5-2.4b", 2405.33},
      {"exaone-3.5-7.8b", 7818.45}, {"internlm2-1.8b", 1889.11}, {"internlm2-7b", 7737.71},
      {"ernie-4.5-0.3b", 360.75},   {"gemma-2b", 2506.17},       {"gemma-7b", 8537.68}};
  for (const auto& [name, parameters] : millions) {
    const auto shape = FindSynthPreset(name);
    ASSERT_TRUE(shape) << name;
    const auto report = PlanSynthetic({.shape = *shape, .quant = DataType::kBF16});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_NEAR(static_cast<double>(report->parameters) * 1e-6, parameters, 0.05) << name;
    EXPECT_GT(report->file_bytes, 2 * report->parameters);
  }
  EXPECT_EQ(SynthPresets().size(), 50u);
}

TEST(Synth, UnknownNamesListWhatThereIs) {
  const auto shape = FindSynthPreset("llama-9");
  ASSERT_FALSE(shape);
  EXPECT_THAT(shape.error().message, HasSubstr("llama-3.1-8b"));
  const auto report = PlanSynthetic(Tiny(DataType::kU4));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(report.error().message, HasSubstr("type u4"));
  EXPECT_THAT(report.error().message, HasSubstr("f32, f16, bf16, q4_0, q4_1, q8_0, q6_k"));
}

TEST(Synth, ImpossibleShapesNameTheField) {
  const auto message = [](auto change) {
    SynthOptions options = Tiny(DataType::kF32);
    change(options.shape);
    const auto report = PlanSynthetic(options);
    return report ? std::string("no error") : report.error().message;
  };
  EXPECT_THAT(message([](SynthShape& s) { s.layers = 0; }), HasSubstr("layers = 0"));
  EXPECT_THAT(message([](SynthShape& s) { s.kv_heads = 3; }),
              HasSubstr("heads = 4: must be a multiple of kv_heads = 3"));
  EXPECT_THAT(message([](SynthShape& s) { s.head_dim = 15; }), HasSubstr("head_dim = 15"));
  EXPECT_THAT(message([](SynthShape& s) { s.vocab = 200; }), HasSubstr("vocab = 200"));
  SynthOptions odd = Tiny(DataType::kQ4_0);
  odd.shape.ffn = 100;
  const auto report = PlanSynthetic(odd);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("\"blk.0.ffn_down.weight\": dimension 0 is 100"));
}

TEST(Synth, EveryTypeGivesAValidFileOfTheRightSpread) {
  const test::TemporaryFolder folder;
  for (const DataType quant : Types()) {
    SCOPED_TRACE(DataTypeName(quant));
    SynthOptions options = Tiny(quant);
    options.shape.hidden = 256;  // so that q6_k fits
    options.shape.head_dim = 64;
    options.shape.ffn = 512;
    options.shape.tied = false;
    const std::string path = folder.File("m.gguf");
    const auto report = WriteSynthetic(options, path);
    ASSERT_TRUE(report) << report.error().message;
    const auto file = GgufFile::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->Validate());
    EXPECT_EQ(file->file_bytes(), report->file_bytes);
    for (const GgufTensor& tensor : file->tensors()) {
      SCOPED_TRACE(tensor.name);
      const Moments moments = MomentsOf(*file, tensor);
      if (tensor.shape[1] == 1) {
        EXPECT_EQ(tensor.dtype, DataType::kF32);
        EXPECT_NEAR(moments.mean, 1, 0.02);
        continue;
      }
      const BlockFormat* format = FindFormat(quant);
      const bool is_output =
          tensor.name == "output.weight" && format != nullptr && format->code_bits < 6;
      EXPECT_EQ(tensor.dtype, is_output ? DataType::kQ6_K : quant);
      const double wanted = 1 / std::sqrt(static_cast<double>(tensor.shape[0]));
      EXPECT_NEAR(moments.deviation / wanted, 1, 0.08);
      EXPECT_LT(std::fabs(moments.mean) / wanted, 0.05);
    }
  }
}

TEST(Synth, TheSameSeedGivesTheSameBytesAndAnotherOneDoesNot) {
  const test::TemporaryFolder folder;
  for (const DataType quant : Types()) {
    ASSERT_TRUE(WriteSynthetic(Tiny(quant, 7), folder.File("a")));
    ASSERT_TRUE(WriteSynthetic(Tiny(quant, 7), folder.File("b")));
    ASSERT_TRUE(WriteSynthetic(Tiny(quant, 8), folder.File("c")));
    EXPECT_EQ(test::ReadBytes(folder.File("a")), test::ReadBytes(folder.File("b")))
        << DataTypeName(quant);
    EXPECT_NE(test::ReadBytes(folder.File("a")), test::ReadBytes(folder.File("c")))
        << DataTypeName(quant);
  }
}

TEST(Synth, LayersDoNotRepeatEachOther) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(WriteSynthetic(Tiny(DataType::kF32), folder.File("m")));
  const auto file = GgufFile::Open(folder.File("m"));
  ASSERT_TRUE(file);
  const auto a = file->Bytes(*file->Tensor("blk.0.attn_q.weight").value());
  const auto b = file->Bytes(*file->Tensor("blk.1.attn_q.weight").value());
  EXPECT_FALSE(std::ranges::equal(a, b));
}

TEST(Synth, RowsThatQ6KCannotHoldBecomeQ80AndTheReportSaysSo) {
  const test::TemporaryFolder folder;
  const auto report = WriteSynthetic(Tiny(DataType::kQ6_K), folder.File("m"));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->types, "q8_0: 15");
  EXPECT_THAT(report->note, HasSubstr("15 of 15 matrices are q8_0"));
  EXPECT_THAT(report->note, HasSubstr("rows of 64 and 192 are not a multiple of 256"));

  const auto smollm =
      PlanSynthetic({.shape = FindSynthPreset("smollm2-135m").value(), .quant = DataType::kQ4_1});
  ASSERT_TRUE(smollm);
  EXPECT_EQ(smollm->types, "q4_1: 210, q8_0: 1");
  EXPECT_THAT(smollm->note, HasSubstr("1 of 211 matrices is q8_0"));

  const auto llama =
      PlanSynthetic({.shape = FindSynthPreset("llama-3.1-8b").value(), .quant = DataType::kQ4_0});
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->types, "q4_0: 225, q6_k: 1");
  EXPECT_THAT(llama->note, HasSubstr("output projection"));

  const auto plain = PlanSynthetic(Tiny(DataType::kQ8_0));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->note, "");
}

/// The types of the matrices of a mix whose names hold `role`, in a model of 16 blocks.
std::string TypesOf(const std::string& mix, const char* role, int kv_heads = 2, int hidden = 256) {
  const test::TemporaryFolder folder;
  SynthOptions options = Tiny(DataType::kQ4_0);
  options.mix = mix;
  options.shape.layers = 16;
  options.shape.hidden = hidden;
  options.shape.kv_heads = kv_heads;
  options.shape.head_dim = 64;
  options.shape.ffn = 256;
  options.shape.tied = false;
  EXPECT_TRUE(WriteSynthetic(options, folder.File("m")));
  const auto file = GgufFile::Open(folder.File("m"));
  if (!file) return file.error().message;
  std::string types;
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.dims < 2 || tensor.name.find(role) == std::string_view::npos) continue;
    const std::string_view type = DataTypeName(tensor.dtype);
    types += (types.empty() ? "" : " ") + std::string(type);
  }
  return types;
}

std::string Repeat(int count, const std::string& word) {
  std::string words;
  for (int i = 0; i < count; ++i) words += (i == 0 ? "" : " ") + word;
  return words;
}

// Blocks with more bits in llama.cpp's *_m files of 16 blocks: 0, 1, 4, 7, 10, 13, 14, 15.
TEST(SynthMix, MatricesHaveTheTypesOfLlamaCppsFiles) {
  const auto spread = [](const std::string& fine, const std::string& base) {
    std::string types;
    for (int i = 0; i < 16; ++i) {
      const bool more = i < 2 || i >= 14 || (i - 2) % 3 == 2;
      types += (i == 0 ? "" : " ") + (more ? fine : base);
    }
    return types;
  };
  for (const std::string base : {"q4_k", "q5_k"}) {
    EXPECT_EQ(TypesOf(base + "_m", "attn_v"), spread("q6_k", base));
    EXPECT_EQ(TypesOf(base + "_m", "ffn_down"), spread("q6_k", base));
    EXPECT_EQ(TypesOf(base + "_m", "attn_k"), Repeat(16, base));
    EXPECT_EQ(TypesOf(base + "_m", "token_embd"), base);
  }
  EXPECT_EQ(TypesOf("q4_k_s", "attn_v"), Repeat(4, "q5_k") + " " + Repeat(12, "q4_k"));
  EXPECT_EQ(TypesOf("q4_k_s", "ffn_down"), Repeat(2, "q5_k") + " " + Repeat(14, "q4_k"));
  EXPECT_EQ(TypesOf("q5_k_s", "ffn_down"), Repeat(16, "q5_k"));
  EXPECT_EQ(TypesOf("q3_k_s", "attn_v"), Repeat(16, "q3_k"));
  EXPECT_EQ(TypesOf("q3_k_m", "attn_v"), "q5_k q5_k " + Repeat(14, "q4_k"));
  EXPECT_EQ(TypesOf("q3_k_m", "ffn_down"), "q5_k " + Repeat(15, "q4_k"));
  EXPECT_EQ(TypesOf("q3_k_m", "attn_output"), Repeat(16, "q4_k"));
  EXPECT_EQ(TypesOf("q3_k_m", "ffn_up"), Repeat(16, "q3_k"));
  EXPECT_EQ(TypesOf("q3_k_l", "attn_output"), Repeat(16, "q5_k"));
  EXPECT_EQ(TypesOf("q2_k", "attn_v"), Repeat(16, "q3_k"));
  EXPECT_EQ(TypesOf("q2_k", "attn_v", 1), Repeat(16, "q4_k"));  // four query heads to a key head
  EXPECT_EQ(TypesOf("q2_k", "ffn_down"), Repeat(16, "q3_k"));
  EXPECT_EQ(TypesOf("q2_k_s", "ffn_down"), Repeat(2, "q4_k") + " " + Repeat(14, "q2_k"));
  EXPECT_EQ(TypesOf("iq4_nl", "attn_v", 1), Repeat(16, "q5_k"));
  EXPECT_EQ(TypesOf("iq4_xs", "ffn_down"), Repeat(2, "q5_k") + " " + Repeat(14, "iq4_xs"));
  for (const char* mix : {"q2_k", "q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m", "iq4_xs"})
    EXPECT_EQ(TypesOf(mix, "output.weight").substr(0, 4), "q6_k") << mix;
}

TEST(SynthMix, ExpertsOfMxfp4AreBesideMatricesOfQ8) {
  SynthOptions options{.shape = FindSynthPreset("gpt-oss-20b").value()};
  ASSERT_TRUE(SetSynthQuant("mxfp4_moe", options));
  const auto report = PlanSynthetic(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->types, "q8_0: 98, mxfp4: 72");
  EXPECT_EQ(report->note, "");
  ASSERT_TRUE(SetSynthQuant("mxfp4", options));
  EXPECT_EQ(options.mix, "");
  EXPECT_EQ(options.quant, DataType::kMXFP4);
}

TEST(Synth, PowersOfTwoKeepTheVarianceOfTheMatrix) {
  for (const float wanted : {1.0f, 0.75f, 0.02f, 0.01563f}) {
    const synth::WeightMaker maker(DataType::kMXFP4, 3);
    std::vector<std::byte> bytes(BytesOf(DataType::kMXFP4, 1 << 18));
    Random random(4);
    maker.Fill(random, 0, wanted, bytes);
    std::vector<float> values(1 << 18);
    ASSERT_TRUE(DecodeRow(DataType::kMXFP4, bytes.data(), 1 << 18, values.data()));
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(squares / (1 << 18)) / wanted, 1, 0.02) << wanted;
  }
}

TEST(SynthMix, RowsThatDoNotFitGetASmallerBlockAndTheReportSaysSo) {
  const auto narrow = [](const std::string& mix, const char* role) {
    return TypesOf(mix, role, 2, 96).substr(0, 6);
  };
  EXPECT_EQ(narrow("q4_k_m", "attn_k"), "q5_0 q");
  EXPECT_EQ(narrow("q5_k_m", "attn_k"), "q5_1 q");
  EXPECT_EQ(narrow("q4_k_m", "attn_v"), "q8_0 q");
  EXPECT_EQ(narrow("q4_k_m", "output.weight"), "q8_0 q");
  EXPECT_EQ(narrow("q3_k_s", "attn_k"), "iq4_nl");
  EXPECT_EQ(narrow("q4_k_m", "ffn_down"), "q6_k q");  // rows of 256
  for (const char* mix : {"q4_k_m", "iq4_nl", "mxfp4_moe"})
    EXPECT_EQ(TypesOf(mix, "attn_k", 2, 72).substr(0, 4), "f16 ") << mix;

  SynthOptions options{.shape = FindSynthPreset("smollm2-135m").value()};
  ASSERT_TRUE(SetSynthQuant("q4_k_m", options));
  const auto report = PlanSynthetic(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->types, "q5_0: 166, q4_k: 16, q8_0: 15, q6_k: 14");
  EXPECT_THAT(report->note, HasSubstr("166 of 211 matrices are q5_0 (rows of 576 are not a "
                                      "multiple of 256, the block of q4_k)"));
  const auto whole =
      PlanSynthetic({.shape = FindSynthPreset("llama-3.2-1b").value(), .mix = "q4_k_m"});
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->note, "");
}

TEST(SynthMix, NamesAreThoseOfMixesThenOfTypes) {
  SynthOptions options;
  ASSERT_TRUE(SetSynthQuant("q5_k_s", options));
  EXPECT_EQ(options.mix, "q5_k_s");
  ASSERT_TRUE(SetSynthQuant("Q4_K_M", options));
  EXPECT_EQ(options.mix, "q4_k_m");
  ASSERT_TRUE(SetSynthQuant("q5_k", options));
  EXPECT_EQ(options.mix, "");
  EXPECT_EQ(options.quant, DataType::kQ5_K);
  ASSERT_TRUE(SetSynthQuant("q2_k", options));
  EXPECT_EQ(options.mix, "q2_k");
  const Status unknown = SetSynthQuant("q9", options);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("'q9'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("q4_k_m"));
  options.shape = FindSynthPreset("tiny-test").value();
  options.mix = "q4_k_xl";
  const auto report = PlanSynthetic(options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("'q4_k_xl'"));
}

TEST(Synth, RopeFactorsFollowLlama3) {
  const test::TemporaryFolder folder;
  SynthOptions options = Tiny(DataType::kF32);
  options.shape.head_dim = 64;
  options.shape.rope_base = 500000;
  options.shape.rope_factor = 32;
  ASSERT_TRUE(WriteSynthetic(options, folder.File("m")));
  const auto file = GgufFile::Open(folder.File("m"));
  ASSERT_TRUE(file);
  const auto view = file->View("rope_freqs.weight");
  ASSERT_TRUE(view);
  ASSERT_EQ(view->cols(), 32);
  const float* factors = view->as<float>();
  EXPECT_EQ(factors[0], 1.0f);
  EXPECT_EQ(factors[31], 32.0f);
  // Frequency 500000^(-30/64): a wave of 2,948 positions, blended: 1 / ((1 - s) / 32 + s) with s =
  // (8192 / wave - 1) / 3.
  EXPECT_NEAR(factors[15], 1.65133, 1e-4);
  for (int i = 1; i < 32; ++i) EXPECT_GE(factors[i], factors[i - 1]);
}

TEST(Synth, AStoppedWriteLeavesNothing) {
  const test::TemporaryFolder folder;
  int calls = 0;
  const auto report = WriteSynthetic(Tiny(DataType::kQ4_0), folder.File("m"),
                                     [&](std::uint64_t, std::uint64_t) { return ++calls < 3; });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(folder.List(), IsEmpty());
}

TEST(Synth, ProgressGrowsToTheSizeOfTheFile) {
  const test::TemporaryFolder folder;
  std::uint64_t last = 0, all = 0;
  const auto report = WriteSynthetic(Tiny(DataType::kQ8_0), folder.File("m"),
                                     [&](std::uint64_t done, std::uint64_t total) {
                                       EXPECT_GT(done, last);
                                       last = done;
                                       all = total;
                                       return true;
                                     });
  ASSERT_TRUE(report);
  EXPECT_EQ(all, report->file_bytes);
  EXPECT_GT(last, all * 7 / 10);  // the rest is the vocabulary and padding
}

TEST(Synth, MemoryDoesNotGrowWithTheModel) {
  const test::TemporaryFolder folder;
  SynthOptions options = Tiny(DataType::kF32);
  options.shape.vocab = 20000;
  options.shape.hidden = 1024;
  options.shape.head_dim = 256;
  AllocationProbe::ForgetLargest();
  const auto report = WriteSynthetic(options, folder.File("m"));
  ASSERT_TRUE(report);
  EXPECT_GT(report->file_bytes, 80u << 20);
  EXPECT_LE(AllocationProbe::Largest(), 16u << 20);
}

TEST(Synth, ValuesDoNotDependOnThreads) {
  const SynthOptions options = Tiny(DataType::kQ4_K, 7);
  synth::Plan plan;
  // Pieces of 1 MiB: several turns on one thread, and a last piece that is short.
  ASSERT_TRUE(plan.writer.AddTensor(
      {.name = "w", .dtype = DataType::kQ4_K, .shape = {4096, 3001, 1, 1}, .dims = 2}));
  const SynthProgress no_progress;
  plan.roles = {WeightRole::kDown};
  std::vector<std::byte> bytes[2];
  for (int i = 0; i < 2; ++i) {
    synth::WeightSource source(options, plan, no_progress, i == 0 ? 1 : 3);
    ASSERT_TRUE(source.Emit(0, [&](std::span<const std::byte> piece) -> Status {
      bytes[i].insert(bytes[i].end(), piece.begin(), piece.end());
      return {};
    }));
    EXPECT_EQ(bytes[i].size(), BytesOf(DataType::kQ4_K, 4096 * 3001));
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
  // Pieces differ from each other.
  const std::size_t piece = (1u << 20) / 144 * 144;
  EXPECT_FALSE(std::ranges::equal(std::span(bytes[0]).first(4096),
                                  std::span(bytes[0]).subspan(piece, 4096)));
}

TEST(SynthVocabulary, EveryTokenIsDistinctAndMergesMakeKnownTokens) {
  const std::pair<SynthVocab, int> cases[] = {{SynthVocab::kSmolLm, 259},
                                              {SynthVocab::kSmolLm, 512},
                                              {SynthVocab::kSmolLm, 49152},
                                              {SynthVocab::kGpt2, 32000},
                                              {SynthVocab::kLlama3, 128256}};
  for (const auto& [style, size] : cases) {
    SCOPED_TRACE(size);
    const synth::Vocabulary vocabulary = synth::MakeVocabulary(style, size);
    ASSERT_EQ(vocabulary.tokens.size(), static_cast<std::size_t>(size));
    ASSERT_EQ(vocabulary.types.size(), vocabulary.tokens.size());
    const std::set<std::string> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
    EXPECT_EQ(known.size(), vocabulary.tokens.size());
    const auto controls =
        static_cast<std::size_t>(std::count(vocabulary.types.begin(), vocabulary.types.end(), 3));
    EXPECT_EQ(vocabulary.merges.size(), vocabulary.tokens.size() - controls - 256);
    EXPECT_EQ(vocabulary.types[vocabulary.bos], 3);
    EXPECT_EQ(vocabulary.types[vocabulary.eos], 3);
    std::set<std::string> made;
    for (const std::string& merge : vocabulary.merges) {
      const std::size_t space = merge.find(' ');
      const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
      ASSERT_TRUE(known.count(left) == 1 && known.count(right) == 1 &&
                  known.count(left + right) == 1)
          << merge;
      ASSERT_TRUE(made.insert(left + right).second) << merge;
    }
  }
}

TEST(SynthVocabulary, PiecesAreDistinctAndMadeOfTwoOthers) {
  for (const int size : {400, 1003, 32000, 32768, 262144}) {
    SCOPED_TRACE(size);
    const synth::Vocabulary vocabulary = synth::MakeVocabulary(SynthVocab::kSentencePiece, size);
    const auto count = static_cast<std::size_t>(size);
    ASSERT_EQ(vocabulary.tokens.size(), count);
    ASSERT_EQ(vocabulary.types.size(), count);
    ASSERT_EQ(vocabulary.scores.size(), count);
    EXPECT_TRUE(vocabulary.merges.empty());
    const std::set<std::string> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
    EXPECT_EQ(known.size(), count);
    EXPECT_EQ(std::count(vocabulary.types.begin(), vocabulary.types.end(), 6), 256);
    EXPECT_EQ(vocabulary.tokens[3 + 'A'], "<0x41>");
    const std::string space = "\xe2\x96\x81";
    for (std::size_t i = 3 + 256; i < count; ++i) {
      const std::string& token = vocabulary.tokens[i];
      EXPECT_EQ(vocabulary.types[i], 1);
      if (i > 3 + 256) {
        EXPECT_LT(vocabulary.scores[i], vocabulary.scores[i - 1]);
      }
      if (token.size() == 1 || token == space) continue;
      const std::size_t first = token.starts_with(space) ? space.size() : 1;
      const std::size_t second = token.substr(first).starts_with(space) ? space.size() : 1;
      const bool pair = first + second == token.size();
      EXPECT_TRUE(known.count(token.substr(0, pair ? first : first + second)) == 1 &&
                  known.count(token.substr(pair ? first : first + second)) == 1)
          << token;
    }
  }
}

TEST(SynthVocabulary, Llama3HasItsSpecialTokensAtTheirPlaces) {
  const synth::Vocabulary vocabulary = synth::MakeVocabulary(SynthVocab::kLlama3, 128256);
  EXPECT_EQ(vocabulary.bos, 128000u);
  EXPECT_EQ(vocabulary.eos, 128009u);
  EXPECT_EQ(vocabulary.tokens[128000], "<|begin_of_text|>");
  EXPECT_EQ(vocabulary.tokens[128009], "<|eot_id|>");
  EXPECT_EQ(vocabulary.tokens[0], "\xC4\x80");  // byte 0 is spelled U+0100
  EXPECT_EQ(vocabulary.tokens[' '], "\xC4\xA0");
  EXPECT_EQ(vocabulary.tokens['A'], "A");
}

TEST(Synth, WithoutAFileTheWeightsAreTheSame) {
  const test::TemporaryFolder folder;
  const std::string path = folder.File("model");
  const SynthOptions options = Tiny(DataType::kQ4_K, 7);
  ASSERT_TRUE(WriteSynthetic(options, path));
  const Result<GgufFile> written = GgufFile::Open(path), made = GenerateSynthetic(options);
  ASSERT_TRUE(written && made);
  EXPECT_EQ(made->path(), "tiny-test q4_k");
  ASSERT_EQ(made->tensors().size(), written->tensors().size());
  // In another order than the file's.
  for (std::size_t i = made->tensors().size(); i-- > 0;) {
    const GgufTensor &tensor = made->tensors()[i], &want = written->tensors()[i];
    ASSERT_TRUE(made->Fetch(tensor));
    ASSERT_EQ(tensor.name, want.name);
    EXPECT_TRUE(std::ranges::equal(made->Bytes(tensor), written->Bytes(want))) << want.name;
  }
  EXPECT_FALSE(GenerateSynthetic(Tiny(DataType::kU4)));
}

}  // namespace
}  // namespace tilewright
