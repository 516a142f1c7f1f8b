#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tilewright/compiler.h"

namespace tilewright::cuda {

/// What `--ptxas-options=-v` printed of the kernel `symbol`; nullopt where the log does not give
/// its registers. Spills of functions that are not kernels are added: a unit holds one kernel,
/// which calls them. Lines with other wording are skipped; spills that no line gives are unknown.
std::optional<ResourceUsage> ResourcesOfLog(std::string_view log, std::string_view symbol);

/// What the cubin itself says: registers, frame, constant memory, and shared memory including what
/// the system reserves (1 KiB from sm_90 on); no barriers. Spills are 0 if no function of the unit
/// has a frame to hold them; else unknown. All zero, and spills unknown, for bytes
/// that are not a cubin or that lack the symbol. Total: reads nothing outside `cubin`.
ResourceUsage ResourcesOfCubin(std::string_view cubin, std::string_view symbol);

/// What the log says, completed from the cubin.
ResourceUsage ResourcesOf(std::string_view log, std::string_view cubin, std::string_view symbol);

/// The line in which the log of a failed compilation says what is wrong with the source; "" if
/// there is none, since NVRTC reports a compilation error also when memory runs out, in the front
/// end or, without a message, in the assembler. For too much static shared memory, of which the
/// assembler reports only the amount, the line is ours.
std::string Diagnosis(std::string_view log);

/// Whether the log says that memory ran out.
bool TellsOfNoMemory(std::string_view log);

/// The log without the lines that differ from one compilation to the next (times).
std::string StableLog(std::string_view log);

}  // namespace tilewright::cuda
