// Model files that are well-formed GGUF and yet no model, and machines with too little memory: one
// error each, which names what is wrong.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "models.h"
#include "probe.h"
#include "tilewright/log.h"

namespace tilewright {
namespace {

using test::EditedModel;
using test::Runner;
using test::WriteTiny;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Case {
  const char* what;
  std::function<void(EditedModel&)> edit;
  ErrorCode code;
  std::vector<const char*> words;  ///< that the message must hold
};

class HostileModel : public testing::Test {
 protected:
  void SetUp() override {
    sound_ = WriteTiny(folder_, "sound", test::TinyShape(), DataType::kQ8_0);
  }

  std::string Edited(const std::function<void(EditedModel&)>& edit) {
    EditedModel model(sound_);
    edit(model);
    std::string path = folder_ / "edited.gguf";
    model.Write(path);
    return path;
  }
  static Error LoadError(const std::string& path, const ModelOptions& options = {}) {
    const auto model = Model::Load(path, options);
    if (model) {
      ADD_FAILURE() << "loaded";
      return {};
    }
    return model.error();
  }
  /// Edits the file `sound` as each case says.
  void ExpectRefused(const std::string& sound, const std::vector<Case>& cases) {
    ASSERT_TRUE(Model::Load(sound, {}));
    for (const Case& c : cases) {
      SCOPED_TRACE(c.what);
      EditedModel model(sound);
      c.edit(model);
      model.Write(folder_ / "edited.gguf");
      const Error error = LoadError(folder_ / "edited.gguf");
      EXPECT_EQ(error.code, c.code) << error.message;
      for (const char* word : c.words) EXPECT_THAT(error.message, HasSubstr(word));
    }
  }
  std::string GptOss() {
    return WriteTiny(folder_, "gpt", FindSynthPreset("tiny-test-gpt-oss").value(),
                     DataType::kMXFP4);
  }

