#include <array>

#include "core/text.h"
#include "model/jinja/functions.h"

namespace tilewright::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

template <std::size_t kCount>
std::string_view At(const std::array<std::string_view, kCount>& names, int index) {
  return names[static_cast<std::size_t>(index) % kCount];
}

/// One directive; false if it is not known.
bool Append(const std::tm& now, char directive, std::string& out) {
  const int hour = now.tm_hour % 12 == 0 ? 12 : now.tm_hour % 12;
  switch (directive) {
    case 'Y':
      out += Format("{}", now.tm_year + 1900);
      return true;
    case 'y':
      out += Format("{:02}", now.tm_year % 100);
      return true;
    case 'm':
      out += Format("{:02}", now.tm_mon + 1);
      return true;
    case 'd':
      out += Format("{:02}", now.tm_mday);
      return true;
    case 'e':
      out += Format("{:2}", now.tm_mday);
      return true;
    case 'j':
      out += Format("{:03}", now.tm_yday + 1);
      return true;
    case 'B':
      out += At(kMonths, now.tm_mon);
      return true;
    case 'b':
      out += At(kMonths, now.tm_mon).substr(0, 3);
      return true;
    case 'A':
      out += At(kDays, now.tm_wday);
      return true;
    case 'a':
      out += At(kDays, now.tm_wday).substr(0, 3);
      return true;
    case 'H':
      out += Format("{:02}", now.tm_hour);
      return true;
    case 'I':
      out += Format("{:02}", hour);
      return true;
    case 'M':
      out += Format("{:02}", now.tm_min);
      return true;
    case 'S':
      out += Format("{:02}", now.tm_sec);
      return true;
    case 'p':
      out += now.tm_hour < 12 ? "AM" : "PM";
      return true;
    case '%':
      out += '%';
      return true;
    default:
      return false;
  }
}

}  // namespace

Value FormatTime(Heap& heap, const std::tm& now, std::string_view format) {
  std::string out;
  if (!heap.Spend(10 * format.size())) return {};
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
    } else if (i + 1 == format.size() || !Append(now, format[++i], out)) {
      return heap.Error(ErrorCode::kUnsupported,
                        Format("strftime_now('{}') is not understood", Printable(format, 40)));
    }
  }
  return heap.MakeText(std::move(out));
}

}  // namespace tilewright::jinja
