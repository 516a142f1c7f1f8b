#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "test_norms.h"

namespace tilewright {

/// A context on the CPU with the test's norms, and workers of it. No process of a test is left when
/// it ends.
class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    char name[] = "/tmp/tilewright-worker-XXXXXX";
    folder_ = mkdtemp(name);
    context_ = Open("cpu");
    if (context_ != nullptr) {
      EXPECT_TRUE(test::AddTestNorms(context_->kernels().of<norm::Op>()));
    }
  }
  ~WorkerTest() override {
    EXPECT_TRUE(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD) << "a process is left";
    context_.reset();
    std::filesystem::remove_all(folder_);
  }

  ContextOptions Options(const std::string& device) const {
    ContextOptions options;
    options.device = device;
    options.threads = 2;
    options.cache_dir = folder_ + "/cache";
    return options;
  }
  std::unique_ptr<Context> Open(const std::string& device) const {
    auto context = Context::Create(Options(device));
    EXPECT_TRUE(context) << context.error().message;
    return context ? std::move(*context) : nullptr;
  }
  static MeasurerOptions Quick() {
    return {.policy = MeasurePolicy::kWarm, .llc_bytes = 256 << 10};
  }

  std::unique_ptr<MeasureWorker> Start(const WorkerOptions& options = {
                                           .program = TILEWRIGHT_TEST_WORKER}) {
    auto worker = context_->StartWorker(Quick(), options);
    EXPECT_TRUE(worker) << worker.error().message;
    return worker ? std::move(*worker) : nullptr;
  }
  /// What becomes of starting such a program.
  Error Refused(const WorkerOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    const auto worker = context_->StartWorker(Quick(), options);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "it hung";
    EXPECT_FALSE(worker);
    return worker ? Error{} : worker.error();
  }
  /// A program that writes these bytes and waits.
  std::string Script(const std::string& name, const std::string& bytes) const {
    std::string file = folder_ + "/" + name;
    std::ofstream(file + ".bytes", std::ios::binary) << bytes;
    std::ofstream(file) << "#!/bin/sh\ncat " << file << ".bytes\nexec sleep 600\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }

  norm::Desc Norm() const {
    auto desc = ParseProblem<norm::Op>("rows=3 cols=64");
    EXPECT_TRUE(desc) << desc.error().message;
    return *desc;
  }
  norm::Op::Spec Spec(const char* kernel) const {
    norm::Op::Spec spec;
    spec.kernel = context_->kernels().of<norm::Op>().Find(kernel);
    EXPECT_NE(spec.kernel, nullptr) << kernel;
    return spec;
  }
  WorkerMeasurer<norm::Op> Measuring(MeasureWorker& worker) {
    return WorkerMeasurer<norm::Op>(
        worker, [this] { return MakeMeasurer<norm::Op>(context_->device(), Quick()); });
  }

  std::string folder_;
  std::unique_ptr<Context> context_;
};

/// The letter of a process's state; 0 for none. 'Z': it has ended, and nobody has collected it.
inline char StateOf(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t end = text.rfind(") ");
  return end == std::string::npos ? '\0' : text[end + 2];
}
/// Threads of a process that are not gone. One that was killed may be 'Z' while others of its threads
/// still hold its connections.
inline std::ptrdiff_t ThreadsOf(int pid) {
  std::error_code gone;
  const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task", gone);
  return gone ? 0 : std::distance(begin(tasks), end(tasks));
}
/// Whether the process ends before anybody would wait for it in vain.
inline bool Ends(int pid) {
  for (int i = 0; i < 3000; ++i) {
    const char state = StateOf(pid);
    if (state == '\0' || (state == 'Z' && ThreadsOf(pid) <= 1)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace tilewright
