#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace tilewright {

/// The kind of an error. Its message gives the rest: the value, the limit, and what to do.
enum class ErrorCode {
  kInvalidArgument,  ///< the caller passed something no kernel could accept
  kUnsupported,      ///< well formed, but nothing here can handle it
  kNotFound,         ///< a file, key or entry is absent
  kCorrupt,          ///< bytes that do not parse or fail their checksum
  kIo,               ///< the operating system refused a read or a write
  kOutOfMemory,      ///< an allocation failed or would exceed the available memory
  kExhausted,        ///< a bounded resource is full: context, cache slots, budget
  kCancelled,        ///< the caller or a signal asked to stop
  kUnavailable,      ///< a device, library or instruction set is missing
  kNumeric,          ///< NaN or infinity where a finite number was needed
  kInternal,         ///< a bug in Tilewright
};

/// Lower-case word for a code: "invalid argument", "corrupt", ...
const char* ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  bool operator==(const Error&) const = default;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// `return Fail(ErrorCode::kNotFound, "...")` from any function returning a Result.
inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace tilewright
