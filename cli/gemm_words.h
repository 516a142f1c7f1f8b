#pragma once

#include <string>
#include <string_view>

#include "tilewright/gemm.h"
#include "verbs.h"

namespace tilewright::cli {

/// The problem given by the words. Errors name the word.
Result<GemmDesc> MakeGemm(const GemmWords& words);

/// "m=1,n=576,k=576,type=q4_1" -> the problem; any field of KeyOf, "type" for "type_b". `words` has
/// what is omitted.
Result<GemmDesc> ParseGemm(std::string_view text, GemmWords words = {});

/// A device from a JSON object with the fields of DeviceSpec; an unknown or mistyped key is an
/// error that names it (docs/cli.md lists the keys).
Result<DeviceSpec> ReadDeviceSpec(const std::string& path);

/// "2048 x 576 x 1536 q4_1": m, n, k, weights, and any other fields that differ from their
/// defaults.
std::string ShortGemm(const GemmDesc& desc);

}  // namespace tilewright::cli
