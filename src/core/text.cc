#include "core/text.h"

namespace tilewright {
namespace {

std::string ThreeDigits(double value, const char* unit) {
  // 9.995 and 99.95 would round up to four digits, so the next format starts there.
  if (value < 9.995) return Format("{:.2f} {}", value, unit);
  if (value < 99.95) return Format("{:.1f} {}", value, unit);
  return Format("{:.0f} {}", value, unit);
}

}  // namespace

std::string Printable(std::string_view text, std::size_t limit) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += Format("\\x{:02x}", byte);
    }
  }
  return out;
}

std::string HumanBytes(std::uint64_t bytes) {
  if (bytes < 1024) return Format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  // 1023.5 and more would print as "1024".
  while (value >= 1023.5 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return ThreeDigits(value, kUnits[unit]);
}

}  // namespace tilewright
