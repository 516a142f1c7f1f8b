#include "ops/gemm/base/alignment.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tilewright {
namespace {

/// log2 of what the addresses of all lines are multiples of. Packed weights have no lines: their
/// kernel knows what it packed.
std::uint8_t AlignmentLog2(const void* data, const MatrixLayout& layout) {
  constexpr int kWidestLoadLog2 = 4;
  auto bits = reinterpret_cast<std::uintptr_t>(data);
  if (layout.pack == kPackPlain || layout.pack == kPackAny)
    bits |= static_cast<std::uintptr_t>(BytesOf(layout.type, layout.ld));
  return static_cast<std::uint8_t>(std::min(std::countr_zero(bits), kWidestLoadLog2));
}

}  // namespace

void PromiseAlignment(const GemmArgs& args, GemmDesc& desc) {
  desc.align_a = AlignmentLog2(args.a, args.a_layout);
  desc.align_b = AlignmentLog2(args.b, args.b_layout);
  desc.align_c = AlignmentLog2(args.d, args.d_layout);
  if (args.prologue != Prologue::kNone)
    desc.align_norm = AlignmentLog2(args.norm, {.type = args.type_norm, .ld = 0});
  if (args.beta != 0.0f)
    desc.align_c = std::min(desc.align_c, AlignmentLog2(args.c, args.c_layout));
}

}  // namespace tilewright
