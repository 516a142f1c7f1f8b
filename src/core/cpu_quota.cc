#include "core/cpu_quota.h"

#include <sched.h>

#include <cstdlib>
#include <thread>

#include "core/atomic_file.h"
#include "tilewright/executor.h"

namespace tilewright {
namespace {

constexpr std::size_t kSmallFile = 64 << 10;

/// The first number of `text`, or -1 if there is none ("max").
double Number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? -1 : value;
}

/// Quota of one v2 folder, from "max 100000" or "150000 100000"; 0 if there is none.
double QuotaV2(const std::string& folder) {
  const Result<std::string> text = ReadFile(folder + "/cpu.max", kSmallFile);
  if (!text) return 0;
  const std::size_t space = text->find(' ');
  if (space == std::string::npos) return 0;
  const double quota = Number(text->substr(0, space));
  const double period = Number(text->substr(space + 1));
  return quota > 0 && period > 0 ? quota / period : 0;
}

double QuotaV1(const std::string& folder) {
  const Result<std::string> quota_text = ReadFile(folder + "/cpu.cfs_quota_us", kSmallFile);
  const Result<std::string> period_text = ReadFile(folder + "/cpu.cfs_period_us", kSmallFile);
  if (!quota_text || !period_text) return 0;
  const double quota = Number(*quota_text);
  const double period = Number(*period_text);
  return quota > 0 && period > 0 ? quota / period : 0;
}

/// Smallest quota of `path` below `mount` and of its parents. Inside a container, the path may name
/// folders of the host that do not exist here. Those count as unlimited, and the mount's own
/// folder, which is then the container's group, decides.
double SmallestQuota(const std::string& mount, std::string path,
                     double (*quota_of)(const std::string&)) {
  double smallest = 0;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const double quota = quota_of(mount + path);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    if (path.empty()) return smallest;
    const std::size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool NamesCpuController(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

int AffinityThreads() {
  // The kernel refuses a mask smaller than its own, so grow until it fits.
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  const unsigned hardware = std::thread::hardware_concurrency();
  return hardware > 0 ? static_cast<int>(hardware) : 1;
}

}  // namespace

double CgroupCpuQuota(std::string_view proc_self_cgroup, const std::string& mount) {
  double smallest = 0;
  const auto take = [&](double quota) {
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  };
  // Lines read "id:controllers:path"; id 0 with no controllers is the v2 hierarchy.
  while (!proc_self_cgroup.empty()) {
    const std::size_t newline = proc_self_cgroup.find('\n');
    const std::string_view line = proc_self_cgroup.substr(0, newline);
    proc_self_cgroup.remove_prefix(newline == std::string_view::npos ? proc_self_cgroup.size()
                                                                     : newline + 1);
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      take(SmallestQuota(mount, path, QuotaV2));
      take(SmallestQuota(mount + "/unified", path, QuotaV2));
    } else if (NamesCpuController(controllers)) {
      take(SmallestQuota(mount + "/" + std::string(controllers), path, QuotaV1));
      take(SmallestQuota(mount + "/cpu", path, QuotaV1));
    }
  }
  return smallest;
}

int DefaultThreads() {
  int threads = AffinityThreads();
  const Result<std::string> groups = ReadFile("/proc/self/cgroup", kSmallFile);
  const double quota = groups ? CgroupCpuQuota(*groups, "/sys/fs/cgroup") : 0;
  // Rounded down: one thread too many would be throttled in the middle of an operation while all
  // the others wait for it.
  if (quota > 0 && quota < threads) threads = static_cast<int>(quota);
  return threads < 1 ? 1 : threads;
}

}  // namespace tilewright
