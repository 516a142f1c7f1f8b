// A compiled kernel is launched by one's own code: Tilewright compiles it once and keeps it, the
// parameter block, the grid and the meaning of the spec's fields come from
// tilewright/cuda/gemm_params.h, and the rest is the CUDA driver, loaded here by dlopen so that the
// example builds and runs on any machine. Without a GPU it compiles for sm_80, prints the launch
// and ends.
//
//   launch_compiled_kernel [FOLDER of the store]

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tilewright/cuda/gemm_params.h"
#include "tilewright/cuda_device.h"
#include "tilewright/tilewright.h"

namespace tw = tilewright;

namespace {

constexpr int kM = 200, kN = 264, kK = 256;

/// A function of libcuda; its result is 0 for success.
template <class... Args>
using DriverCall = int (*)(Args...);

/// The driver's calls that a launch takes. Handles are opaque pointers, device memory a number.
struct Driver {
  DriverCall<unsigned> init;
  DriverCall<int*, int> get_device;
  DriverCall<void**, int> retain_context;
  DriverCall<void*> set_context;
  DriverCall<void**, const void*> load_module;
  DriverCall<void**, void*, const char*> get_function;
  DriverCall<void*, int, int> set_attribute;
  DriverCall<std::uint64_t*, std::size_t> allocate;
  DriverCall<std::uint64_t, const void*, std::size_t> upload;
  DriverCall<void*, std::uint64_t, std::size_t> download;
  DriverCall<void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
             void**, void**>
      launch;
  DriverCall<> synchronize;
};

bool Load(Driver& driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto find = [&](auto& call, const char* name) {
    if (library != nullptr)
      call = reinterpret_cast<std::decay_t<decltype(call)>>(dlsym(library, name));
    return library != nullptr && call != nullptr;
  };
  return find(driver.init, "cuInit") && find(driver.get_device, "cuDeviceGet") &&
         find(driver.retain_context, "cuDevicePrimaryCtxRetain") &&
         find(driver.set_context, "cuCtxSetCurrent") &&
         find(driver.load_module, "cuModuleLoadData") &&
         find(driver.get_function, "cuModuleGetFunction") &&
         find(driver.set_attribute, "cuFuncSetAttribute") &&
         find(driver.allocate, "cuMemAlloc_v2") && find(driver.upload, "cuMemcpyHtoD_v2") &&
         find(driver.download, "cuMemcpyDtoH_v2") && find(driver.launch, "cuLaunchKernel") &&
         find(driver.synchronize, "cuCtxSynchronize");
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "launch_compiled_kernel: %s\n", what.c_str());
  return 1;
}