  test::TempDir folder_;
  std::string sound_;
};

TEST_F(HostileModel, the_unedited_file_loads) {
  EXPECT_TRUE(Model::Load(Edited([](EditedModel&) {}), {}));
}

TEST_F(HostileModel, metadata_that_cannot_be_names_the_key_and_the_value) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto u32 = [](const char* key, std::uint32_t value) {
    return [=](EditedModel& m) { m.SetU32(key, value); };
  };
  const auto f32 = [](const char* key, float value) {
    return [=](EditedModel& m) { m.SetF32(key, value); };
  };
  const auto text = [](const char* key, const char* value) {
    return [=](EditedModel& m) { m.SetString(key, value); };
  };
  const std::vector<Case> cases = {
      {"unknown architecture",
       text("general.architecture", "mamba"),
       ErrorCode::kUnsupported,
       {"mamba", "llama"}},
      {"architecture of another type",
       u32("general.architecture", 1),
       ErrorCode::kCorrupt,
       {"general.architecture"}},
      {"layers of another type",
       text("llama.block_count", "two"),
       ErrorCode::kCorrupt,
       {"llama.block_count", "string"}},
      {"layers as a float",
       f32("llama.block_count", 2),
       ErrorCode::kCorrupt,
       {"llama.block_count"}},
      {"layers below zero",
       [](EditedModel& m) { m.SetI32("llama.block_count", -1); },
       ErrorCode::kCorrupt,
       {"llama.block_count"}},
      {"no layers", u32("llama.block_count", 0), ErrorCode::kCorrupt, {"llama.block_count = 0"}},
      {"one layer too many",
       u32("llama.block_count", 3),
       ErrorCode::kNotFound,
       {"blk.2.attn_norm.weight"}},
      {"layers beyond 32 bits",
       [](EditedModel& m) { m.SetU64("llama.block_count", std::uint64_t{1} << 40); },
       ErrorCode::kCorrupt,
       {"llama.block_count"}},
      {"huge layers",
       u32("llama.block_count", 0xffffffffu),
       ErrorCode::kCorrupt,
       {"llama.block_count = 4294967295"}},
      {"fewer layers than the file has",
       u32("llama.block_count", 1),
       ErrorCode::kUnsupported,
       {"blk.1.attn_norm.weight", "llama.block_count = 1"}},
      {"layers beyond the tensors",
       u32("llama.block_count", 1u << 24),
       ErrorCode::kCorrupt,
       {"llama.block_count = 16777216", "20 tensors"}},
      {"huge width",
       u32("llama.embedding_length", 1u << 24),
       ErrorCode::kCorrupt,
       {"token_embd.weight", "16777216"}},
      {"huge context",
       u32("llama.context_length", 0xffffffffu),
       ErrorCode::kCorrupt,
       {"llama.context_length = 4294967295"}},
      {"huge ffn",
       u32("llama.feed_forward_length", 1u << 24),
       ErrorCode::kCorrupt,
       {"ffn", "16777216"}},
      {"no heads",
       u32("llama.attention.head_count", 0),
       ErrorCode::kCorrupt,
       {"llama.attention.head_count = 0"}},
      {"heads that do not divide the width",
       u32("llama.attention.head_count", 3),
       ErrorCode::kCorrupt,
       {"embedding_length = 64", "head_count = 3"}},
      {"heads that do not share",
       u32("llama.attention.head_count_kv", 3),
       ErrorCode::kCorrupt,
       {"head_count = 4", "head_count_kv = 3"}},
      {"more KV heads than heads",
       u32("llama.attention.head_count_kv", 8),
       ErrorCode::kCorrupt,
       {"head_count = 4", "head_count_kv = 8"}},
      {"values of another size than keys",
       u32("llama.attention.value_length", 8),
       ErrorCode::kUnsupported,
       {"value_length"}},
      {"odd rotation",
       u32("llama.rope.dimension_count", 7),
       ErrorCode::kCorrupt,
       {"llama.rope.dimension_count = 7"}},
      {"rotation beyond the head",
       u32("llama.rope.dimension_count", 32),
       ErrorCode::kCorrupt,
       {"dimension_count = 32", "head_dim = 16"}},
      {"base of zero",
       f32("llama.rope.freq_base", 0),
       ErrorCode::kCorrupt,
       {"llama.rope.freq_base = 0"}},
      {"base that is no number",
       f32("llama.rope.freq_base", nan),
       ErrorCode::kCorrupt,
       {"llama.rope.freq_base"}},
      {"base of another type",
       text("llama.rope.freq_base", "10000"),
       ErrorCode::kCorrupt,
       {"llama.rope.freq_base", "string"}},
      {"unknown scaling",
       text("llama.rope.scaling.type", "dynamic"),
       ErrorCode::kUnsupported,
       {"llama.rope.scaling.type", "dynamic", "yarn"}},
      {"yarn without a factor",
       text("llama.rope.scaling.type", "yarn"),
       ErrorCode::kCorrupt,
       {"llama.rope.scaling.factor = 0", "yarn"}},
      {"yarn whose bounds cross",
       [](EditedModel& m) {
         m.SetString("llama.rope.scaling.type", "yarn");
         m.SetF32("llama.rope.scaling.factor", 4);
         m.SetF32("llama.rope.scaling.yarn_beta_slow", 64);
       },
       ErrorCode::kCorrupt,
       {"yarn_beta_slow = 64", "yarn_beta_fast = 32"}},
      {"yarn over a base that does not turn",
       [](EditedModel& m) {
         m.SetString("llama.rope.scaling.type", "yarn");
         m.SetF32("llama.rope.scaling.factor", 4);
         m.SetF32("llama.rope.freq_base", 1);
       },
       ErrorCode::kCorrupt,
       {"llama.rope.freq_base = 1", "yarn"}},
      {"yarn over factors",
       [](EditedModel& m) {
         m.SetString("llama.rope.scaling.type", "yarn");
         m.SetF32("llama.rope.scaling.factor", 4);
         m.AddF32("rope_freqs.weight", {8, 1, 1, 1}, 1);
       },
       ErrorCode::kUnsupported,
       {"rope_freqs.weight", "llama.rope.scaling.type", "yarn"}},
      {"no original context",
       u32("llama.rope.scaling.original_context_length", 0),
       ErrorCode::kCorrupt,
       {"llama.rope.scaling.original_context_length = 0"}},
      {"a magnitude of nothing",
       f32("llama.rope.scaling.attn_factor", 0),
       ErrorCode::kCorrupt,
       {"llama.rope.scaling.attn_factor", "0"}},
      {"scaling by nothing",
       text("llama.rope.scaling.type", "llama3"),
       ErrorCode::kCorrupt,
       {"llama.rope.scaling.factor = 0"}},
      {"scaling whose bounds cross",
       [](EditedModel& m) {
         m.SetString("llama.rope.scaling.type", "llama3");
         m.SetF32("llama.rope.scaling.factor", 8);
         m.SetF32("llama.rope.scaling.low_freq_factor", 4);
         m.SetF32("llama.rope.scaling.high_freq_factor", 1);
       },
       ErrorCode::kCorrupt,
       {"low_freq_factor = 4", "high_freq_factor = 1"}},
      {"epsilon that is no number",
       f32("llama.attention.layer_norm_rms_epsilon", nan),
       ErrorCode::kCorrupt,
       {"layer_norm_rms_epsilon"}},
      {"epsilon below zero",
       f32("llama.attention.layer_norm_rms_epsilon", -1),
       ErrorCode::kCorrupt,
       {"layer_norm_rms_epsilon = -1"}},
      {"experts", u32("llama.expert_count", 8), ErrorCode::kNotFound, {"llama.expert_used_count"}},
  };
  for (const Case& c : cases) {
    const Error error = LoadError(Edited(c.edit));
    EXPECT_EQ(error.code, c.code) << c.what << ": " << error.message;
    for (const char* word : c.words) EXPECT_THAT(error.message, HasSubstr(word)) << c.what;
  }
}

TEST_F(HostileModel, a_vocabulary_that_disagrees_with_the_embedding_names_both_sizes) {
  const std::int64_t vocab = test::TinyShape().vocab;
  for (const std::int64_t rows : {vocab - 1, vocab + 1}) {
    const GgufFile file = GgufFile::Open(Edited([&](EditedModel& m) {
                            m.Reshape("token_embd.weight", {64, rows, 1, 1}, 2);
                          })).value();
    const auto tokenizer = Tokenizer::FromGguf(file);
    ASSERT_FALSE(tokenizer) << rows;
    EXPECT_EQ(tokenizer.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(tokenizer.error().message,
                AllOf(HasSubstr(std::to_string(vocab) + " tokens"), HasSubstr("token_embd.weight"),
                      HasSubstr(std::to_string(rows))));
  }
}

TEST_F(HostileModel, every_missing_key_is_named) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.context_length", "llama.attention.layer_norm_rms_epsilon"}) {
    const Error error = LoadError(Edited([&](EditedModel& m) { m.RemoveKey(key); }));
    EXPECT_EQ(error.code, ErrorCode::kNotFound) << key;
    EXPECT_THAT(error.message, HasSubstr(key));
  }
}

