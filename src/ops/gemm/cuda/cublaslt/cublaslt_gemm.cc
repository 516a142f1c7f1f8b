#include "ops/gemm/cuda/cublaslt/cublaslt_gemm.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "core/text.h"
#include "device/cuda/cuda_device.h"
#include "engine/compiled/launch_cost.h"
#include "ops/gemm/cuda/cublaslt/product.h"
#include "tilewright/device.h"

namespace tilewright {
namespace {

/// Place in the heuristic's list; the last one it names where it names fewer.
struct Algorithm {
  std::int64_t algo = 0;
  static constexpr std::int64_t kMost = 7;
  static constexpr auto kMembers =
      std::tuple{ConfigMember<Algorithm>{"algo", &Algorithm::algo, 0, kMost}};
};

constexpr std::size_t kWorkspaceAlignment = 256;
/// NVIDIA's recommendation for Hopper; what the library is promised leaves room to align it.
constexpr std::size_t kPartialsBytes = std::size_t{32} << 20;
constexpr std::size_t kWorkspaceBytes = kPartialsBytes - kWorkspaceAlignment;

KernelInfo CublasLtInfo(const cuda::CublasLtFile& file) {
  KernelInfo info;
  info.name = "gemm.any_any_any.xx.cublaslt.any.plain";
  info.fingerprint = file.identity.empty() ? "cublaslt" : file.identity;
  info.device = DeviceKind::kCuda;
  info.provider = Provider::kVendor;
  return info;
}

KernelDesc CublasLtDesc() {
  const std::uint32_t both = Bit(Order::kRowMajor) | Bit(Order::kColMajor);
  KernelDesc desc;
  desc.type_a = desc.type_b = desc.type_c =
      Bit(DataType::kF32) | Bit(DataType::kF16) | Bit(DataType::kBF16);
  desc.order_a = desc.order_b = desc.order_c = both;
  return desc;
}

/// The major version in "13.0"; 0 for anything else.
int MajorOf(std::string_view driver) {
  int major = 0;
  std::from_chars(driver.data(), driver.data() + driver.size(), major);
  return major;
}

double BytesOfAll(const GemmDesc& p) {
  const double m = p.m, n = p.n, k = p.k;
  const double c = p.scaling == Scaling::kOneZero ? 1 : 2;
  return GetTypeInfo(p.type_a).block_bytes * (m * k + n * k) +
         GetTypeInfo(p.type_c).block_bytes * c * m * n;
}

}  // namespace

/// A handle of the library in a device's context.
class CublasLtGemm::Handle {
 public:
  Handle(const cuda::CublasLtLibrary& library, cuda::CudaDevice& device, void* handle)
      : library_(library), device_(device), handle_(handle) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    // Of a lost device nothing is left to release.
    static_cast<void>(device_.InContext("cublasLtDestroy", [this]() -> Status {
      return library_.Check(library_.api.Destroy(handle_), "cublasLtDestroy");
    }));
  }
  void* get() const { return handle_; }
  cuda::CudaDevice& device() const { return device_; }

 private:
  const cuda::CublasLtLibrary& library_;
  cuda::CudaDevice& device_;
  void* handle_;
};

class CublasLtGemm::Bound final : public BoundLaunch<GemmOp> {
 public:
  Bound(std::shared_ptr<const Handle> handle, CublasLtProduct product,
        const cuda::CublasLtAlgo& algo)
      : handle_(std::move(handle)), product_(std::move(product)), algo_(algo) {}

  Status Launch(const GemmArgs& args, Workspace& workspace, Stream stream) const override {
    const auto at = reinterpret_cast<std::uintptr_t>(workspace.partials);
    const std::uintptr_t aligned =
        (at + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    const std::size_t bytes = workspace.partials_size - (aligned - at);
    handle_->device().GaveOtherWork(stream);
    return handle_->device().InContext("cublasLtMatmul", [&]() -> Status {
      return product_.Launch(handle_->get(), algo_, args, reinterpret_cast<void*>(aligned), bytes,
                             stream.native);
    });
  }

 private:
  std::shared_ptr<const Handle> handle_;
  CublasLtProduct product_;
  cuda::CublasLtAlgo algo_;
};

CublasLtGemm::CublasLtGemm(cuda::CublasLtFile file, bool required)
    : Kernel(CublasLtInfo(file), CublasLtDesc()), file_(std::move(file)), required_(required) {}

std::optional<Rejection> CublasLtGemm::CheckDevice(const DeviceSpec& device) const {
  if (auto no = Kernel::CheckDevice(device)) return no;
  if (required_ && file_.path.empty()) {
    return Rejection{Reason::kDevice, "no cuBLASLt here (" + file_.why_not + ")",
                     "libcublasLt.so.12 or newer"};
  }
  // A driver runs libraries of its own major version and of older ones.
  const int driver = MajorOf(device.driver);
  if (driver == 0 || file_.major <= driver) return std::nullopt;
  return Rejection{Reason::kDevice, Format("driver {}", device.driver),
                   Format("{}.0 or newer for {}", file_.major, file_.path)};
}

std::optional<Rejection> CublasLtGemm::IsFeasible(const GemmDesc& problem) const {
  if (auto no = Kernel::IsFeasible(problem)) return no;
  return CheckCublasLt(problem);
}

std::span<const ConfigField> CublasLtGemm::ConfigFields() const {
  return TypedConfig<Algorithm>::kFields;
}

std::vector<LaunchSpec> CublasLtGemm::Specs(const GemmDesc&, const DeviceSpec&,
                                            const LaunchLimits&) const {
  std::vector<LaunchSpec> specs(Algorithm::kMost + 1);
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i].config = TypedConfig<Algorithm>::Pack({static_cast<std::int64_t>(i)});
  return specs;
}

