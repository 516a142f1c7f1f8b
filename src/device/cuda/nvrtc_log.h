#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tilewright/compiler.h"

namespace tilewright::cuda {

/// What `--ptxas-options=-v` printed of the kernel `symbol`; nullopt where the log has no line of
/// it. Spills of functions that are no kernels are added: a unit holds one kernel, and they are
/// what it calls. Unknown words are skipped.
std::optional<ResourceUsage> ResourcesOfLog(std::string_view log, std::string_view symbol);

/// What the cubin itself tells: registers, frame, constant memory, and shared memory with what the
/// system reserves of it (1 KiB from sm_90 on); not spills and barriers. All zero for bytes that
/// are not a cubin or that lack the symbol. Total: reads nothing outside `cubin`.
ResourceUsage ResourcesOfCubin(std::string_view cubin, std::string_view symbol);

/// The log without the lines that differ from one compilation to the next (times).
std::string StableLog(std::string_view log);

}  // namespace tilewright::cuda