TEST_F(HostileModel, every_missing_tensor_is_named) {
  for (const char* name : {"token_embd", "output_norm", "blk.0.attn_norm", "blk.0.attn_q",
                           "blk.0.attn_k", "blk.1.attn_v", "blk.1.attn_output", "blk.1.ffn_norm",
                           "blk.0.ffn_gate", "blk.0.ffn_up", "blk.1.ffn_down"}) {
    const std::string full = std::string(name) + ".weight";
    const std::string path = Edited([&](EditedModel& m) { m.RemoveTensor(full); });
    for (const bool fuse : {true, false}) {
      ModelOptions options;
      options.fuse = fuse;
      const Error error = LoadError(path, options);
      EXPECT_EQ(error.code, ErrorCode::kNotFound) << full;
      EXPECT_THAT(error.message, HasSubstr(full));
    }
  }
}

TEST_F(HostileModel, every_tensor_of_a_wrong_shape_is_named_with_both_shapes) {
  for (const char* name : {"token_embd", "output_norm", "blk.0.attn_norm", "blk.0.attn_q",
                           "blk.0.attn_k", "blk.1.attn_v", "blk.1.attn_output", "blk.1.ffn_norm",
                           "blk.0.ffn_gate", "blk.0.ffn_up", "blk.1.ffn_down"}) {
    const std::string full = std::string(name) + ".weight";
    const bool vector = std::strstr(name, "norm") != nullptr;
    const Error error = LoadError(Edited([&](EditedModel& m) {
      m.Reshape(full, {32, vector ? 1 : 5, 1, 1}, vector ? 1 : 2);
    }));
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << full << ": " << error.message;
    EXPECT_THAT(error.message, AllOf(HasSubstr(full), HasSubstr("[32, "), HasSubstr("expected [")))
        << full;
  }
  const Error cube = LoadError(Edited([](EditedModel& m) {
    m.Reshape("blk.0.attn_q.weight", {64, 64, 2, 1}, 3);
  }));
  EXPECT_THAT(cube.message, HasSubstr("[64, 64, 2, 1]"));
}

