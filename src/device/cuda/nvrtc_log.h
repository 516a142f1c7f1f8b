#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tilewright/compiler.h"

namespace tilewright::cuda {

/// What `--ptxas-options=-v` printed of the kernel `symbol`; nullopt where the log does not give
/// its registers. Spills of functions that are no kernels are added: a unit holds one kernel, and
/// they are what it calls. Lines in other words are skipped; spills that no line gives are unknown.
std::optional<ResourceUsage> ResourcesOfLog(std::string_view log, std::string_view symbol);

/// What the cubin itself tells: registers, frame, constant memory, and shared memory with what the
/// system reserves of it (1 KiB from sm_90 on); no barriers. Spills are 0 where no function of the
/// unit has a frame, in which they would lie; else unknown. All zero, and spills unknown, for bytes
/// that are not a cubin or that lack the symbol. Total: reads nothing outside `cubin`.
ResourceUsage ResourcesOfCubin(std::string_view cubin, std::string_view symbol);

/// What the log tells and, where it does not, the cubin.
ResourceUsage ResourcesOf(std::string_view log, std::string_view cubin, std::string_view symbol);

/// The line in which the log of a failed compilation says what is wrong with the source, "" where
/// there is none: NVRTC calls it a compilation error too when memory runs out, in the front end or,
/// without a word, in the assembler. A kernel with too much static shared memory, of which the
/// assembler only tells the amount, gets a line of ours.
std::string Diagnosis(std::string_view log);

/// Whether the log says that memory ran out.
bool TellsOfNoMemory(std::string_view log);

/// The log without the lines that differ from one compilation to the next (times).
std::string StableLog(std::string_view log);

}  // namespace tilewright::cuda