/// bf16 of a small whole number: the upper half of its f32.
std::uint16_t BF16(float value) {
  std::uint32_t bits;
  static_assert(sizeof bits == sizeof value);
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// A product of bf16 matrices in which A and B have k contiguous, by the portable family.
tw::Result<tw::KernelSpec> Product(const tw::KernelFamilies& families, tw::CudaArch arch) {
  for (const tw::KernelSpec& spec : families.Catalog(arch)) {
    if (spec.family.view() == "gemm_mma" && spec.type_a == tw::DataType::kBF16 &&
        spec.type_d == tw::DataType::kBF16 && spec.type_c == tw::DataType::kNone &&
        spec.order_a == tw::Order::kRowMajor && spec.order_b == tw::Order::kColMajor) {
      return spec;
    }
  }
  return tw::Fail(tw::ErrorCode::kNotFound, "no matrix product for " + arch.ToString());
}

/// Runs the kernel on GPU 0 and compares. Memory and module are the driver's to free at the end of
/// the process.
int Run(const Driver& cu, const tw::ArtifactData& kernel) {
  int device = 0;
  void *context = nullptr, *module = nullptr, *function = nullptr;
  if (cu.init(0) != 0 || cu.get_device(&device, 0) != 0 ||
      cu.retain_context(&context, device) != 0 || cu.set_context(context) != 0) {
    return Fail("GPU 0 cannot be used");
  }
  if (cu.load_module(&module, kernel.cubin.data()) != 0 ||
      cu.get_function(&function, module, kernel.symbol.c_str()) != 0) {
    return Fail("the kernel cannot be loaded");
  }
  // More than 48 KiB have to be allowed (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES).
  const auto smem = static_cast<int>(kernel.launch.dynamic_smem_bytes);
  if (cu.set_attribute(function, 8, smem) != 0) return Fail("not enough shared memory");

  // A [m][k]: every element of row i is i % 7. B [n][k]: ones. So every element of row i of D is
  // k * (i % 7), which bf16 holds exactly.
  std::vector<std::uint16_t> a(kM * kK), b(kN * kK, BF16(1)), d(kM * kN);
  for (int i = 0; i < kM * kK; ++i)
    a[static_cast<std::size_t>(i)] = BF16(static_cast<float>(i / kK % 7));
  std::uint64_t memory[3] = {};
  const std::vector<std::uint16_t>* contents[3] = {&a, &b, &d};
  for (int i = 0; i < 3; ++i) {
    const std::size_t bytes = contents[i]->size() * 2;
    if (cu.allocate(&memory[i], bytes) != 0 ||
        cu.upload(memory[i], contents[i]->data(), bytes) != 0) {
      return Fail("no memory on the GPU");
    }
  }

  tw::cuda::GemmMmaParams params{};
  params.a = reinterpret_cast<const void*>(memory[0]);
  params.b = reinterpret_cast<const void*>(memory[1]);
  params.lda = params.ldb = kK;
  params.out.d = reinterpret_cast<void*>(memory[2]);
  params.out.ldd = kN;
  params.out.m = kM, params.out.n = kN, params.out.k = kK;
  params.out.alpha = 1;
  void* arguments[] = {&params};
  const unsigned grid = tw::cuda::GemmMmaGridX(kM, kN, kernel.spec.tile_m, kernel.spec.tile_n);
  if (cu.launch(function, grid, 1, 1, kernel.launch.threads, 1, 1, kernel.launch.dynamic_smem_bytes,
                nullptr, arguments, nullptr) != 0 ||
      cu.synchronize() != 0 || cu.download(d.data(), memory[2], d.size() * 2) != 0) {
    return Fail("the launch failed");
  }
  for (int i = 0; i < kM * kN; ++i) {
    if (d[static_cast<std::size_t>(i)] != BF16(static_cast<float>(kK * (i / kN % 7)))) {
      return Fail("element " + std::to_string(i) + " is wrong");
    }
  }
  std::printf("launched on GPU 0: %d elements, all right\n", kM * kN);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const tw::Result<int> gpus = tw::cuda::CudaDeviceCount();
  const bool has_gpu = gpus && *gpus > 0;
  tw::CudaArch arch{80, 0};
  if (has_gpu) {
    const tw::Result<tw::DeviceSpec> device = tw::cuda::CudaDeviceSpec(0);
    if (!device) return Fail(device.error().message);
    arch.number = static_cast<std::uint16_t>(device->compute_capability);
  }

  const tw::KernelFamilies families = tw::AllKernelFamilies();
  const tw::Result<tw::KernelSpec> spec = Product(families, arch);
  if (!spec) return Fail(spec.error().message);
  tw::ArtifactStoreOptions options;
  if (argc > 1) options.root = argv[1];
  const auto store = tw::ArtifactStore::Open(families, options);
  if (!store) return Fail(store.error().message);
  const tw::Result<tw::KernelHandle> kernel = (*store)->Compile(*spec);
  if (!kernel && kernel.error().code == tw::ErrorCode::kUnavailable) {
    std::printf("no compiler here: %s\n", kernel.error().message.c_str());
    return 0;
  }
  if (!kernel) return Fail(kernel.error().message);
  std::printf(
      "%s\n%d x %d x %d: %u CTAs of %u threads, %u bytes of shared memory, %zu bytes of "
      "parameters\n",
      tw::SpecName(*spec).c_str(), kM, kN, kK,
      tw::cuda::GemmMmaGridX(kM, kN, spec->tile_m, spec->tile_n), (*kernel)->launch.threads,
      (*kernel)->launch.dynamic_smem_bytes, sizeof(tw::cuda::GemmMmaParams));
  if (!has_gpu) {
    std::printf("compiled, not launched: no GPU here\n");
    return 0;
  }
  Driver driver{};
  if (!Load(driver)) return Fail("libcuda.so.1 lacks a function of this example");
  return Run(driver, **kernel);
}
