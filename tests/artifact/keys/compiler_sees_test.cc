// With the real compiler: what the key does not cover, it cannot see.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "key_inputs.h"
#include "tilewright/artifact.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

/// Runs in a folder of its own, where files lie under the virtual names of a kernel.
class CompilerSees : public testing::Test {
 protected:
  CompilerSees() : before_(fs::current_path()) {
    std::string pattern = testing::TempDir() + "compiler_sees_XXXXXX";
    root_ = mkdtemp(pattern.data());
    for (const char* name : {"real.cuh", "keys/real.cuh", "keys/unit.cu", "keys/inner.cuh"}) {
      fs::create_directories((root_ / name).parent_path());
      std::ofstream(root_ / name) << "#error a file of this machine\n#define TW_REAL 1\n";
    }
  }
  void SetUp() override {
    const auto compiler = LoadNvrtc();
    if (!compiler) GTEST_SKIP() << compiler.error().message;
    compiler_ = *compiler;
  }
  ~CompilerSees() override {
    fs::current_path(before_);
    fs::remove_all(root_);
  }

  /// The entry file of `inputs` by the real compiler, in folder `where`; "" with a failure told.
  std::string EntryIn(const fs::path& where, const test::KeyInputs& inputs) {
    fs::current_path(where);
    const auto prepared = test::Prepare(inputs);
    if (!prepared) {
      ADD_FAILURE() << prepared.error().message;
      return "";
    }
    auto output = compiler_->Compile(prepared->input.Job(), {});
    if (!output) {
      ADD_FAILURE() << output.error().error.message << "\n" << output.error().log;
      return "";
    }
    output->compile_ms = 0;
    output->log.clear();  // has times in it
    const auto entry = MakeEntry(prepared->input, compiler_->identity(), *output);
    EXPECT_TRUE(entry) << entry.error().message;
    return entry ? *entry : "";
  }

  fs::path before_, root_;
  std::shared_ptr<const KernelCompiler> compiler_;
};

TEST_F(CompilerSees, NoFileOfTheWorkingDirectory) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.files["keys/unit.cu"] = R"(#include "spec.cuh"
#include "keys/inner.cuh"
#if __has_include("real.cuh") || __has_include("keys/real.cuh") || __has_include(<real.cuh>)
#error sees files that the key does not cover
#endif
#if !__has_include("keys/deep.cuh")
#error does not see a header of its own
#endif
extern "C" __global__ void TILEWRIGHT_KERNEL(const tw::Params params) {
  params.out[0] = tw::Deep(tw::spec::kTileM);
}
)";
  const std::string elsewhere = EntryIn("/", inputs);
  const std::string here = EntryIn(root_, inputs);
  ASSERT_FALSE(here.empty());
  EXPECT_EQ(here, elsewhere);
}

TEST_F(CompilerSees, TheSymbolAndTheConstantsOfTheSpec) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.spec.params = {-5, 0, -2147483647 - 1, 2147483647};
  inputs.files["keys/unit.cu"] += R"(
static_assert(tw::spec::kTypeA == tw::Type::kBF16 && tw::spec::kTypeC == tw::Type::kNone);
static_assert(tw::spec::kRowMajorA && !tw::spec::kRowMajorB && tw::spec::kStages == 4);
static_assert(tw::spec::kEpilogue == tw::Epilogue::kNone && tw::spec::kWarps == 4);
static_assert(tw::spec::kParam0 == -5 && tw::spec::kParam3 == 2147483647);
static_assert(tw::spec::kParam2 < 0 && tw::spec::kParam2 + 2147483647 == -1);
static_assert(TW_ARCH == 80 && TW_ARCH_SUFFIX_A == 0 && TW_ARCH_SUFFIX_F == 0);
)";
  const std::string entry = EntryIn("/", inputs);
  const auto data = DecodeArtifact(entry);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_NE(data->ptx.find(data->symbol), std::string_view::npos);
  EXPECT_NE(data->cubin.find(data->symbol), std::string_view::npos);
  EXPECT_GT(data->resources.registers, 0u);
  EXPECT_GE(data->min_driver, 12000u);
}

TEST_F(CompilerSees, EveryOptionThatAFamilyMayGive) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.options = {{"--extra-device-vectorization", ""},
                    {"--fmad", "true"},
                    {"--maxrregcount", "64"},
                    {"--restrict", ""},
                    {"--use_fast_math", ""}};
  EXPECT_FALSE(EntryIn("/", inputs).empty());
}

}  // namespace
}  // namespace tilewright
