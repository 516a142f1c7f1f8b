#pragma once

#include <string_view>

#include "tilewright/gemm.h"

namespace tilewright {

// Packed layouts of weights, the one list: a number, once released, keeps its meaning (records and keys spell the name). Add a
// row beside the kernel that wants the layout; describe the bytes where PackB is.

struct PackRow {
  Pack pack;
  std::string_view name;
};
constexpr PackRow kPackTable[] = {
    {kPackPlain, "plain"},
    {kPackAny, "any"},
};

}  // namespace tilewright
