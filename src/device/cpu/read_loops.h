#pragma once

#include <cstdint>

#include "tilewright/executor.h"

namespace tilewright {

// Loops that read memory with the widest loads of an instruction set and return the sum of its
// words, so that nothing can be left out. One file for each instruction set.

/// The sum of `count` words, each read once, from front to back.
using ReadLoop = std::uint64_t (*)(const std::uint64_t* words, std::int64_t count);

std::uint64_t ReadWordsScalar(const std::uint64_t* words, std::int64_t count);
std::uint64_t ReadWordsAvx2(const std::uint64_t* words, std::int64_t count);
std::uint64_t ReadWordsAvx512(const std::uint64_t* words, std::int64_t count);

/// The widest that this processor has, whatever TILEWRIGHT_ISA says: a cap of instructions changes
/// no memory.
ReadLoop WidestRead();

/// How the workers share a buffer.
struct ReadShare {
  /// Every worker keeps one slice, which stays in its own caches; else they take pieces as they come.
  bool slices = true;
  int passes = 1;  ///< over the whole buffer
};

/// All workers of `executor` read `count` words `share.passes` times. The sum of all that was read.
std::uint64_t ReadTogether(Executor& executor, ReadLoop loop, const std::uint64_t* words,
                           std::int64_t count, const ReadShare& share);

}  // namespace tilewright
