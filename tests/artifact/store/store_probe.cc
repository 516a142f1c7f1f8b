// A process that uses a store, for tests across processes. Prints name=value lines; exits 0 when
// every kernel was served.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "artifact/store/fake_compiler.h"
#include "tilewright/artifact_store.h"
#include "tilewright/log.h"

namespace tilewright::test {
namespace {

struct Arguments {
  std::map<std::string, std::string> values;
  std::string Get(const std::string& name, const std::string& otherwise = "") const {
    const auto it = values.find(name);
    return it == values.end() ? otherwise : it->second;
  }
  int Number(const std::string& name, int otherwise) const {
    const std::string text = Get(name);
    return text.empty() ? otherwise : std::atoi(text.c_str());
  }
};

void Print(void*, LogLevel level, std::string_view message) {
  std::fprintf(stderr, "%s: %.*s\n", std::string(LogLevelName(level)).c_str(),
               static_cast<int>(message.size()), message.data());
}

int Failed(const Result<KernelHandle>& handle) {
  if (handle) return 0;
  std::fprintf(stderr, "%s\n", handle.error().message.c_str());
  return 1;
}

/// Asks for all specs as `how` says; the number of failures.
int Ask(ArtifactStore& store, const std::string& how, const std::vector<KernelSpec>& specs) {
  int failures = 0;
  if (how == "find-first") {
    for (const KernelSpec& spec : specs) (void)store.Find(spec);
  }
  if (how == "all") {
    for (const auto& handle : store.CompileAll(specs)) failures += Failed(handle);
  } else {
    for (const KernelSpec& spec : specs) failures += Failed(store.Compile(spec));
  }
  for (const KernelSpec& spec : specs) failures += !store.Find(spec);
  return failures;
}

/// How many processes have a line in the log of compilations.
std::size_t ProcessesIn(const std::string& log) {
  std::ifstream lines(log);
  std::set<int> processes;
  std::string symbol;
  for (int pid = 0; lines >> symbol >> pid;) processes.insert(pid);
  return processes.size();
}

int Main(const Arguments& arguments) {
  if (const auto level = ParseLogLevel(arguments.Get("log-level"))) {
    SetLogSink({Print, nullptr, *level});
  }
  const std::string log = arguments.Get("log");
  const auto meet = static_cast<std::size_t>(arguments.Number("meet", 0));
  std::atomic<bool> met{true};
  // No compilation ends before so many processes compile; whoever waits in vain says so.
  const auto await_others = [&](const CompileJob&) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (met && ProcessesIn(log) < meet) {
      met = std::chrono::steady_clock::now() < end;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const auto compiler =
      MakeFakeCompiler({.takes = std::chrono::milliseconds(arguments.Number("takes-ms", 0)),
                        .log_file = log,
                        .hangs = arguments.Number("hangs", 0) != 0,
                        .begins = await_others});
  auto options = FakeOptions(arguments.Get("root"), compiler);
  options.compile_threads = arguments.Number("compile-threads", 8);
  options.lock_wait_ms = arguments.Number("lock-wait-ms", 120000);
  options.shared_dir = arguments.Get("shared");
  if (const auto mode = ParseCacheMode(arguments.Get("mode", "normal"))) options.mode = *mode;
  const auto store = OpenFake(options);
  const int count = arguments.Number("count", 0);
  std::vector<KernelSpec> specs = count > 0 ? GemmSpecs(count) : LayoutSpecs();
  if (arguments.Get("order") == "reversed") std::reverse(specs.begin(), specs.end());

  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < arguments.Number("threads", 1); ++i) {
    threads.emplace_back([&] { failures += Ask(*store, arguments.Get("how", "compile"), specs); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& warning : store->warnings()) {
    std::fprintf(stderr, "%s\n", warning.c_str());
  }
  const ArtifactCounters counters = store->process_counters();
  std::printf("met=%d\ncompiles=%d\nlock_waits=%d\nlock_timeouts=%d\nuser_hits=%d\nwarnings=%d\n",
              met ? 1 : 0, compiler->compiles(), static_cast<int>(counters.lock_waits),
              static_cast<int>(counters.lock_timeouts),
              static_cast<int>(counters.hits[static_cast<std::size_t>(ArtifactLayer::kUser)]),
              static_cast<int>(store->warnings().size()));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tilewright::test

int main(int argc, char** argv) {
  tilewright::test::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const char* const equals = std::strchr(argv[i], '=');
    if (equals == nullptr) return 2;
    arguments.values[std::string(argv[i], static_cast<std::size_t>(equals - argv[i]))] = equals + 1;
  }
  return tilewright::test::Main(arguments);
}
