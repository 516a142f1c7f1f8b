#include "device/cpu/caches.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tilewright {
namespace {

namespace fs = std::filesystem;

TEST(CachesTest, SysfsGivesDataCachesAndTheLastLevel) {
  const fs::path folder =
      fs::temp_directory_path() / ("tilewright_caches_" + std::to_string(getpid()));
  const auto put = [&](int index, const char* level, const char* type, const char* size) {
    const fs::path at = folder / ("index" + std::to_string(index));
    fs::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  };
  put(0, "1", "Data", "48K");
  put(1, "1", "Instruction", "32K");
  put(2, "2", "Unified", "2048K");
  EXPECT_EQ(CachesFromSysfs(folder.string()).llc, 2048 << 10) << "without an L3 the L2 is the last";
  put(3, "3", "Unified", "480M");
  const CacheSizes sizes = CachesFromSysfs(folder.string());
  EXPECT_EQ(sizes.l1d, 48 << 10);
  EXPECT_EQ(sizes.l2, 2048 << 10);
  EXPECT_EQ(sizes.llc, 480ll << 20);
  put(3, "3", "Unified", "nonsense");
  EXPECT_EQ(CachesFromSysfs(folder.string()).llc, 2048 << 10);
  fs::remove_all(folder);
  EXPECT_EQ(CachesFromSysfs(folder.string()).llc, 0);
}

}  // namespace
}  // namespace tilewright
