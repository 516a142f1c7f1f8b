#include <fmt/format.h>

#include "core/shrinking_tasks.h"
#include "ops/gemm/cpu/panel_gemm.h"
#include "ops/gemm/cpu/panel_pack.h"
#include "ops/gemm/formats.h"

namespace tilewright::gemm {
namespace {

/// Pieces of a worker's lane (see ShrinkingTasks).
constexpr int kPiecesOfLane = 8;
/// Sums of a call: of rows by a pair of panels, or of one row by panels side by side.
constexpr int kAccFloats = kAbreast * kPanelCols;
static_assert(kAccFloats >= kGemvMaxRows * kPairCols);

/// Time of weights in blocks, and of plain ones that are not fetched as usual, over that of memory. One row of q8_0 on two
/// cores of a Zen 5 takes 1.04 to 1.2 times as long as by int8, two rows 1.5 to 1.75 times; q4_0 0.9 to 1.06 times.
constexpr double kBlocks = 1.06, kUnusual = 1.05;

/// Behind the number of threads.
constexpr std::size_t kAheadWord = 1, kPanelsWord = 2;
/// KiB. Weights of bf16 from memory, one row, a Xeon with AMX, us with 4, 8, 16 and 32 KiB ahead, with eight panels side
/// by side, and with neither:
///
///     2 threads,  8192 x 2048    1,444  1,469  1,470  1,472  1,231  2,014
///     2 threads,  2048 x 8192    1,373  1,361  1,358  1,361  1,238  1,871
///     16 threads, 8192 x 2048      158    158    159    161    148    173
///     16 threads, 2048 x 8192      125    125    126    128    180    179
///
/// On another host of such processors panels side by side lose: 2 threads, 3072 x 2048 643 us and ahead 472, 16384 x 2048
/// 3,546 and 2,566, 2048 x 8192 2,727 and 1,502; 16 threads read 74 to 128 GB/s so, ahead 128 to 149. What loses least
/// where it loses is the default, the other is tuned for. On two cores of a Zen 4 all are alike, and
/// of a Zen 5 within a tenth.
constexpr int kAhead = 16;
/// Without AMX, of two and three rows, and of one where there is no AVX-512 (by AVX2 one row of bf16, 16384 x 2048 and 2048 x
/// 2048, takes 1,550 and 175 us with 4 KiB ahead, 1,667 and 188 with none). Two cores of a Zen 5, us with 4, 8, 16 and 32
/// KiB ahead and with none:
///
///     1 thread,  2 rows,  2048 x 8192 of bf16   984   962  1,023  1,017  1,185
///     1 thread,  3 rows, 16384 x 2048 of bf16 2,086 1,855  1,967  2,002  2,963
///     2 threads, 2 rows,  2048 x 8192 of bf16   664   670    662    668    724
///     2 threads, 3 rows, 16384 x 2048 of bf16 1,374 1,385  1,443  1,427  1,606
///     2 threads, 2 rows,  8192 x 2048 of f16    655   651    662    661    727
constexpr int kShortAhead = 8;
constexpr ConfigField kFields[] = {
    kThreadsField[0],
    {.name = "ahead", .least = 1, .most = 1024, .optional = true},              ///< in KiB
    {.name = "panels", .least = kAbreast, .most = kAbreast, .optional = true},  ///< side by side
};

int Min(int a, int b) { return a < b ? a : b; }

/// KiB ahead that plain weights are fetched where nothing was measured.
int UsualAhead(const GemmDesc& p, const DeviceSpec& device) {
  if (device.Has(kFeatureAmxTile)) return kAhead;
  return p.m > 1 || !device.Has(kFeatureAvx512) ? kShortAhead : 0;
}

struct Scratch {
  std::int64_t ld_sums;
  std::size_t staged_bytes, total_bytes;
};

// Rows of A, contiguous, then their sums over blocks of k.
Scratch ScratchOf(int m, int k, DataType type_b) {
  Scratch s{};
  s.ld_sums = CeilDiv(k, SumLength(type_b));
  s.staged_bytes = AlignUp(static_cast<std::size_t>(m) * static_cast<std::size_t>(k) * 4);
  s.total_bytes = s.staged_bytes +
                  AlignUp(static_cast<std::size_t>(m) * static_cast<std::size_t>(s.ld_sums) * 4);
  return s;
}

// Four running sums, so that the compiler may use a vector and still add in one order everywhere.
float SumOf(const float* a, int count) {
  float part[4] = {0, 0, 0, 0};
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) part[j] += a[i + j];
  }
  for (; i < count; ++i) part[0] += a[i];
  return (part[0] + part[1]) + (part[2] + part[3]);
}