TEST_F(HostileModel, tensors_that_would_change_the_result_are_refused_not_ignored) {
  const struct {
    const char* name;
    const char* word;
  } cases[] = {{"blk.0.attn_q.bias", "biases"},
               {"blk.0.attn_sinks.weight", "no such tensor"},
               {"blk.1.ffn_gate_inp.weight", "experts"},
               {"blk.1.ffn_up_exps.weight", "experts"}};
  for (const auto& c : cases) {
    const Error error = LoadError(Edited([&](EditedModel& m) {
      m.AddF32(c.name, {64, 1, 1, 1}, 1);
    }));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, AllOf(HasSubstr(c.name), HasSubstr(c.word)));
  }
}

TEST_F(HostileModel, tensors_that_repeat_the_metadata_are_left_out_with_one_line) {
  const std::string path = Edited([](EditedModel& m) {
    m.AddF32("blk.0.attn_rot_embd", {8, 1, 1, 1}, 1);
    m.AddF32("blk.1.attn_rot_embd", {8, 1, 1, 1}, 1);
  });
  std::vector<std::string> lines;
  const auto keep = [](void* to, LogLevel, std::string_view line) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(line);
  };
  const LogSink before = SetLogSink({keep, &lines, LogLevel::kDebug});
  const auto model = Model::Load(path, {});
  SetLogSink(before);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0],
              AllOf(HasSubstr(path), HasSubstr("2 tensors"), HasSubstr("blk.0.attn_rot_embd")));
}

TEST_F(HostileModel, factors_for_contexts_of_one_kind_only_name_the_other) {
  const SynthShape shape = FindSynthPreset("tiny-test-phi3").value();
  const std::string sound = WriteTiny(folder_, "phi3", shape, DataType::kF32);
  for (const auto& [removed, kept] : {std::pair("rope_factors_long.weight", "_short.weight"),
                                      std::pair("rope_factors_short.weight", "_long.weight")}) {
    EditedModel model(sound);
    model.RemoveTensor(removed);
    model.Write(folder_ / "half.gguf");
    const Error error = LoadError(folder_ / "half.gguf");
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_THAT(error.message, AllOf(HasSubstr(removed), HasSubstr(kept)));
  }
  EditedModel model(sound);
  model.Reshape("blk.3.ffn_up.weight", {72, 199, 1, 1}, 2);
  model.Write(folder_ / "short.gguf");
  EXPECT_THAT(LoadError(folder_ / "short.gguf").message,
              AllOf(HasSubstr("blk.3.ffn_up.weight"), HasSubstr("[72, 199, "),
                    HasSubstr("expected [72, 200]")));
}

