#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "core/fingerprint.h"

namespace tilewright {
namespace {

std::set<std::string> RegisteredKernels() {
  std::set<std::string> result;
  std::istringstream names(TILEWRIGHT_KERNEL_TUS);
  for (std::string name; std::getline(names, name, ',');) result.insert(name);
  return result;
}

TEST(FingerprintTable, HasEveryKernelFileOfTheBuildAndNothingElse) {
  std::set<std::string> in_table;
  for (const TuDigest& entry : AllTuDigests()) in_table.insert(std::string(entry.tu));
  EXPECT_EQ(in_table, RegisteredKernels());
}

TEST(FingerprintTable, DigestsAreDistinctAndFoundByName) {
  std::set<std::string_view> digests;
  for (const TuDigest& entry : AllTuDigests()) {
    EXPECT_EQ(entry.digest.size(), 32u) << entry.tu;
    EXPECT_EQ(TuFingerprint(entry.tu), entry.digest);
    EXPECT_TRUE(digests.insert(entry.digest).second) << entry.tu;
  }
}

TEST(FingerprintTable, AnUnknownFileHasNoDigest) {
  EXPECT_EQ(TuFingerprint("ops/none/cpu/none_scalar.cc"), "");
  EXPECT_EQ(TuFingerprint(""), "");
  EXPECT_EQ(TuFingerprint("~"), "");
}

}  // namespace
}  // namespace tilewright
