// The table of handles, and that a lookup allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "artifact/store/handle_table.h"
#include "core/allocation_probe.h"
#include "tilewright/artifact_store.h"

namespace tilewright::test {
namespace {

std::unique_ptr<HeldArtifact> Held(const KernelSpec& spec) {
  auto held = std::make_unique<HeldArtifact>();
  held->data.spec = spec;
  return held;
}

TEST(HandleTable, FindsEverythingAfterGrowingAndNothingElse) {
  HandleTable table;
  std::vector<const ArtifactData*> data;
  for (int i = 0; i < 5000; ++i) data.push_back(table.Insert(Held(GemmSpec(i))));
  EXPECT_EQ(table.size(), 5000u);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(table.Find(GemmSpec(i)), data[static_cast<std::size_t>(i)]);
  }
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(table.Find(NormSpec(i)), nullptr);
}

TEST(HandleTable, TheFirstOfASpecStays) {
  HandleTable table;
  const ArtifactData* const first = table.Insert(Held(GemmSpec()));
  EXPECT_EQ(table.Insert(Held(GemmSpec())), first);
  EXPECT_EQ(table.size(), 1u);
}

TEST(HandleTable, ReadersSeeWholeArtifactsWhileItGrows) {
  HandleTable table;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      std::vector<bool> seen(2000);
      while (!stop) {
        for (int i = 0; i < 2000; ++i) {
          const ArtifactData* const data = table.Find(GemmSpec(i));
          const auto at = static_cast<std::size_t>(i);
          // Once seen, always seen; and what is seen is it.
          if (data == nullptr ? seen[at] : data->launch_abi != static_cast<std::uint32_t>(i)) {
            ++wrong;
          }
          seen[at] = seen[at] || data != nullptr;
        }
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    auto held = Held(GemmSpec(i));
    held->data.launch_abi = static_cast<std::uint32_t>(i);
    table.Insert(std::move(held));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
}

TEST(StoreLookup, AllocatesNothing) {
  const TemporaryFolder folder;
  const auto store = OpenFake(FakeOptions(folder / "root", MakeFakeCompiler()));
  const std::vector<KernelSpec> specs = GemmSpecs(64);
  for (const auto& handle : store->CompileAll(specs)) ASSERT_TRUE(handle);
  const std::int64_t before = AllocationProbe::Count();
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    found += static_cast<bool>(store->Find(specs[static_cast<std::size_t>(i) % 64]));
    found += static_cast<bool>(store->Find(GemmSpec(1000 + i)));
  }
  const std::int64_t after = AllocationProbe::Count();
  EXPECT_EQ(found, 1000);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace tilewright::test