TEST_F(HostileModel, windows_and_caps_that_cannot_be_are_named_by_key_and_value) {
  const SynthShape shape = FindSynthPreset("tiny-test-gemma3").value();
  const std::string sound = WriteTiny(folder_, "windows", shape, DataType::kF32);
  const std::string pattern = "gemma3.attention.sliding_window_pattern";
  const std::vector<Case> cases = {
      {"no window",
       [](EditedModel& m) { m.SetU32("gemma3.attention.sliding_window", 0); },
       ErrorCode::kCorrupt,
       {"gemma3.attention.sliding_window = 0"}},
      {"no period",
       [&](EditedModel& m) { m.SetU32(pattern, 0); },
       ErrorCode::kCorrupt,
       {"gemma3.attention.sliding_window_pattern = 0"}},
      {"a pattern of another type",
       [&](EditedModel& m) { m.SetString(pattern, "5:1"); },
       ErrorCode::kCorrupt,
       {pattern.c_str(), "string"}},
      {"a pattern for fewer blocks",
       [&](EditedModel& m) {
         m.SetBools(pattern, {true, false});
       },
       ErrorCode::kCorrupt,
       {pattern.c_str(), "2 elements", "7 blocks"}},
      {"a base of zero",
       [](EditedModel& m) { m.SetF32("gemma3.rope.freq_base_swa", 0); },
       ErrorCode::kCorrupt,
       {"gemma3.rope.freq_base_swa = 0"}},
      {"a negative cap",
       [](EditedModel& m) { m.SetF32("gemma3.final_logit_softcapping", -1); },
       ErrorCode::kCorrupt,
       {"gemma3.final_logit_softcapping = -1"}},
      {"factors of one base for two",
       [](EditedModel& m) {
         m.SetString("gemma3.rope.scaling.type", "yarn");
         m.SetF32("gemma3.rope.scaling.factor", 4);
       },
       ErrorCode::kUnsupported,
       {"gemma3.rope.scaling.type", "yarn", "window"}},
      {"experts",
       [](EditedModel& m) { m.SetU32("gemma3.expert_count", 8); },
       ErrorCode::kUnsupported,
       {"gemma3.expert_count"}}};
  ExpectRefused(sound, cases);
}

TEST_F(HostileModel, experts_that_cannot_be_name_the_key_or_the_tensor) {
  const std::string sound =
      WriteTiny(folder_, "experts", FindSynthPreset("tiny-test-mixtral").value(), DataType::kQ8_0);
  const std::string required =
      WriteTiny(folder_, "qwen", FindSynthPreset("tiny-test-qwen3moe").value(), DataType::kQ8_0);
  const auto u32 = [](const char* key, std::uint32_t value) {
    return [=](EditedModel& m) { m.SetU32(key, value); };
  };
  const std::vector<Case> cases = {
      {"more than there may be",
       u32("llama.expert_count", 1025),
       ErrorCode::kCorrupt,
       {"llama.expert_count = 1025", "1024"}},
      {"more than there are",
       u32("llama.expert_count", 6),
       ErrorCode::kCorrupt,
       {"blk.0.ffn_gate_inp.weight", "[64, 6]"}},
      {"none used",
       u32("llama.expert_used_count", 0),
       ErrorCode::kCorrupt,
       {"llama.expert_used_count = 0"}},
      {"more used than there are",
       u32("llama.expert_used_count", 6),
       ErrorCode::kCorrupt,
       {"llama.expert_used_count = 6", "expert_count = 5"}},
      {"another width",
       u32("llama.expert_feed_forward_length", 64),
       ErrorCode::kCorrupt,
       {"blk.0.ffn_gate_exps.weight", "[64, 64, 5]"}},
      {"tensors of experts without their number",
       [](EditedModel& m) { m.RemoveKey("llama.expert_count"); },
       ErrorCode::kUnsupported,
       {"blk.0.ffn_gate_inp.weight", "experts"}},
      {"no router",
       [](EditedModel& m) { m.RemoveTensor("blk.1.ffn_gate_inp.weight"); },
       ErrorCode::kNotFound,
       {"blk.1.ffn_gate_inp.weight"}},
      {"no experts",
       [](EditedModel& m) { m.RemoveTensor("blk.1.ffn_down_exps.weight"); },
       ErrorCode::kNotFound,
       {"blk.1.ffn_down_exps.weight"}},
      {"a dense feed-forward beside them",
       [](EditedModel& m) {
         m.AddF32("blk.0.ffn_up.weight", {64, 96, 1, 1}, 2);
       },
       ErrorCode::kUnsupported,
       {"blk.0.ffn_up.weight"}},
      {"a tensor for each expert",
       [](EditedModel& m) {
         m.AddF32("blk.0.ffn_up.3.weight", {64, 96, 1, 1}, 2);
       },
       ErrorCode::kUnsupported,
       {"blk.0.ffn_up.3.weight", "convert the model again"}}};
  ExpectRefused(sound, cases);
  EditedModel model(required);
  model.SetU32("qwen3moe.expert_count", 1);
  model.Write(folder_ / "edited.gguf");
  EXPECT_THAT(LoadError(folder_ / "edited.gguf").message,
              HasSubstr("qwen3moe.expert_count = 1, must be 2 to 1024"));
}

