#pragma once

#include "tilewright/tilewright.h"

namespace tilewright::test {

/// Norms that compute what the library's scalar one does, and misbehave before or after: names of
/// the kernels that AddTestNorms adds. All but kRight and kOff would end or hang a process that tries them.
inline constexpr const char* kRight = "norm.test.right";
inline constexpr const char* kPrints = "norm.test.prints";  ///< on standard output, and is right
inline constexpr const char* kOff = "norm.test.off";  ///< doubles the first value of its result
inline constexpr const char* kCrashes = "norm.test.crashes";
inline constexpr const char* kAborts = "norm.test.aborts";
inline constexpr const char* kExits = "norm.test.exits";  ///< with exit code 0
inline constexpr const char* kHangs = "norm.test.hangs";
inline constexpr const char* kOutside = "norm.test.outside";  ///< writes behind its output
inline constexpr const char* kFarOutside = "norm.test.far";   ///< writes where nothing is
inline constexpr const char* kThrows = "norm.test.throws";
inline constexpr const char* kNoMemory = "norm.test.no_memory";  ///< throws std::bad_alloc
/// Crashes unless the file that $TILEWRIGHT_TEST_MARKER names is there, and makes it.
inline constexpr const char* kCrashesOnce = "norm.test.crashes_once";

/// All of them. They never run in a process that only registers them.
Status AddTestNorms(norm::Registry& registry);

}  // namespace tilewright::test
