#include "gpu/cublaslt.h"

#include <memory>
#include <vector>

#include "ops/gemm/base/alignment.h"
#include "ops/gemm/cuda/cublaslt/product.h"

namespace tilewright::gpu_check {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kMostAlgorithms = 16;

/// nullptr where there is none.
const cuda::CublasLtLibrary* Library() {
  static const cuda::CublasLtLibrary* const library = [] {
    const cuda::CublasLtFile file = cuda::FindCublasLt();
    return file.path.empty() ? nullptr : cuda::OpenCublasLt(file.path).value_or(nullptr);
  }();
  return library;
}

}  // namespace

std::function<void(int)> FastestCublasLt(const Gpu& gpu, int sets,
                                         const std::function<GemmArgs(int)>& args) {
  const cuda::CublasLtLibrary* const library = Library();
  if (library == nullptr) return {};
  const GemmArgs any = args(0);
  Result<GemmDesc> desc = DescOf(any, {});
  if (!desc) return {};
  PromiseAlignment(any, *desc);
  if (CheckCublasLt(*desc)) return {};
  static void* handle = nullptr;  // for the life of the process
  if (handle == nullptr) Must(library->Check(library->api.Create(&handle), "create"), "cuBLASLt");
  const auto product = std::make_shared<const CublasLtProduct>(
      Must(CublasLtProduct::Make(*library, *desc), "cuBLASLt"));
  const auto algos = product->Algorithms(handle, kWorkspaceBytes, kMostAlgorithms);
  if (!algos) return {};
  const auto workspace = std::make_shared<const cuda::DeviceBuffer>(
      Must(cuda::DeviceBuffer::Allocate(gpu.context, kWorkspaceBytes), "memory"));
  const cuda::Event begin = Must(cuda::Event::Create(gpu.context), "event");
  const cuda::Event end = Must(cuda::Event::Create(gpu.context), "event");
  std::function<void(int)> best;
  double best_us = 0;
  for (const cuda::CublasLtAlgo& algo : *algos) {
    const auto launch = [&gpu, product, workspace, args, algo](int set) {
      Must(product->Launch(handle, algo, args(set), reinterpret_cast<void*>(workspace->address()),
                           kWorkspaceBytes, gpu.stream.get()),
           "cuBLASLt");
    };
    launch(0);
    Must(begin.Record(gpu.stream), "event");
    for (int i = 0; i < 10; ++i) launch(i % sets);
    Must(end.Record(gpu.stream), "event");
    Must(end.Synchronize(), "cuBLASLt");
    const double us = Must(begin.MicrosecondsTo(end), "event");
    if (best && us >= best_us) continue;
    best = launch;
    best_us = us;
  }
  return best;
}

std::string CublasLtVersion() { return Library() != nullptr ? Library()->version : ""; }

}  // namespace tilewright::gpu_check
