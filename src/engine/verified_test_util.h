#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "tilewright/device_spec.h"
#include "tilewright/features.h"
#include "tilewright/kernel.h"

/// For tests whose results stand in the tables of the documentation.

namespace tilewright::test {

/// Something that a test has found right, as a line of docs/verified.tsv.
struct Verified {
  std::string_view operation;  ///< "product", "experts", "embedding", "unpack", or "architecture"
  std::string_view subject;    ///< a type of weights, or the name of an architecture
  std::string_view device;     ///< "scalar", "avx2" ..., "sm_90"; of architectures "cpu"
  std::string_view how;        ///< what activations were rounded to, or the case of a golden
};

/// Notes it as a property of the running test, which GoogleTest writes into its report. It counts
/// where the test ends without a failure (tools/docs/collect_verified.py).
inline void NoteVerified(const Verified& fact) {
  static const testing::TestInfo* noted_by = nullptr;
  static std::set<std::string> facts;
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  if (noted_by != test) facts.clear();
  noted_by = test;
  std::string line;
  for (const std::string_view word : {fact.operation, fact.subject, fact.device, fact.how})
    line.append(line.empty() ? "" : "|").append(word);
  if (!facts.insert(line).second) return;
  std::string all;
  for (const std::string& one : facts) all.append(all.empty() ? "" : ";").append(one);
  testing::Test::RecordProperty("verified", all);
}

inline std::string GpuLevel(const DeviceSpec& gpu) {
  return "sm_" + std::to_string(gpu.compute_capability);
}

/// What a kernel needs: the highest instruction set of a CPU, or the GPU that it ran on.
inline std::string LevelOf(const KernelInfo& kernel, const DeviceSpec& device) {
  if (kernel.device == DeviceKind::kCuda) return GpuLevel(device);
  std::string level = "scalar";
  for (const FeatureName& feature : FeatureNames())
    if ((kernel.features & feature.bit) != 0) level = feature.name;
  return level;
}

/// Whether a kernel is one that the tables are about: our own, and not the slow one that takes all.
inline bool IsListed(const KernelInfo& kernel) {
  return kernel.provider == Provider::kOwn && !kernel.reference;
}

}  // namespace tilewright::test
