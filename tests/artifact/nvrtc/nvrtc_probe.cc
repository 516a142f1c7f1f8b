// Compiles a kernel in a process of its own and prints what came out, one fact a line; a test runs
// it in different surroundings and compares. Usage: nvrtc_probe [--threads N] [--no-seed]

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/sha256.h"
#include "test_kernels.h"
#include "tilewright/compiler.h"

namespace tilewright {
namespace {

std::string Facts(const KernelCompiler& compiler, bool seed) {
  std::string facts;
  for (const test::Kernel& kernel : test::kKernels) {
    const std::vector<std::string> options = test::Options("sm_90a", seed);
    const auto made = compiler.Compile(test::Job(kernel, options), {});
    if (!made) return "failed: " + made.error().error.message;
    facts += std::string(kernel.name) + " cubin " + Sha256Hex(made->cubin).value_or("?") + " ptx " +
             Sha256Hex(made->ptx).value_or("?") + " log " + Sha256Hex(made->log).value_or("?") +
             " registers " + std::to_string(made->resources.registers) + "\n";
  }
  return facts;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  std::size_t count = 1;
  bool seed = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-seed") == 0) seed = false;
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
      count = static_cast<std::size_t>(std::atoi(argv[i + 1]));
  }
  const auto compiler = tilewright::LoadNvrtc();
  if (!compiler) {
    std::printf("%s\n", compiler.error().message.c_str());
    return 1;
  }
  std::vector<std::string> facts(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < count; ++i)
    threads.emplace_back([&, i] { facts[i] = tilewright::Facts(**compiler, seed); });
  facts[0] = tilewright::Facts(**compiler, seed);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : facts) {
    if (one != facts[0]) std::printf("threads differ:\n%s\n", one.c_str());
  }
  std::printf("%s\n%s", (*compiler)->identity().ToString().c_str(), facts[0].c_str());
  return 0;
}
