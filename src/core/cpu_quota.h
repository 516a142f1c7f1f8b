#pragma once

#include <string>
#include <string_view>

namespace tilewright {

/// The number of CPUs that the cgroup of this process may use, possibly fractional (1.5), or 0 if
/// there is no limit. `proc_self_cgroup` is the text of /proc/self/cgroup, `mount` the folder where
/// cgroups are mounted (/sys/fs/cgroup). Reads cpu.max (v2) and cpu.cfs_quota_us /
/// cpu.cfs_period_us (v1) of the group and of each of its parents, and returns the smallest.
double CgroupCpuQuota(std::string_view proc_self_cgroup, const std::string& mount);

}  // namespace tilewright
