#pragma once

#include <cstdint>
#include <string_view>

namespace tilewright {

/// Version of the text that RenderSpec writes. It is part of every request key: increase it
/// whenever the text of any spec changes (a golden digest in tests/artifact/keys detects that).
inline constexpr std::uint32_t kRenderRevision = 1;

/// The virtual name of the rendered header, and what it includes.
inline constexpr std::string_view kSpecHeader = "spec.cuh";
inline constexpr std::string_view kSpecHeaderInclude = "device/cuda/kernels/types.cuh";

}  // namespace tilewright