void StageRows(const GemmArgs& args, const BlockFormat* format, const Scratch& scratch,
               float* staged, float* sums) {
  const bool sums_wanted = format != nullptr && format->min != Factor::kNone;
  const int length = sums_wanted ? format->sub_block : 0;
  const int m = args.a_layout.rows;
  const int k = args.a_layout.cols;
  for (int r = 0; r < m; ++r) {
    float* row = staged + static_cast<std::int64_t>(r) * k;
    __builtin_memcpy(row, static_cast<const std::uint8_t*>(args.a) + 4 * r * args.a_layout.ld,
                     4 * static_cast<std::size_t>(k));
    if (!sums_wanted) continue;
    for (int i = 0; i < k; i += length) {
      sums[r * scratch.ld_sums + i / length] = SumOf(row + i, Min(length, k - i));
    }
  }
}

// Time to unpack and multiply one k of a panel with `rows` rows, in full-rate vector fmas, as
// measured with weights in the cache (EPYC, family 25 model 17, 2026-11-21).
double CyclesPerVector(DataType type, int rows) {
  const BlockFormat* format = FindFormat(type);
  if (type == DataType::kF32) return 1.0 + 0.5 * (rows - 1);
  if (format != nullptr && HasTopBits(*format)) return 3.4 + 0.5 * (rows - 1);
  if (format != nullptr && PanelCodeBits(*format) <= 4) return 1.9 + 0.6 * (rows - 1);
  return 1.6 + 0.5 * (rows - 1);
}

KernelInfo InfoOf(const PanelConfig& config, std::string_view driver_tu) {
  KernelInfo info;
  info.name = FormatKernelId({.a = "f32",
                              .b = DataTypeName(config.type_b),
                              .c = "f32",
                              .isa = config.isa.word,
                              .tile = fmt::format("gemv{}x{}", kGemvMaxRows, kPanelCols),
                              .pack = PackName(config.pack)});
  info.fingerprint = JoinFingerprints({config.ops->tu, driver_tu, CommonTu(), PanelPackTu()});
  info.features = config.isa.features;
  // Its order of summation differs from the GEMM's that larger batches get.
  info.batch_invariant = false;
  return info;
}

KernelDesc DescOf(const PanelConfig& config) {
  KernelDesc desc;
  desc.type_a = desc.type_c = Bit(DataType::kF32);
  desc.type_b = Bit(config.type_b);
  desc.epilogue = Bit(Epilogue::kNone) | Bit(Epilogue::kGatedSilu);
  desc.pack_b = config.pack;
  desc.align_k = BlockElements(config.type_b);
  desc.max_m = kGemvMaxRows;
  desc.tile_m = 1;
  desc.tile_n = kPanelCols;
  return desc;
}

}  // namespace

PanelGemv::PanelGemv(const PanelConfig& config)
    : CpuKernel(InfoOf(config, TILEWRIGHT_TU), DescOf(config)), config_(config) {}

std::span<const ConfigField> PanelGemv::ConfigFields() const { return kFields; }

std::vector<LaunchSpec> PanelGemv::Specs(const GemmDesc& problem, const DeviceSpec& device,
                                         const LaunchLimits& limits) const {
  std::vector<LaunchSpec> specs = CpuKernel::Specs(problem, device, limits);
  if (FindFormat(config_.type_b) != nullptr) return specs;
  const LaunchSpec plain = specs.front();
  for (const int ahead : {4, 8, kAhead, 32}) {
    specs.push_back(plain);
    specs.back().config.words[kAheadWord] = ahead;
  }
  if (problem.m == 1 && config_.ops->gemv_abreast[PanelFormatIndex(config_.type_b)] != nullptr) {
    specs.push_back(plain);
    specs.back().config.words[kPanelsWord] = kAbreast;
  }
  return specs;
}

std::optional<Rejection> PanelGemv::IsFeasible(const GemmDesc& p) const {
  if (auto no = Kernel::IsFeasible(p)) return no;
  return CheckDense(p);
}

std::size_t PanelGemv::PartialsBytes(const GemmDesc& p, const LaunchSpec&,
                                     const DeviceSpec&) const {
  return ScratchOf(p.m, p.k, p.type_b).total_bytes;
}

