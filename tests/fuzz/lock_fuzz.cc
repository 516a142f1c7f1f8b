// Any text as a lock file. What is read is written again in one form: reading that gives the same, and writing it
// the same bytes. What is refused says so in one line.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tilewright/kernel_lock.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();  // what libFuzzer reports
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tilewright::KernelLock;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto lock = KernelLock::Parse(text, "tilewright.lock");
  if (!lock) {
    Require(!lock.error().message.empty());
    Require(lock.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const std::string written = lock->Text();
  const auto again = KernelLock::Parse(written, "tilewright.lock");
  Require(again.has_value());
  Require(again->Text() == written);
  Require(again->by_device.size() == lock->by_device.size());
  return 0;
}
