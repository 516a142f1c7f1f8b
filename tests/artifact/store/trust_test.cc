// What must not be served: an artifact made for another launch or other limits, one of an older key
// schema, and whatever lies where others could have put it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "store_fixture.h"
#include "tilewright/bundle.h"

namespace tilewright::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

KernelFamilies With(void (*change)(KernelFamily&)) {
  KernelFamilies changed;
  const KernelFamilies before = FakeFamilies();
  for (KernelFamily family : before.all()) {
    change(family);
    EXPECT_TRUE(changed.Add(family));
  }
  return changed;
}

TEST_F(StoreTest, AnArtifactOfAnotherLaunchShapeOrLimitIsAMissInEveryLayer) {
  const auto first = Open();
  const auto original = first->Compile(GemmSpec());
  ASSERT_TRUE(original);
  const std::string bytes = *first->Serialize(*original);
  WriteWhole(folder / "b.twb", *EncodeBundle(std::vector<ArtifactData>{**original}));
  const struct {
    const char* field;
    void (*change)(KernelFamily&);
  } changes[] = {
      {"threads",
       [](KernelFamily& family) {
         family.launch = [](const KernelSpec&) { return KernelLaunchShape{1024, 64}; };
       }},
      {"dynamic_smem_bytes",
       [](KernelFamily& family) {
         family.launch = [](const KernelSpec&) { return KernelLaunchShape{128, 65}; };
       }},
      {"max_registers",
       [](KernelFamily& family) {
         family.limits = [](const KernelSpec&) { return ResourceLimits{.max_registers = 99}; };
       }},
      {"max_spill_bytes",
       [](KernelFamily& family) {
         family.limits = [](const KernelSpec&) { return ResourceLimits{.max_spill_bytes = 8}; };
       }},
      {"max_stack_bytes",
       [](KernelFamily& family) {
         family.limits = [](const KernelSpec&) { return ResourceLimits{.max_stack_bytes = 8}; };
       }},
  };
  int compiles = 1;
  for (const auto& one : changes) {
    auto options = Options();
    options.bundles = {folder / "b.twb"};
    const KernelFamilies families = With(one.change);
    const auto store = OpenFake(options, families);
    const auto why = store->Explain(GemmSpec());
    ASSERT_TRUE(why);
    std::vector<std::string> fields;
    for (const KeyDifference& difference : why->differences) fields.push_back(difference.field);
    EXPECT_THAT(fields, Contains(one.field));
    const auto refused = store->Deserialize(bytes);
    ASSERT_FALSE(refused) << one.field;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(refused.error().message, HasSubstr(one.field));
    const auto kernel = store->Compile(GemmSpec());
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(compiler->compiles(), ++compiles) << one.field;
    const KernelFamily& family = *families.Find("fake_gemm");
    EXPECT_EQ((*kernel)->launch, family.launch(GemmSpec()));
  }
  EXPECT_TRUE(Open()->Compile(GemmSpec()));
  EXPECT_EQ(compiler->compiles(), compiles) << "as it was made, it is a hit";
}

TEST_F(StoreTest, ASiteThatOthersMayWriteServesNothingAndNothingOfItIsCopied) {
  auto site = Options();
  site.root = folder / "above/site";
  site.compiler = MakeFakeCompiler({.salt = "theirs"});
  ASSERT_TRUE(OpenFake(site)->Compile(GemmSpec()));
  const std::string theirs = ReadWhole(EntryFilesUnder(site.root).at(0));
  auto options = Options();
  options.site_dirs = {site.root};
  int number = 0;
  const auto expect_ignored = [&](const std::string& place, mode_t mode, const std::string& why) {
    const mode_t before =
        std::filesystem::status(place).permissions() == std::filesystem::perms::unknown
            ? 0700
            : static_cast<mode_t>(std::filesystem::status(place).permissions());
    ASSERT_EQ(chmod(place.c_str(), mode), 0);
    options.root = folder / ("mine" + std::to_string(number++));
    const int compiles = compiler->compiles();
    {
      const auto store = OpenFake(options);
      EXPECT_THAT(store->warnings(), Contains(HasSubstr(why)));
      ASSERT_TRUE(store->Compile(GemmSpec()));
      EXPECT_EQ(store->process_counters().hits[kSite], 0u);
    }
    EXPECT_EQ(compiler->compiles(), compiles + 1) << why;
    const auto stored = EntryFilesUnder(options.root);
    ASSERT_THAT(stored, SizeIs(1));
    EXPECT_NE(ReadWhole(stored[0]), theirs);
    ASSERT_EQ(chmod(place.c_str(), before), 0);
  };
  ASSERT_EQ(chmod((folder / "above").c_str(), 0755), 0);
  expect_ignored(site.root, 0777, "mode is 0777: everybody can write it");
  expect_ignored(site.root, 0770, "its group can write it (accepted with site_by_group)");
  expect_ignored(folder / "above", 0777, "has mode 0777: others can replace it");
  expect_ignored(site.root + "/v1/entries", 0777, "mode is 0777: everybody can write it");

  ASSERT_EQ(chmod(site.root.c_str(), 0770), 0);
  options.root = folder / "asked";
  options.site_by_group = true;
  const auto store = OpenFake(options);
  EXPECT_THAT(store->warnings(), IsEmpty());
  ASSERT_TRUE(store->Compile(GemmSpec()));
  EXPECT_EQ(store->process_counters().hits[kSite], 1u);
  EXPECT_EQ(ReadWhole(EntryFilesUnder(options.root).at(0)), theirs) << "copied, as from any site";
}

TEST_F(StoreTest, AnEntryOfAnotherKeySchemaIsNoTroubleOfAVerification) {
  ASSERT_TRUE(Open()->Compile(GemmSpec()));
  const std::string entry = EntryFilesUnder(root).at(0);
  const std::string old =
      std::filesystem::path(entry).parent_path().string() + "/" + std::string(62, '0') + ".twk";
  WriteWhole(old, ReadWhole(TILEWRIGHT_TEST_DATA "/artifacts/entry_schema1.bin"));
  ASSERT_EQ(chmod(old.c_str(), 0600), 0);
  const auto report = Open()->Verify(false);
  EXPECT_EQ(report.good, 1u);
  EXPECT_THAT(report.troubles, IsEmpty());
  EXPECT_EQ(report.not_ours, 1u);
  EXPECT_TRUE(std::filesystem::exists(old)) << "another version may share this folder";
}

}  // namespace
}  // namespace tilewright::test
