// Published keys never change: a change of any line of golden_keys.txt makes every stored artifact
// unreachable, so it requires a new schema number (docs/artifact_key.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "artifact/key_record.h"
#include "artifact/render.h"
#include "core/sha256.h"
#include "key_inputs.h"

namespace tilewright {
namespace {

struct GoldenLine {
  std::string spec, request, action;
};

std::vector<GoldenLine> ReadGolden() {
  std::ifstream in(TILEWRIGHT_TEST_DATA "/artifacts/golden_keys.txt");
  std::vector<GoldenLine> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    GoldenLine golden;
    words >> golden.spec >> golden.request >> golden.action;
    lines.push_back(golden);
  }
  return lines;
}

TEST(GoldenKeys, AreTheCommittedOnes) {
  const std::vector<GoldenLine> golden = ReadGolden();
  const std::vector<KernelSpec> specs = test::FixedSpecs();
  EXPECT_EQ(golden.size(), specs.size());
  EXPECT_GE(golden.size(), 8u);
  std::string actual;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.spec = specs[i];
    const auto request = test::RequestOf(inputs);
    const auto action = test::ActionOf(inputs);
    ASSERT_TRUE(request && action);
    actual += SpecName(specs[i]) + " " + request->key.Hex() + " " + action->key.Hex() + "\n";
    if (i >= golden.size()) continue;
    EXPECT_EQ(SpecName(specs[i]), golden[i].spec);
    EXPECT_EQ(request->key.Hex(), golden[i].request) << golden[i].spec;
    EXPECT_EQ(action->key.Hex(), golden[i].action) << golden[i].spec;
  }
  if (HasFailure()) ADD_FAILURE() << "these keys are:\n" << actual;
}

TEST(GoldenKeys, AreDistinct) {
  std::set<std::string> keys;
  for (const GoldenLine& golden : ReadGolden()) {
    keys.insert(golden.request);
    keys.insert(golden.action);
  }
  EXPECT_EQ(keys.size(), 2 * test::FixedSpecs().size());
}

TEST(RenderedSpec, ChangesOnlyWithItsRevision) {
  std::string all;
  for (const KernelSpec& spec : test::FixedSpecs()) all += RenderSpec(spec, "tw_symbol");
  EXPECT_EQ(kRenderRevision, 1u);
  EXPECT_EQ(*Sha256Hex(all), "9eb378162d0e9ad124976019486bda74b5f1d64214d065b92b4ee17644e61729")
      << "the text of spec.cuh changed: bump kRenderRevision, then this digest\n"
      << RenderSpec(test::FixedSpecs()[7], "tw_symbol");
}

TEST(RenderedSpec, ShowsEveryFieldToTheKernel) {
  KernelSpec spec = test::FixedSpecs()[7];
  spec.arch = {90, 'a'};
  spec.type_b = DataType::kF8E4M3;
  spec.type_c = DataType::kQ4_1;
  EXPECT_EQ(RenderSpec(spec, "tw_keys_0123"), R"(#pragma once
#include "device/cuda/kernels/types.cuh"
#define TW_ARCH 90
#define TW_ARCH_SUFFIX_A 1
#define TW_ARCH_SUFFIX_F 0
#define TILEWRIGHT_KERNEL tw_keys_0123
namespace tw::spec {
inline constexpr Type kTypeA = Type::kBF16;
inline constexpr Type kTypeB = Type::kF8E4M3;
inline constexpr Type kTypeC = Type::kQ4_1;
inline constexpr Type kTypeD = Type::kBF16;
inline constexpr bool kRowMajorA = true;
inline constexpr bool kRowMajorB = false;
inline constexpr Epilogue kEpilogue = Epilogue::kScale;
inline constexpr int kStages = 4;
inline constexpr int kTileM = 128;
inline constexpr int kTileN = 128;
inline constexpr int kTileK = 32;
inline constexpr int kWarps = 4;
inline constexpr int kSplitK = 0;
inline constexpr int kClusterM = 0;
inline constexpr int kClusterN = 0;
inline constexpr int kParam0 = -1;
inline constexpr int kParam1 = 2147483647;
inline constexpr int kParam2 = -2147483647 - 1;
inline constexpr int kParam3 = 7;
}  // namespace tw::spec
)");
}

TEST(RenderedSpec, NamesOnlyTypesThatTheDeviceHeaderHas) {
  const auto sources = EmbeddedSources();
  const auto types = std::find_if(sources.begin(), sources.end(), [](const SourceFile& file) {
    return file.name == kSpecHeaderInclude;
  });
  ASSERT_NE(types, sources.end());
  for (int i = 0; i < 256; ++i) {
    KernelSpec spec = test::FixedSpecs()[0];
    spec.type_a = static_cast<DataType>(i);
    if (DataTypeName(spec.type_a) == "none" && i != 0) break;
    const std::string text = RenderSpec(spec, "s");
    const std::string before = "kTypeA = Type::";
    const std::size_t at = text.find(before) + before.size();
    const std::string name = text.substr(at, text.find(';', at) - at);
    EXPECT_NE(types->text.find("\n  " + name + ","), std::string_view::npos) << name;
  }
}

TEST(KernelSymbol, IsTheFamilyAndTheKey) {
  const auto prepared = test::Prepare(test::FixedInputs());
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->input.symbol, "tw_keys_" + prepared->input.request.key.Hex().substr(0, 16));
  EXPECT_NE(
      prepared->input.spec_header->find("#define TILEWRIGHT_KERNEL " + prepared->input.symbol),
      std::string::npos);
}

TEST(PrepareCompile, GivesTheCompilerExactlyWhatTheKeyCovers) {
  const auto prepared = test::Prepare(test::FixedInputs());
  ASSERT_TRUE(prepared);
  const CompileInput moved = prepared->input;
  const CompileJob job = moved.Job();
  EXPECT_EQ(job.name, "keys/unit.cu");
  EXPECT_EQ(job.source, test::FixedInputs().files["keys/unit.cu"]);
  std::vector<std::string> names;
  for (const SourceFile& header : job.headers) names.emplace_back(header.name);
  EXPECT_EQ(names, (std::vector<std::string>{"spec.cuh", "device/cuda/kernels/types.cuh",
                                             "keys/deep.cuh", "keys/inner.cuh"}));
  EXPECT_EQ(job.headers[0].text, RenderSpec(moved.spec, moved.symbol));
  EXPECT_EQ(moved.launch.threads, 128u);
  EXPECT_EQ(moved.launch_abi, 2u);
}

TEST(PrepareCompile, ASpecThatTheFamilyRefusesIsAnErrorInItsWords) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.spec.tile_m = 13;
  const auto prepared = test::Prepare(inputs);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(prepared.error().message.find("tile_m = 13"), std::string::npos);
}

TEST(MinDriver, IsTheCompilersVersion) {
  const auto of = [](const char* version) {
    CompilerIdentity compiler;
    compiler.version = version;
    return MinDriver(compiler);
  };
  EXPECT_EQ(of("13.0"), 13000u);
  EXPECT_EQ(of("13.5"), 13050u);
  EXPECT_EQ(of("12.9.1"), 12090u);
  EXPECT_EQ(of("13"), 0u);
  EXPECT_EQ(of("13."), 0u);
  EXPECT_EQ(of("13.x"), 0u);
  EXPECT_EQ(of("13.0x"), 0u);
  EXPECT_EQ(of(""), 0u);
  EXPECT_EQ(of("4294967295.9"), 0u);
}

}  // namespace
}  // namespace tilewright
