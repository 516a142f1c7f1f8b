#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>

#include "tilewright/rejection.h"
#include "tilewright/result.h"
#include "tilewright/types.h"

// A launch of a kernel as a value, made by the launchers of the operation rooms without a driver,
// so that it is tested without a GPU; CudaDriver's objects queue it.

namespace tilewright::cuda {

/// A dense tensor as described to the copy engine (TMA): the input of cuTensorMapEncodeTiled.
/// Dimension 0 is contiguous. What is missing here is the same for all our kernels: interleave
/// none, element strides 1, L2 promotion 256B, zeros outside of the tensor.
struct TensorMapDesc {
  DataType type = DataType::kNone;         ///< f32, f16 or bf16, or i8: bytes of anything
  bool swizzled = true;                    ///< swizzle 128B, or none
  std::uint32_t rank = 2;                  ///< 1 to 5
  std::uint64_t address = 0;               ///< of device memory; a multiple of 16
  std::array<std::uint64_t, 5> dims{};     ///< elements, 1 to 2^32
  std::array<std::uint64_t, 4> strides{};  ///< bytes, of dimensions 1 and up; multiples of 16
  std::array<std::uint32_t, 5> box{};      ///< elements copied at once, 1 to 256

  bool operator==(const TensorMapDesc&) const = default;
};

/// Bytes of an encoded tensor map (CUtensorMap).
inline constexpr std::size_t kTensorMapBytes = 128;

/// What the copy engine cannot address, by the rules of cuTensorMapEncodeTiled, said of `operand`
/// ("A"): a misaligned address, a stride that is no multiple of 16 bytes or 2^40 and more, a box
/// beyond 256 elements, or lines of it that are no multiple of 16 bytes or, swizzled, wider than 128.
/// nullopt when it can.
std::optional<Rejection> CheckTensorMap(std::string_view operand, const TensorMapDesc& desc);

/// The parameter block of a launch, by value: a plain struct of the headers of tilewright/cuda. There
/// is room for several tensor maps; what a block does not fill is neither cleared nor copied.
class KernelParams {
 public:
  static constexpr std::size_t kCapacity = 1280;

  KernelParams() = default;
  template <class T>
  explicit KernelParams(const T& params) : size_(sizeof(T)) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kCapacity);
    std::memcpy(bytes_.data(), &params, sizeof(T));
  }
  KernelParams(const KernelParams& other) : size_(other.size_) {
    std::memcpy(bytes_.data(), other.bytes_.data(), size_);
  }
  KernelParams& operator=(const KernelParams& other) {
    size_ = other.size_;
    std::memmove(bytes_.data(), other.bytes_.data(), size_);
    return *this;
  }
  ~KernelParams() = default;
  std::size_t size() const { return size_; }
  const std::byte* data() const { return bytes_.data(); }
  std::byte* data() { return bytes_.data(); }
  /// The block as the struct it was made of; nullopt for a struct of another size.
  template <class T>
  std::optional<T> As() const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (size_ != sizeof(T)) return std::nullopt;
    T params;
    std::memcpy(&params, bytes_.data(), sizeof(T));
    return params;
  }

 private:
  alignas(128) std::array<std::byte, kCapacity> bytes_;
  std::size_t size_ = 0;
};

/// Who zeroes the memory that a kernel counts in.
enum class Zeroing : std::uint8_t {
  kNone,        ///< no one: the launch reads only what it wrote itself
  kOnce,        ///< the caller, once: every launch leaves it zero again
  kEachLaunch,  ///< the caller, on the stream, before every launch
};

/// Device memory that a launch needs beside its operands, at the address that was given to the
/// launcher.
struct LaunchWorkspace {
  std::size_t bytes = 0;
  Zeroing zeroing = Zeroing::kNone;

  bool operator==(const LaunchWorkspace&) const = default;
};

/// A tensor map of a launch, and where its bytes lie in the parameter block.
struct TensorMapSlot {
  std::size_t offset = 0;
  std::string_view operand;  ///< "A": static text, for messages
  TensorMapDesc desc;
};

/// Everything that one launch of a compiled kernel consists of. A plain value.
struct CudaLaunch {
  static constexpr std::size_t kMaxTensorMaps = 4;

  std::array<std::uint32_t, 3> grid{1, 1, 1};     ///< CTAs; multiples of `cluster`
  std::array<std::uint32_t, 3> block{1, 1, 1};    ///< threads
  std::array<std::uint32_t, 3> cluster{1, 1, 1};  ///< as a launch attribute; all ones: none
  std::uint32_t dynamic_smem_bytes = 0;
  /// The kernel waits by itself for those before it (KernelFamily::waits_for_prerequisites), so it
  /// may be started before they have ended: the launch has the attribute
  /// programmatic-stream-serialization wherever the work in front of it is a kernel.
  bool programmatic = false;
  /// The CTAs wait for each other: the driver refuses a grid that the GPU cannot hold at once, and
  /// starts none of it before there is room for all. Never with `programmatic`.
  bool cooperative = false;
  KernelParams params;
  std::array<TensorMapSlot, kMaxTensorMaps> map_slots{};
  std::size_t map_count = 0;  ///< of map_slots
  LaunchWorkspace workspace;

  std::span<const TensorMapSlot> maps() const { return {map_slots.data(), map_count}; }
};

/// A launch, or why the kernel cannot run these arguments.
using LaunchResult = tl::expected<CudaLaunch, Rejection>;

/// `launch` unless no GPU could take it: a grid, a block or a cluster beyond CUDA's limits, or a
/// tensor map that CheckTensorMap refuses. Every launcher returns through here.
LaunchResult CheckedLaunch(CudaLaunch launch);

/// Writes the 128 bytes of a tensor map: EncodeTensorMap of driver.h, or a test's own.
using MapEncoder =
    std::function<Status(const TensorMapDesc& desc, std::span<std::byte, kTensorMapBytes> out)>;

/// Encodes the tensor maps into the parameter block; once, before the first launch. Errors are
/// those of `encode`.
Status EncodeMaps(CudaLaunch& launch, const MapEncoder& encode);

}  // namespace tilewright::cuda
