// What a parallel region takes beyond the work in it, which every operation of a token pays.
//
//   parallel_bench [--threads 1,2,4,...] [--rounds 7]
// prints one row for each number of threads, us of a region less those of one worker's tasks of 2 us (median of the
// rounds' means):
//   one: a task for each worker; four, sixteen: as many for each; lanes: RunInLanes, four for each;
//   shared: one for each, which first reads what all wrote in the region before, a line of 64 bytes of each.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "tilewright/executor.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

/// us of a call of `run`: the median of `rounds` means.
template <class F>
double MedianUs(int rounds, F run) {
  constexpr int kCalls = 500;
  std::vector<double> means;
  for (int round = 0; round <= rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) run();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (round > 0) means.push_back(took.count() / kCalls);  // the first wakes workers up
  }
  std::nth_element(means.begin(), means.begin() + rounds / 2, means.end());
  return means[static_cast<std::size_t>(rounds) / 2];
}

constexpr int kTaskUs = 2;

void Work() {
  const auto end = Clock::now() + std::chrono::microseconds(kTaskUs);
  while (Clock::now() < end) {
  }
}

struct alignas(64) Line {
  int value = 0;
};

void PrintRow(int threads, int rounds) {
  const auto pool = MakeThreadPool(threads);
  const int workers = pool->workers();
  std::vector<Line> lines(static_cast<std::size_t>(workers)), sums(lines.size());
  const auto work = [](int, int) { Work(); };
  const auto beyond = [&](int tasks) {
    return MedianUs(rounds, [&] { pool->Run(tasks * workers, work); }) - tasks * kTaskUs;
  };
  const double one = beyond(1), four = beyond(4), sixteen = beyond(16);
  const double lanes =
      MedianUs(rounds, [&] { RunInLanes(*pool, 4 * workers, work); }) - 4 * kTaskUs;
  const auto read_and_work = [&](int task, int) {
    int sum = 0;
    for (const Line& line : lines) sum += line.value;
    Work();
    sums[static_cast<std::size_t>(task)].value = sum;
  };
  const double shared = MedianUs(rounds, [&] {
    pool->Run(workers, read_and_work);
    lines.swap(sums);
  });
  fmt::print("{:7} {:7.2f} {:7.2f} {:8.2f} {:7.2f} {:7.2f}\n", threads, one, four, sixteen, lanes,
             shared - kTaskUs);
}

int Main(int argc, char** argv) {
  std::vector<int> threads;
  int rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (option != "--threads") continue;
    std::istringstream list(argv[i + 1]);
    for (std::string word; std::getline(list, word, ',');)
      threads.push_back(std::max(1, std::atoi(word.c_str())));
  }
  if (threads.empty()) {
    for (int count = 1; count < DefaultThreads(); count *= 2) threads.push_back(count);
    threads.push_back(DefaultThreads());
  }
  fmt::print("threads     one    four  sixteen   lanes  shared\n");
  for (const int count : threads) PrintRow(count, rounds);
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