/// The best of a few tiles, with more overhead and less of the peak than kernels of ours have: on an
/// H200 it took 1.02 to 1.25 times as long as the fastest gemv_bf16 for one row, and reached 0.93 to
/// 1.0 of gemm_hopper's rate (bench/results/gpu_kernels_h200.json). The heuristic's first algorithm
/// is 2 % from the best one on average, so all of them are predicted alike.
double CublasLtGemm::EstimateUs(const GemmDesc& p, const LaunchSpec&,
                                const DeviceSpec& device) const {
  struct Tile {
    std::int64_t rows, cols;
  };
  constexpr Tile kTiles[] = {{64, 64}, {64, 128}, {128, 128}, {128, 256}};
  constexpr double kSetUpUs = 2, kSumUs = 2.5;  // a launch of its own sums what split k leaves
  constexpr std::int64_t kMostSplits = 8;
  const bool tensor_cores = p.type_a != DataType::kF32;
  const double rate = tensor_cores ? 0.74 * device.bf16_gflop_s : 0.7 * device.f32_gflop_s;
  // D may be computed transposed: the longer side of a tile lies along its longer side.
  const std::int64_t shorter = std::min(p.m, p.n), longer = std::max(p.m, p.n);
  const auto count = [](std::int64_t of, std::int64_t size) { return (of + size - 1) / size; };
  double best = -1;
  for (const Tile& tile : kTiles) {
    LaunchCost cost;
    const std::int64_t tiles = count(shorter, tile.rows) * count(longer, tile.cols);
    // Where tiles are too few for the board, k is split.
    const std::int64_t splits = std::clamp<std::int64_t>(device.sm_count / tiles, 1, kMostSplits);
    const double depth = static_cast<double>(p.k) / static_cast<double>(splits);
    const double fed_bytes =
        GetTypeInfo(p.type_a).block_bytes * static_cast<double>(tile.rows + tile.cols) * depth;
    cost.ctas = tiles * splits;
    cost.cta_us =
        std::max(SmUs(2.0 * static_cast<double>(tile.rows * tile.cols) * depth, rate, device),
                 SmUs(fed_bytes, kCacheOverMemory * device.read_gb_s, device));
    cost.memory_bytes = BytesOfAll(p);
    double us = kSetUpUs + PredictUs(cost, device);
    if (splits > 1) us += kSumUs;
    if (best < 0 || us < best) best = us;
  }
  return best;
}

std::size_t CublasLtGemm::PartialsBytes(const GemmDesc&, const LaunchSpec&,
                                        const DeviceSpec&) const {
  return kPartialsBytes;
}

Result<std::shared_ptr<const CublasLtGemm::Handle>> CublasLtGemm::HandleFor(
    const cuda::CublasLtLibrary& library, Device& device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::weak_ptr<const Handle>& known = handles_[&device];
  if (std::shared_ptr<const Handle> handle = known.lock()) return handle;
  cuda::CudaDevice& gpu = *cuda::CudaDevice::Of(device);
  void* made = nullptr;
  const Status created = gpu.InContext("cublasLtCreate", [&]() -> Status {
    return library.Check(library.api.Create(&made), "cublasLtCreate");
  });
  if (!created) return Fail(created.error());
  auto handle = std::make_shared<const Handle>(library, gpu, made);
  known = handle;
  return handle;
}

Result<std::shared_ptr<const BoundLaunch<GemmOp>>> CublasLtGemm::BindLaunch(const GemmDesc& problem,
                                                                            const LaunchSpec& spec,
                                                                            Device& device) const {
  if (cuda::CudaDevice::Of(device) == nullptr)
    return Fail(ErrorCode::kUnsupported, "cuBLASLt needs a CUDA device");
  if (file_.path.empty())
    return Fail(ErrorCode::kUnavailable, "no cuBLASLt here: " + file_.why_not);
  const Result<const cuda::CublasLtLibrary*> library = cuda::OpenCublasLt(file_.path);
  if (!library) return Fail(library.error());
  Result<std::shared_ptr<const Handle>> handle = HandleFor(**library, device);
  if (!handle) return Fail(handle.error());
  Result<CublasLtProduct> product = CublasLtProduct::Make(**library, problem);
  if (!product) return Fail(product.error());
  std::vector<cuda::CublasLtAlgo> algos;
  const Status asked =
      (*handle)->device().InContext("cublasLtMatmulAlgoGetHeuristic", [&]() -> Status {
        Result<std::vector<cuda::CublasLtAlgo>> named =
            product->Algorithms((*handle)->get(), kWorkspaceBytes, Algorithm::kMost + 1);
        if (!named) return Fail(named.error());
        algos = std::move(*named);
        return {};
      });
  if (!asked) return Fail(asked.error());
  const auto place = static_cast<std::size_t>(TypedConfig<Algorithm>::Unpack(spec.config).algo);
  return std::shared_ptr<const BoundLaunch<GemmOp>>(std::make_shared<Bound>(
      std::move(*handle), std::move(*product), algos[std::min(place, algos.size() - 1)]));
}

Status CublasLtGemm::Launch(const GemmArgs&, const LaunchSpec&, Workspace&, Stream) {
  return Fail(ErrorCode::kInternal, Format("{}: only Bind loads what it launches", name()));
}

}  // namespace tilewright