TEST_F(HostileModel, tensors_that_gpt_oss_lacks_or_has_of_another_shape_are_named) {
  const auto without = [](const char* tensor) {
    return [=](EditedModel& m) { m.RemoveTensor(tensor); };
  };
  const auto shaped = [](const char* tensor, std::array<std::int64_t, 4> shape, int dims) {
    return [=](EditedModel& m) { m.Reshape(tensor, shape, dims); };
  };
  const std::vector<Case> cases = {
      {"no sinks",
       without("blk.1.attn_sinks.weight"),
       ErrorCode::kNotFound,
       {"blk.1.attn_sinks.weight"}},
      {"sinks of fewer heads",
       shaped("blk.0.attn_sinks.weight", {4, 2, 1, 1}, 2),
       ErrorCode::kCorrupt,
       {"blk.0.attn_sinks.weight", "[4, 2, 1, 1]", "[8"}},
      {"no bias of the output",
       without("blk.2.attn_output.bias"),
       ErrorCode::kNotFound,
       {"blk.2.attn_output.bias"}},
      {"no bias of the router",
       without("blk.0.ffn_gate_inp.bias"),
       ErrorCode::kNotFound,
       {"blk.0.ffn_gate_inp.bias"}},
      {"no biases of experts",
       without("blk.0.ffn_up_exps.bias"),
       ErrorCode::kNotFound,
       {"blk.0.ffn_up_exps.bias"}},
      {"biases of experts the other way",
       shaped("blk.0.ffn_gate_exps.bias", {6, 64, 1, 1}, 2),
       ErrorCode::kCorrupt,
       {"blk.0.ffn_gate_exps.bias", "[6, 64, 1, 1]", "[64, 6]"}},
      {"biases of experts as one row",
       shaped("blk.0.ffn_gate_exps.bias", {384, 1, 1, 1}, 1),
       ErrorCode::kCorrupt,
       {"blk.0.ffn_gate_exps.bias", "[384, 1, 1, 1]"}},
      {"no output projection", without("output.weight"), ErrorCode::kNotFound, {"output.weight"}},
      {"a norm of heads",
       [](EditedModel& m) {
         m.AddF32("blk.0.attn_q_norm.weight", {32, 1, 1, 1}, 1);
       },
       ErrorCode::kUnsupported,
       {"blk.0.attn_q_norm.weight"}}};
  ExpectRefused(GptOss(), cases);
}

