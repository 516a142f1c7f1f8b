#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/compiled/compiled_kernel.h"
#include "tilewright/artifact_store.h"
#include "tilewright/cuda_device.h"

/// Helpers for tests only; no library file includes this header.

namespace tilewright::test {

/// The first GPU and a store of its kernels: from NVRTC, or from the bundle that
/// TILEWRIGHT_GPU_BUNDLE names. The store's folder goes away with the object.
struct GpuStore {
  std::unique_ptr<Device> device;
  std::unique_ptr<ArtifactStore> store;
  std::string why_not;  ///< there is no such machine here: tests skip

  /// `needs_compiler`: for kernels that are in no bundle.
  explicit GpuStore(const KernelFamilies& families, bool needs_compiler = false) {
    Result<std::unique_ptr<Device>> made = cuda::MakeCudaDevice(0);
    if (!made) {
      why_not = made.error().message;
      return;
    }
    device = std::move(*made);
    char folder[] = "/tmp/tilewright-gpu-XXXXXX";
    ArtifactStoreOptions options;
    options.root = mkdtemp(folder);
    if (const char* bundle = std::getenv("TILEWRIGHT_GPU_BUNDLE")) options.bundles = {bundle};
    store = ArtifactStore::Open(families, options).value();
    if (!options.bundles.empty() && !needs_compiler) return;
    const Result<CompilerIdentity> compiler = store->Compiler();
    if (!compiler) why_not = compiler.error().message;
  }
  GpuStore(const GpuStore&) = delete;
  GpuStore& operator=(const GpuStore&) = delete;
  ~GpuStore() {
    if (store != nullptr) std::filesystem::remove_all(store->root());
  }
  CudaArch arch() const { return NativeArch(device->spec().compute_capability); }
};

/// Tests that share a `Machine`, made of a GpuStore, and are skipped where there is none.
template <class Machine>
class GpuFixture : public testing::Test {
 protected:
  static void SetUpTestSuite() { machine_ = new Machine(); }
  static void TearDownTestSuite() { delete std::exchange(machine_, nullptr); }
  void SetUp() override {
    if (!machine_->why_not.empty()) GTEST_SKIP() << machine_->why_not;
  }
  static inline Machine* machine_ = nullptr;
};

}  // namespace tilewright::test
