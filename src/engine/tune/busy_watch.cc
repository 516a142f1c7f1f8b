#include "engine/tune/busy_watch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel counts steal in whole ticks and takes a fraction of a millisecond to print it: reading
// more often would give no more information.
constexpr std::chrono::milliseconds kReadEvery{20};

// Stolen time below this part of all processors' is what any shared host takes.
constexpr double kQuietShare = 0.005;

double Micros(const timeval& time) {
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
}

double MicrosBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

}  // namespace

BusyWatch::BusyWatch(std::string stat_path) : stat_path_(std::move(stat_path)) {
  steal_ = ReadSteal();
  Begin();
}

// "cpu  user nice system idle iowait irq softirq steal ..." in ticks, then a line for each
// processor.
BusyWatch::Steal BusyWatch::ReadSteal() const {
  Steal steal;
  steal.at = Clock::now();
  std::ifstream stat(stat_path_);
  std::string line;
  while (std::getline(stat, line) && line.starts_with("cpu")) {
    if (line.size() > 3 && line[3] != ' ') {
      ++steal.processors;
      continue;
    }
    std::istringstream fields(line.substr(3));
    std::int64_t value = 0;
    for (int i = 0; i < 8 && fields >> value; ++i) {
      if (i == 7) steal.ticks = value;
    }
  }
  return steal;
}

BusyWatch::Work BusyWatch::ReadWork() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  return {usage.ru_nivcsw, Micros(usage.ru_utime) + Micros(usage.ru_stime)};
}

void BusyWatch::Begin() { begin_ = ReadWork(); }

bool BusyWatch::Disturbed() {
  const Work work = ReadWork();
  const Clock::time_point now = Clock::now();
  const auto quiet = static_cast<std::int64_t>((work.cpu_us - begin_.cpu_us) / kQuietUs);
  bool disturbed = work.switches - begin_.switches > quiet;
  if (now - steal_.at >= kReadEvery) {
    const Steal steal = ReadSteal();
    const double stolen_us = static_cast<double>(steal.ticks - steal_.ticks) * 1e6 /
                             static_cast<double>(sysconf(_SC_CLK_TCK));
    disturbed =
        disturbed || stolen_us > kQuietShare * MicrosBetween(steal_.at, now) * steal.processors;
    steal_ = steal;
  }
  return disturbed;
}

}  // namespace tilewright