double PanelGemv::EstimateUs(const GemmDesc& p, const LaunchSpec& spec,
                             const DeviceSpec& device) const {
  const double pairs = CeilDiv(p.n, kPairCols);
  const double weights = pairs * kPairCols * p.k;
  const double bytes = weights / BlockElements(p.type_b) * BlockBytes(p.type_b);
  const double workers = WorkersOf(spec.config, device.cores);
  const double flops = 2 * weights * CyclesPerVector(p.type_b, p.m);
  const double busy = workers < pairs ? workers : pairs;
  const double compute_us =
      flops / (device.f32_gflop_s * config_.isa.relative_rate * 0.8 * busy) * 1e-3;
  const bool plain = FindFormat(config_.type_b) == nullptr;
  const bool as_usual =
      spec.config.words[kAheadWord] == UsualAhead(p, device) && spec.config.words[kPanelsWord] == 0;
  const double waits = !plain ? kBlocks : as_usual ? 1 : kUnusual;
  const double memory_us = ReadCost(config_.isa, device) * bytes / ReadRate(device, bytes) * 1e-3;
  return waits * (compute_us > memory_us ? compute_us : memory_us) + 1.5;
}

std::size_t PanelGemv::PackedBytes(const MatrixLayout& b) const { return PanelPackBytes(b); }

Status PanelGemv::PackB(const void* plain, const MatrixLayout& b, void* packed,
                        Stream stream) const {
  return PackPanels(plain, b, packed, stream);
}

Status PanelGemv::LaunchOn(const GemmArgs& args, const LaunchSpec& spec, Workspace& workspace,
                           Stream stream) {
  const GemmShape shape = ShapeOf(args);
  const Scratch scratch = ScratchOf(shape.m, shape.k, config_.type_b);
  if (Status ok = CheckLaunch(*this, spec, shape, workspace, scratch.total_bytes); !ok) return ok;
  if (shape.m > kGemvMaxRows) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: m = {}, at most {}", name(), shape.m, kGemvMaxRows));
  }
  auto* staged = static_cast<float*>(workspace.partials);
  auto* sums = reinterpret_cast<float*>(static_cast<std::uint8_t*>(workspace.partials) +
                                        scratch.staged_bytes);
  StageRows(args, FindFormat(config_.type_b), scratch, staged, sums);

  const int ahead = static_cast<int>(spec.config.words[kAheadWord]) << 10;
  const int index = PanelFormatIndex(config_.type_b);
  const auto gemv = config_.ops->gemv[index][shape.m - 1];
  const bool wanted = shape.m == 1 && spec.config.words[kPanelsWord] != 0;
  const auto abreast = wanted ? config_.ops->gemv_abreast[index] : nullptr;
  const int unit = abreast != nullptr ? kAbreast / 2 : 1;  // pairs that a task takes at a time
  const std::int64_t panel_bytes = PanelBytes(config_.type_b, shape.k);
  const bool gated = IsGated(args);
  const int pairs = CeilDiv(shape.n, kPairCols);
  const int panels = CeilDiv(shape.n, kPanelCols);
  const int units = CeilDiv(pairs, unit);
  const int workers = Workers(stream), pieces = workers == 1 ? 1 : kPiecesOfLane;
  const auto tasks = ShrinkingTasks::OfStream(units, workers, pieces, 2 * unit * panel_bytes);
  const auto store = [&](int pair, float* acc) {
    if (gated) {
      config_.ops->gated(acc, shape.m, args.alpha);
      StoreTile({&args, 0, shape.m, pair * kPanelCols, kPanelCols, acc, kPairCols, true});
    } else {
      const int col = pair * kPairCols;
      StoreTile({&args, 0, shape.m, col, Min(kPairCols, shape.n - col), acc, kPairCols, false});
    }
  };
  stream.exec().Run(tasks.count(), [&](int task, int) {
    alignas(64) float acc[kAccFloats];
    const auto [first, last] = tasks[task];
    const int end = Min(pairs, last * unit);
    for (int pair = first * unit; pair < end;) {
      GemvArgs call{static_cast<const std::uint8_t*>(args.b) + 2 * pair * panel_bytes,
                    shape.k,
                    staged,
                    shape.k,
                    sums,
                    scratch.ld_sums,
                    acc,
                    ahead,
                    panel_bytes};
      const bool whole = abreast != nullptr && 2 * pair + kAbreast <= panels;
      if (whole) {
        abreast(call);
      } else {
        for (int p = 0; p < Min(2, panels - 2 * pair);
             ++p, call.panel += panel_bytes, call.out += kPanelCols) {
          gemv(call);
        }
      }
      const int multiplied = whole ? unit : 1;
      for (int i = 0; i < multiplied; ++i, ++pair) store(pair, acc + i * kPairCols);
    }
  });
  return {};
}

}  // namespace tilewright::gemm
