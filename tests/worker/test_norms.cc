#include "test_norms.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace tilewright::test {
namespace {

class TestNorm final : public norm::Kernel {
 public:
  explicit TestNorm(const char* name) : norm::Kernel(Info(name)), library_(MakeCpuKernels()) {}

  std::optional<Rejection> IsFeasible(const norm::Desc& desc) const override {
    return Scalar().IsFeasible(desc);
  }
  double EstimateUs(const norm::Desc&, const Spec&, const DeviceSpec&) const override { return 1; }
  Status Launch(const norm::Args& args, const Spec& spec, Workspace& workspace,
                Stream stream) override {
    const std::string_view name = this->name();
    if (name == kCrashes) std::raise(SIGSEGV);
    if (name == kAborts) std::abort();
    if (name == kExits) _exit(0);
    if (name == kThrows) throw std::runtime_error("a kernel's own words");
    if (name == kNoMemory) throw std::bad_alloc();
    if (name == kCrashesOnce) CrashOnce();
    if (name == kPrints) {
      std::puts("a kernel that prints");
      std::fflush(stdout);
    }
    while (name == kHangs) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (name == kFarOutside) *FarAway() = 1;
    Status done = Scalar().Launch(args, spec, workspace, stream);
    if (name == kOff) args.out.as<float>()[0] *= 2;
    if (name == kOutside) args.out.as<float>()[args.out.elements()] = 1;
    return done;
  }

 private:
  static KernelInfo Info(const char* name) {
    KernelInfo info;
    info.name = name;
    info.fingerprint = "1";
    info.provider = Provider::kUser;
    return info;
  }
  static float* FarAway() {
    static volatile std::uintptr_t nowhere = 64;  // that the compiler cannot see through
    return reinterpret_cast<float*>(nowhere);
  }
  static void CrashOnce() {
    const char* marker = std::getenv("TILEWRIGHT_TEST_MARKER");
    const int made = open(marker, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (made >= 0) std::raise(SIGSEGV);
  }
  norm::Kernel& Scalar() const { return *library_->of<norm::Op>().Find("norm.rms.f32.scalar"); }

  std::unique_ptr<Kernels> library_;
};

}  // namespace

Status AddTestNorms(norm::Registry& registry) {
  for (const char* name : {kRight, kPrints, kOff, kCrashes, kAborts, kExits, kHangs, kOutside,
                           kFarOutside, kThrows, kNoMemory, kCrashesOnce}) {
    if (Status added = registry.Add(std::make_unique<TestNorm>(name)); !added) return added;
  }
  return {};
}

}  // namespace tilewright::test
