#include <algorithm>
#include <array>

#include "core/text.h"
#include "ops/gemm/cuda/families.h"
#include "ops/gemm/cuda/family_checks.h"
#include "tilewright/types.h"

namespace tilewright {
namespace {

std::uint32_t Threads(const KernelSpec& spec) { return 32u * spec.warps; }

std::optional<Rejection> CheckTypes(const KernelSpec& spec) {
  if (auto no = CheckPlainFloat("type_a", spec.type_a)) return no;
  if (auto no = CheckPlainFloat("type_b", spec.type_b)) return no;
  if (auto no = CheckPlainFloat("type_d", spec.type_d)) return no;
  const bool adds = spec.epilogue == SpecEpilogue::kAdd;
  if (!adds && spec.epilogue != SpecEpilogue::kNone) {
    return Reject(Reason::kEpilogue, std::string(SpecEpilogueName(spec.epilogue)), "none or add");
  }
  if (adds ? !IsPlainFloat(spec.type_c) : spec.type_c != DataType::kNone) {
    return Reject(Reason::kType, Format("type_c = {}", DataTypeName(spec.type_c)),
                  adds ? "f32, bf16 or f16 with epilogue add" : "none without epilogue add");
  }
  if (spec.order_a != Order::kRowMajor || spec.order_b != Order::kColMajor) {
    return Reject(Reason::kOrder, "other orders", "k contiguous in both: A row-major, B col-major");
  }
  return std::nullopt;
}

std::optional<Rejection> Check(const KernelSpec& spec) {
  if (spec.arch.number < 80) return Reject(Reason::kDevice, spec.arch.ToString(), "sm_80 or newer");
  if (auto no = CheckTypes(spec)) return no;
  constexpr std::array kExtents{8, 16, 32, 64, 128};
  constexpr std::array kDepths{16, 32};
  constexpr std::array kWarps{1, 2, 4, 8};
  constexpr std::array kOutputs{1, 2, 4, 8};
  if (auto no = CheckOneOf("tile_m", spec.tile_m, kExtents)) return no;
  if (auto no = CheckOneOf("tile_n", spec.tile_n, kExtents)) return no;
  if (auto no = CheckOneOf("tile_k", spec.tile_k, kDepths)) return no;
  if (auto no = CheckOneOf("warps", spec.warps, kWarps)) return no;
  if (auto no = CheckOneOf("param0", spec.params[0], kOutputs)) return no;
  if (auto no = CheckOneOf("param1", spec.params[1], kOutputs)) return no;
  const auto outputs = static_cast<std::uint32_t>(spec.params[0] * spec.params[1]);
  if (spec.tile_m % spec.params[0] != 0 || spec.tile_n % spec.params[1] != 0 ||
      Threads(spec) * outputs != std::uint32_t{spec.tile_m} * spec.tile_n) {
    return Reject(Reason::kShape,
                  Format("{} x {} outputs of {} threads in a tile of {} x {}", spec.params[0],
                         spec.params[1], Threads(spec), spec.tile_m, spec.tile_n),
                  "as many as the tile has");
  }
  if (spec.stages != 0 || spec.split_k != 0 || spec.cluster_m != 0 || spec.cluster_n != 0 ||
      spec.params[2] != 0 || spec.params[3] != 0) {
    return Reject(Reason::kShape, "a field that gemm_simt does not use is set",
                  "stages, split_k, cluster_m, cluster_n, param2, param3 = 0");
  }
  return std::nullopt;
}

KernelLaunchShape Launch(const KernelSpec& spec) {
  return {.threads = Threads(spec), .dynamic_smem_bytes = 0};
}

ResourceLimits Limits(const KernelSpec& spec) {
  return {.max_registers = std::min(255u, 65536u / Threads(spec) / 8u * 8u)};
}

struct Tile {
  std::uint16_t m, n, k, warps;
  std::int32_t rows, cols;
};
/// For many rows, and for few, of which a CTA reads as few columns of B as a multiprocessor needs.
constexpr std::array kTiles{Tile{64, 64, 32, 8, 4, 4}, Tile{8, 32, 32, 4, 2, 1}};

/// Every pair of plain types to D of A's type, or f32. C is read only where beta is not 0, so that
/// one kernel serves products with and without it.
std::vector<KernelSpec> Catalog(CudaArch arch) {
  std::vector<KernelSpec> specs;
  if (arch.number < 80) return specs;
  constexpr std::array kTypes{DataType::kF32, DataType::kBF16, DataType::kF16};
  for (const DataType a : kTypes) {
    for (const DataType b : kTypes) {
      for (const DataType d : kTypes) {
        if (d != a && d != DataType::kF32) continue;
        for (const Tile& tile : kTiles) {
          specs.push_back({.family = kGemmSimt,
                           .arch = arch,
                           .type_a = a,
                           .type_b = b,
                           .type_c = d,
                           .type_d = d,
                           .order_a = Order::kRowMajor,
                           .order_b = Order::kColMajor,
                           .epilogue = SpecEpilogue::kAdd,
                           .tile_m = tile.m,
                           .tile_n = tile.n,
                           .tile_k = tile.k,
                           .warps = tile.warps,
                           .params = {tile.rows, tile.cols, 0, 0}});
        }
      }
    }
  }
  return specs;
}

}  // namespace

KernelFamily GemmSimtFamily() {
  return {.name = kGemmSimt,
          .launch_abi = 2,
          .source = "ops/gemm/cuda/gemm_simt.cu",
          .files = {},
          .options = {},
          .check = Check,
          .launch = Launch,
          .limits = Limits,
          .catalog = Catalog,
          .waits_for_prerequisites = true};
}

}  // namespace tilewright
