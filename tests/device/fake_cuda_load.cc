#include <dlfcn.h>

#include <stdexcept>

#include "fake_cuda.h"

namespace tilewright::cuda {

FakeCuda& LoadFakeCuda(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<FakeCudaFunction>(dlsym(library, "fake_cuda"))();
}

}  // namespace tilewright::cuda
