#include "artifact/compile_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "key_inputs.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(CompilerOptions, AreThoseOfEveryKernelTheFamilysTheArchitectureAndTheSeed) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.options = {{"--use_fast_math", ""}, {"--fmad", "false"}};
  inputs.spec.arch = {90, 'a'};
  const auto prepared = test::Prepare(inputs);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_THAT(
      prepared->input.options,
      ElementsAre("--std=c++17", "-default-device", "--no-source-include", "--ptxas-options=-v",
                  "--no-cache", "--fmad=false", "--use_fast_math", "--gpu-architecture=sm_90a",
                  "--frandom-seed=" + prepared->input.request.key.Hex().substr(0, 16)));
}

TEST(CompilerOptions, AnOptionThatIsNotOnTheListIsAnErrorByName) {
  const struct {
    const char *flag, *value, *why;
  } cases[] = {{"--generate-line-info", "", "not one of the options"},
               {"-I/usr/include", "", "not one of the options"},
               {"--pch", "", "not one of the options"},
               {"--gpu-architecture", "sm_80", "derived"},
               {"--frandom-seed", "1", "derived"},
               {"--std", "c++20", "every kernel"},
               {"--no-cache", "", "every kernel"},
               {"--fmad", "1", "true or false"},
               {"--fmad", "", "true or false"},
               {"--restrict", "true", "absent"},
               {"--maxrregcount", "0", "1 to 255"},
               {"--maxrregcount", "256", "1 to 255"},
               {"--maxrregcount", "64k", "1 to 255"},
               {"", "", "not one of the options"}};
  for (const auto& bad : cases) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.options = {{bad.flag, bad.value}};
    const auto request = test::RequestOf(inputs);
    ASSERT_FALSE(request) << bad.flag;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(request.error().message, HasSubstr(bad.flag));
    EXPECT_THAT(request.error().message, HasSubstr(bad.why));
    EXPECT_THAT(request.error().message, HasSubstr("\"keys\"")) << "names the family";
  }
}

TEST(CompilerOptions, AnOptionGivenTwiceIsAnError) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.options = {{"--fmad", "false"}, {"-fmad=true", ""}};
  const auto request = test::RequestOf(inputs);
  ASSERT_FALSE(request);
  EXPECT_THAT(request.error().message, HasSubstr("--fmad: given twice"));
}

TEST(CompilerOptions, OrderAndSpellingDoNotMatter) {
  using Options = std::vector<std::pair<std::string, std::string>>;
  test::KeyInputs inputs = test::FixedInputs();
  inputs.options = {{"--fmad", "false"}, {"--maxrregcount", "64"}, {"--restrict", ""}};
  const auto key = test::RequestOf(inputs)->key;
  for (const Options& same :
       {Options{{"--restrict", ""}, {"--maxrregcount", "64"}, {"--fmad", "false"}},
        Options{{"-restrict", ""}, {"-maxrregcount=064", ""}, {"--fmad=false", ""}}}) {
    inputs.options = same;
    const auto request = test::RequestOf(inputs);
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->key, key);
  }
  inputs.options = {{"--fmad", "false"}, {"--maxrregcount", "65"}, {"--restrict", ""}};
  EXPECT_NE(test::RequestOf(inputs)->key, key);
}

TEST(CompilerOptions, TheFamilysOptionsComeBackFromTheRecord) {
  const std::vector<CompileOption> given = {{"--fmad", "true"}, {"--use_fast_math", ""}};
  const auto recorded = RecordedOptions(given);
  ASSERT_TRUE(recorded);
  const auto back = FamilyOptionsOf(*recorded);
  ASSERT_TRUE(back);
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].flag, "--fmad");
  EXPECT_EQ((*back)[0].value, "true");
  EXPECT_EQ((*back)[1].flag, "--use_fast_math");

  std::vector<NormalOption> of_another_version = *recorded;
  for (NormalOption& option : of_another_version) {
    if (option.flag == "--std") option.value = "c++20";
  }
  EXPECT_EQ(FamilyOptionsOf(of_another_version).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tilewright