TEST_F(HostileModel, keys_that_gpt_oss_cannot_have_are_named) {
  const auto u32 = [](const char* key, std::uint32_t value) {
    return [=](EditedModel& m) { m.SetU32(key, value); };
  };
  const std::vector<Case> cases = {
      {"another number of heads than sinks",
       u32("gpt-oss.attention.head_count", 4),
       ErrorCode::kCorrupt,
       {"blk.0.attn_q.weight", "128"}},
      {"experts beyond the tensors",
       u32("gpt-oss.expert_count", 7),
       ErrorCode::kCorrupt,
       {"blk.0.ffn_gate_inp.weight", "[96, 7]"}},
      {"more experts used than there are",
       u32("gpt-oss.expert_used_count", 7),
       ErrorCode::kCorrupt,
       {"gpt-oss.expert_used_count = 7", "expert_count = 6"}},
      {"a single expert",
       u32("gpt-oss.expert_count", 1),
       ErrorCode::kCorrupt,
       {"gpt-oss.expert_count = 1"}},
      {"a window of nothing",
       u32("gpt-oss.attention.sliding_window", 0),
       ErrorCode::kCorrupt,
       {"gpt-oss.attention.sliding_window = 0"}},
      {"a pattern of nothing",
       u32("gpt-oss.attention.sliding_window_pattern", 0),
       ErrorCode::kCorrupt,
       {"gpt-oss.attention.sliding_window_pattern = 0"}},
      {"windows that rotate otherwise",
       [](EditedModel& m) { m.SetF32("gpt-oss.rope.freq_base_swa", 500); },
       ErrorCode::kUnsupported,
       {"gpt-oss.rope.scaling.type", "yarn"}},
      {"scaling by nothing",
       [](EditedModel& m) { m.SetF32("gpt-oss.rope.scaling.factor", 0); },
       ErrorCode::kCorrupt,
       {"gpt-oss.rope.scaling.factor = 0"}}};
  ExpectRefused(GptOss(), cases);
}

TEST_F(HostileModel, a_window_beyond_the_context_of_gpt_oss_is_none) {
  EditedModel model(GptOss());
  model.SetU32("gpt-oss.attention.sliding_window", 1u << 20);
  model.Write(folder_ / "edited.gguf");
  const auto loaded = Model::Load(folder_ / "edited.gguf", {});
  EXPECT_TRUE(loaded) << loaded.error().message;
}

TEST_F(HostileModel, biases_of_experts_must_be_f32) {
  EditedModel model(GptOss());
  model.tensor("blk.1.ffn_down_exps.bias").spec.dtype = DataType::kF16;
  model.Reshape("blk.1.ffn_down_exps.bias", {96, 6, 1, 1}, 2);
  model.Write(folder_ / "edited.gguf");
  const Error error = LoadError(folder_ / "edited.gguf");
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("blk.1.ffn_down_exps.bias"), HasSubstr("f16")));
}

TEST_F(HostileModel, a_norm_of_another_type_and_a_type_nobody_runs_are_named) {
  const Error norm = LoadError(Edited([](EditedModel& m) {
    m.tensor("output_norm.weight").spec.dtype = DataType::kF16;
    m.Reshape("output_norm.weight", {64, 1, 1, 1}, 1);
  }));
  EXPECT_EQ(norm.code, ErrorCode::kUnsupported);
  EXPECT_THAT(norm.message, AllOf(HasSubstr("output_norm.weight"), HasSubstr("f16")));

  // The writer knows no iq1_s: change the number in a file whose rows of 256 it divides.
  const std::string path = WriteTiny(folder_, "wide", test::WideShape(), DataType::kF32);
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string name = "blk.0.attn_q.weight";
  const std::size_t at =
      bytes.find(name) + name.size() + 4 + 2 * 8;  // past the number of dimensions and two of them
  ASSERT_LT(at, bytes.size());
  ASSERT_EQ(bytes[at], 0) << "f32";
  bytes[at] = 19;
  std::ofstream(path, std::ios::binary) << bytes;
  const Error error = LoadError(path);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported) << error.message;
  EXPECT_THAT(error.message, AllOf(HasSubstr(name), HasSubstr("iq1_s")));
}

