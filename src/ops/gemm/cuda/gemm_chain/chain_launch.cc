#include "ops/gemm/cuda/gemm_chain/chain_launch.h"

#include <algorithm>
#include <cstddef>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "engine/workspace.h"
#include "ops/gemm/base/extent.h"
#include "ops/gemm/cuda/gemm_args.h"
#include "ops/gemm/cuda/gemm_chain/families.h"
#include "ops/gemm/cuda/gemm_qw/gemm_qw_launch.h"
#include "tilewright/cuda/gemm_chain_params.h"

namespace tilewright {
namespace {

constexpr std::size_t kAlign = 256;
constexpr std::size_t Aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// Where things lie in the workspace, in bytes.
struct Places {
  std::size_t partials = 0, x = 0, squares = 0, squares_bytes = 0;  // of `partials`; of one product
  std::size_t arrivals = 0, arrivals_bytes = 0;                     // of `barriers`; of one product
  WorkspaceSize size;
};

Places PlacesOf(const KernelSpec& spec, std::span<const GemmArgs> products,
                const DeviceSpec& device) {
  std::int64_t tiles = 0;
  int k = 0;
  for (const GemmArgs& args : products) {
    const GemmShape shape = ShapeOf(args);
    tiles = std::max(tiles, std::int64_t{(shape.n + spec.tile_n - 1) / spec.tile_n});
    k = std::max(k, static_cast<int>(shape.k));
  }
  const auto count = static_cast<std::size_t>(tiles);
  const auto ctas = static_cast<std::size_t>(device.sm_count);
  Places at;
  at.x = Aligned(ctas * spec.tile_m * spec.tile_n * sizeof(float));
  at.squares = at.x + Aligned(static_cast<std::size_t>(cuda::GemmChainXBytes(spec.tile_m, k)));
  at.squares_bytes = Aligned(count * spec.tile_m * sizeof(float));
  at.arrivals = Aligned(cuda::kChainWords * sizeof(unsigned int));
  at.arrivals_bytes = count * sizeof(unsigned int);
  at.size.partials = at.squares + products.size() * at.squares_bytes;
  at.size.barriers = at.arrivals + products.size() * at.arrivals_bytes;
  return at;
}

bool IsGated(const GemmArgs& args) { return args.epilogue == Epilogue::kGatedSilu; }

KernelSpec QwSpecOf(const KernelSpec& spec, const GemmArgs& args) {
  return GemmQwSpecOf(spec, IsGated(args) ? SpecEpilogue::kSwiGlu : SpecEpilogue::kAdd);
}
/// As gemm_qw takes it.
GemmArgs WithoutPrologue(GemmArgs args) {
  args.prologue = Prologue::kNone;
  args.norm = nullptr;
  return args;
}

/// What the product in front of it has to do with it, and what of its operands may lie where.
std::optional<Rejection> CheckPlace(const GemmArgs& args, const GemmArgs* front) {
  if (front == nullptr) {
    if (args.prologue != Prologue::kNone) {
      return Reject(Reason::kPrologue, "prologue rms_norm of the first product", "none");
    }
  } else if (args.a != front->d || args.a_layout != front->d_layout) {
    return Reject(Reason::kStriding, "A is not D of the product in front", "D");
  }
  if (args.prologue == Prologue::kRmsNorm) {
    if (args.type_norm != DataType::kF32) {
      return Reject(Reason::kType, Format("norm of {}", DataTypeName(args.type_norm)), "f32");
    }
    const auto address = reinterpret_cast<std::uintptr_t>(args.norm);
    if (address == 0 || address % 16 != 0) {
      return Reject(Reason::kAlignment, Format("norm at {:#x}", address), "a multiple of 16");
    }
    if (IsGated(*front)) {
      return Reject(Reason::kPrologue, "prologue rms_norm behind gate and up", "none");
    }
  }
  const Extent d = ExtentOf(args.d, args.d_layout);
  if (Overlap(d, ExtentOf(args.a, args.a_layout))) {
    return Reject(Reason::kStriding, "D overlaps A", "memory of its own");
  }
  if (args.beta != 0 && args.c != args.d && Overlap(d, ExtentOf(args.c, args.c_layout))) {
    return Reject(Reason::kStriding, "D overlaps C", "C itself or memory of its own");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> CheckChain(const KernelSpec& spec, std::span<const GemmArgs> products,
                                    const DeviceSpec& device) {
  if (auto no = CheckFamily(spec, GemmChainFamily())) return no;
  if (products.empty() || products.size() > cuda::kMostChainProducts) {
    return Reject(Reason::kShape, Format("{} products", products.size()),
                  Format("1 to {}", cuda::kMostChainProducts));
  }
  const GemmArgs* front = nullptr;
  for (const GemmArgs& args : products) {
    if (auto no = CheckGemmQw(QwSpecOf(spec, args), WithoutPrologue(args))) return no;
    const GemmShape shape = ShapeOf(args);
    if (shape.m > spec.tile_m) {
      return Reject(Reason::kShape, Format("{} rows", shape.m), Format("at most {}", spec.tile_m));
    }
    if (!args.constant_b) return Reject(Reason::kStriding, "B that may be written", "constant B");
    const std::int64_t units =
        cuda::GemmQwUnits(shape.m, shape.n, shape.k, spec.tile_m, spec.tile_n);
    if (units < device.sm_count) {
      return Reject(Reason::kShape, Format("{} k-tiles", units),
                    Format("at least {}, one for every multiprocessor", device.sm_count));
    }
    if (auto no = CheckPlace(args, front)) return no;
    front = &args;
  }
  return std::nullopt;
}

WorkspaceSize GemmChainWorkspace(const KernelSpec& spec, std::span<const GemmArgs> products,
                                 const DeviceSpec& device) {
  return PlacesOf(spec, products, device).size;
}

cuda::LaunchResult GemmChainLaunch(const KernelSpec& spec, std::span<const GemmArgs> products,
                                   const DeviceSpec& device, const Workspace& workspace,
                                   const ChainAlarm& alarm) {
  if (auto no = CheckChain(spec, products, device)) return tl::unexpected(*std::move(no));
  const Places places = PlacesOf(spec, products, device);
  if (auto no = CheckWorkspace(workspace, places.size)) return tl::unexpected(*std::move(no));
  auto* const partials = static_cast<std::byte*>(workspace.partials);
  auto* const barriers = static_cast<std::byte*>(workspace.barriers);

  cuda::GemmChainParams params{};
  cuda::CudaLaunch launch;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const GemmArgs& args = products[i];
    const GemmShape shape = ShapeOf(args);
    cuda::GemmChainProduct& product = params.products[i];
    product.x = args.a;
    product.c = args.c;
    product.y = args.d;
    product.partials = reinterpret_cast<float*>(partials + places.partials);
    product.arrivals =
        reinterpret_cast<unsigned int*>(barriers + places.arrivals + i * places.arrivals_bytes);
    product.ldx = args.a_layout.ld;
    product.ldc = args.c_layout.ld;
    product.ldy = args.d_layout.ld;
    product.m = shape.m;
    product.n = shape.n;
    product.k = shape.k;
    product.alpha = args.alpha;
    product.beta = IsGated(args) ? 0 : args.beta;
    product.gated = IsGated(args) ? 1 : 0;
    if (args.prologue == Prologue::kRmsNorm) {
      cuda::GemmChainProduct& front = params.products[i - 1];
      product.gain = static_cast<const float*>(args.norm);
      product.epsilon = args.epsilon;
      front.squares_out =
          reinterpret_cast<float*>(partials + places.squares + i * places.squares_bytes);
      product.squares = front.squares_out;
      product.squares_of = (front.n + spec.tile_n - 1) / spec.tile_n;
    }
    launch.map_slots[launch.map_count] = {
        offsetof(cuda::GemmChainParams, products) + i * sizeof(cuda::GemmChainProduct) +
            offsetof(cuda::GemmChainProduct, w),
        "B", GemmQwWeights(QwSpecOf(spec, args), args, cuda::kChainBoxRows)};
    ++launch.map_count;
  }
  params.words = reinterpret_cast<unsigned int*>(barriers);
  params.x = reinterpret_cast<unsigned char*>(partials + places.x);
  params.alarm = alarm.word;
  params.wait_ns = alarm.wait_ns;
  params.count = static_cast<int>(products.size());

  const KernelLaunchShape compiled = GemmChainFamily().launch(spec);
  launch.grid = {static_cast<std::uint32_t>(device.sm_count), 1, 1};
  launch.block = {compiled.threads, 1, 1};
  launch.dynamic_smem_bytes = compiled.dynamic_smem_bytes;
  launch.cooperative = true;
  launch.params = cuda::KernelParams(params);
  launch.workspace = {places.size.partials + places.size.barriers, cuda::Zeroing::kOnce};
  return cuda::CheckedLaunch(launch);
}

}  // namespace tilewright
