#include "device/cuda/launch.h"

#include <utility>

#include "core/text.h"

namespace tilewright::cuda {
namespace {

constexpr std::uint64_t kMapAlignment = 16;
constexpr std::uint32_t kMaxBox = 256;
constexpr std::uint64_t kSwizzleBytes = 128;

std::optional<Rejection> Refuse(Reason reason, std::string have, std::string need) {
  return Rejection{reason, std::move(have), std::move(need)};
}

std::optional<Rejection> CheckExtents(std::string_view operand, const TensorMapDesc& desc) {
  constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 32;
  constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
  for (std::uint32_t i = 0; i < desc.rank; ++i) {
    if (desc.dims[i] < 1 || desc.dims[i] > kMaxDim) {
      return Refuse(Reason::kShape, Format("{}: dimension {} = {}", operand, i, desc.dims[i]),
                    "1 to 2^32 elements for a tensor map");
    }
    if (desc.box[i] < 1 || desc.box[i] > kMaxBox) {
      return Refuse(Reason::kShape, Format("{}: box {} = {}", operand, i, desc.box[i]),
                    Format("1 to {} elements for a tensor map", kMaxBox));
    }
  }
  for (std::uint32_t i = 0; i + 1 < desc.rank; ++i) {
    if (desc.strides[i] % kMapAlignment != 0) {
      return Refuse(Reason::kAlignment, Format("{}: lines of {} bytes", operand, desc.strides[i]),
                    Format("a multiple of {} bytes for a tensor map", kMapAlignment));
    }
    if (desc.strides[i] == 0 || desc.strides[i] >= kMaxStride) {
      return Refuse(Reason::kShape, Format("{}: lines of {} bytes", operand, desc.strides[i]),
                    "more than 0 and less than 2^40 bytes for a tensor map");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> CheckTensorMap(std::string_view operand, const TensorMapDesc& desc) {
  if (desc.type != DataType::kF32 && desc.type != DataType::kF16 && desc.type != DataType::kBF16 &&
      desc.type != DataType::kI8) {
    return Refuse(Reason::kType, Format("{} {}", operand, DataTypeName(desc.type)),
                  "f32, f16, bf16 or i8 for a tensor map");
  }
  if (desc.rank < 1 || desc.rank > desc.dims.size()) {
    return Refuse(Reason::kShape, Format("{}: rank {}", operand, desc.rank),
                  Format("1 to {} for a tensor map", desc.dims.size()));
  }
  if (desc.address == 0 || desc.address % kMapAlignment != 0) {
    return Refuse(Reason::kAlignment, Format("{} at {:#x}", operand, desc.address),
                  Format("a multiple of {} bytes for a tensor map", kMapAlignment));
  }
  if (auto no = CheckExtents(operand, desc)) return no;
  const auto line_bytes = static_cast<std::uint64_t>(BytesOf(desc.type, desc.box[0]));
  if (line_bytes % kMapAlignment != 0) {
    return Refuse(Reason::kShape, Format("{}: box lines of {} bytes", operand, line_bytes),
                  Format("a multiple of {}", kMapAlignment));
  }
  if (desc.swizzled && line_bytes > kSwizzleBytes) {
    return Refuse(Reason::kShape, Format("{}: box lines of {} bytes", operand, line_bytes),
                  Format("at most {}, a line of the swizzle", kSwizzleBytes));
  }
  return std::nullopt;
}

LaunchResult CheckedLaunch(CudaLaunch launch) {
  constexpr std::uint32_t kMaxThreads = 1024;
  constexpr std::array<std::uint32_t, 3> kMaxGrid{0x7fffffff, 65535, 65535};
  const std::uint64_t threads = std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads < 1 || threads > kMaxThreads) {
    return tl::unexpected(Rejection{Reason::kDevice, Format("{} threads a CTA", threads),
                                    Format("1 to {}", kMaxThreads)});
  }
  for (std::size_t i = 0; i < kMaxGrid.size(); ++i) {
    if (launch.grid[i] < 1 || launch.grid[i] > kMaxGrid[i]) {
      return tl::unexpected(Rejection{Reason::kShape,
                                      Format("{} CTAs along {}", launch.grid[i], "xyz"[i]),
                                      Format("1 to {}", kMaxGrid[i])});
    }
    if (launch.cluster[i] < 1 || launch.grid[i] % launch.cluster[i] != 0) {
      return tl::unexpected(Rejection{Reason::kShape,
                                      Format("{} CTAs along {}", launch.grid[i], "xyz"[i]),
                                      Format("a multiple of the cluster, {}", launch.cluster[i])});
    }
  }
  for (const TensorMapSlot& slot : launch.maps()) {
    if (auto no = CheckTensorMap(slot.operand, slot.desc)) return tl::unexpected(*std::move(no));
  }
  return launch;
}

Status EncodeMaps(CudaLaunch& launch, const MapEncoder& encode) {
  for (const TensorMapSlot& slot : launch.maps()) {
    const std::span<std::byte, kTensorMapBytes> out(launch.params.data() + slot.offset,
                                                    kTensorMapBytes);
    if (Status encoded = encode(slot.desc, out); !encoded) return encoded;
  }
  return {};
}

}  // namespace tilewright::cuda