TEST_F(HostileModel, weights_that_are_no_numbers_end_a_generation_with_an_error) {
  for (const char* name : {"output_norm.weight", "blk.0.ffn_norm.weight"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const std::string path = Edited(
          [&](EditedModel& m) { std::memcpy(m.tensor(name).bytes.data(), &bad, sizeof bad); });
      auto runner = Runner::Make(path, {.activations = Precision::kAuto});
      ASSERT_NE(runner, nullptr);
      const std::vector<TokenId> prompt = {1, 2, 3};
      const auto result = Generate(*runner->session, prompt, {}, {});
      ASSERT_FALSE(result) << name << " " << bad;
      EXPECT_EQ(result.error().code, ErrorCode::kNumeric) << result.error().message;
    }
  }
}

TEST_F(HostileModel, a_load_can_be_cancelled_at_any_step_and_tells_how_far_it_is) {
  auto runner = Runner::Make(sound_, {});
  ASSERT_NE(runner, nullptr);
  std::vector<double> steps;
  ModelOptions options;
  options.packer = runner->cpu.get();
  options.progress = [&](double done) {
    steps.push_back(done);
    return true;
  };
  ASSERT_TRUE(Model::Load(sound_, options));
  ASSERT_GE(steps.size(), 3u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.back(), 1.0);
  for (std::size_t stop = 1; stop <= steps.size(); ++stop) {
    std::size_t calls = 0;
    options.progress = [&](double) { return ++calls < stop; };
    const Error error = LoadError(sound_, options);
    EXPECT_EQ(error.code, ErrorCode::kCancelled);
    EXPECT_EQ(calls, stop);
  }
}

TEST_F(HostileModel, a_cache_whose_page_table_alone_is_absurd_is_refused_with_its_size) {
  auto runner = Runner::Make(sound_, {});
  ASSERT_NE(runner, nullptr);
  SessionOptions options;
  options.context = options.slots = 1 << 30;  // 2^60 positions, 2^52 pages
  const auto session = Session::Create(*runner->model, *runner->cpu, options);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(session.error().message,
              AllOf(HasSubstr("1073741824 positions"), HasSubstr("1073741824 sequence"),
                    HasSubstr("pages, at most")));
}

TEST_F(HostileModel, a_cache_type_that_does_not_divide_the_heads_names_them) {
  auto runner = Runner::Make(sound_, {});
  ASSERT_NE(runner, nullptr);
  SessionOptions options;
  options.kv = DataType::kQ8_0;
  const auto session = Session::Create(*runner->model, *runner->cpu, options);
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(session.error().message,
              AllOf(HasSubstr("q8_0"), HasSubstr("head_dim = 16"), HasSubstr("32")));
}

using HostileModelDeathTest = HostileModel;

TEST_F(HostileModelDeathTest, too_little_address_space_is_an_error_with_numbers_not_a_crash) {
  if (!test::ProbeWorks()) GTEST_SKIP() << "a sanitizer needs address space of its own";
  SynthShape shape = test::WideShape();
  shape.ffn = 4096;
  const std::string path = WriteTiny(folder_, "large", shape, DataType::kF32);
  const auto starved = [&] {
    const std::unique_ptr<Kernels> kernels = MakeCpuKernels();
    DispatchOptions options;
    options.feasible.providers = Bit(Provider::kOwn);
    DeviceDispatch dispatch(*kernels, HostDevice(), options);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // The file can be mapped, the packed weights beside it cannot.
    const std::size_t bytes = std::filesystem::file_size(path);
    const rlim_t limit = pages * 4096 + bytes + bytes / 2;
    const rlimit lower{limit, limit};
    setrlimit(RLIMIT_AS, &lower);
    ModelOptions model_options;
    model_options.packer = &dispatch;
    const auto model = Model::Load(path, model_options);
    std::fprintf(stderr, "%s\n", model ? "loaded" : model.error().message.c_str());
    std::_Exit(!model && model.error().code == ErrorCode::kOutOfMemory ? 0 : 1);
  };
  EXPECT_EXIT(starved(), testing::ExitedWithCode(0),
              "the weights need [0-9.]+ MiB, [0-9.]+ MiB of memory are available");
}

}  // namespace
}  // namespace tilewright
