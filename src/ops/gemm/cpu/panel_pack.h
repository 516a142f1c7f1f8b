#pragma once

#include <cstddef>
#include <string_view>

#include "tilewright/gemm.h"

namespace tilewright::gemm {

/// Bytes of `b` (rows k, cols n) as 16-column panels of its own type (panel_layout.h).
std::size_t PanelPackBytes(const MatrixLayout& b);

/// The file of the packing: part of the fingerprint of every kernel that reads what it writes.
std::string_view PanelPackTu();

/// Packs plain column-major weights into panels: every byte of [0, PanelPackBytes(b)) is written,
/// columns beyond n with zeros, which decode to zero in every format. kInvalidArgument for another
/// order, or k or ld that is no multiple of the block. Spreads panels over the stream's workers.
Status PackPanels(const void* plain, const MatrixLayout& b, void* packed, Stream stream);

}  // namespace tilewright::gemm
