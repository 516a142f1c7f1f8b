#include "tilewright/kernel_lock.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/atomic_file.h"
#include "core/text.h"
#include "engine/sealed_json.h"
#include "tilewright/whole_file.h"

namespace tilewright {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "tilewright.lock";
constexpr long long kSchema = 1;
constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr std::array<const char*, 5> kMembers = {"device", "op", "problem", "kernel", "spec"};
constexpr std::string_view kRemedy =
    "correct or remove the line, or remove the file and write it anew: tilewright tune MODEL "
    "--write-lock";

/// Reads line by line; remembers where each problem was locked first.
class LockReader {
 public:
  explicit LockReader(const std::string& name) : name_(name) {}

  Status Line(std::string_view line) {
    ++number_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) return {};
    for (const std::string_view marker : {"<<<<<<<", "=======", ">>>>>>>", "|||||||"}) {
      if (line.starts_with(marker)) return Wrong("an unresolved merge conflict");
    }
    const json object = json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("format")) return Header(object);
    if (!header_) return NoLock();
    return object.is_object() ? Pin(object) : Wrong("not a JSON object");
  }

  Result<KernelLock> Finish() {
    if (header_) return std::move(lock_);
    number_ = 1;
    return Fail(NoLock().error());
  }

 private:
  Status NoLock() const {
    return Fail(
        ErrorCode::kCorrupt,
        Format("{}:{}: this is no lock, which begins with {{\"format\":\"{}\",\"schema\":{}}}",
               name_, number_, kFormat, kSchema));
  }

  Status Wrong(const std::string& what) const {
    return Fail(ErrorCode::kCorrupt, Format("{}:{}: {}; {}", name_, number_, what, kRemedy));
  }

  Status Header(const json& object) {
    const auto format = StringMember(object, "format");
    if (format != kFormat) return NoLock();
    const auto schema = IntegerMember(object, "schema");
    if (!schema || *schema < 1) return Wrong("member 'schema': must be 1");
    if (*schema > kSchema) {
      return Fail(ErrorCode::kUnsupported,
                  Format("{}:{}: schema {} is of a later version of Tilewright, this one reads {}; "
                         "update it, or remove the file and write it anew with this one",
                         name_, number_, *schema, kSchema));
    }
    header_ = true;
    return {};
  }

  Status Pin(const json& object) {
    std::array<std::string, kMembers.size()> values;
    for (std::size_t i = 0; i < kMembers.size(); ++i) {
      auto value = StringMember(object, kMembers[i]);
      if (!value || value->empty()) {
        return Wrong(Format("member '{}': must be text, and not empty", kMembers[i]));
      }
      values[i] = std::move(*value);
    }
    for (const auto& item : object.items()) {
      if (std::find(kMembers.begin(), kMembers.end(), item.key()) == kMembers.end())
        return Wrong(Format("member '{}' is unknown", Printable(item.key())));
    }
    auto& [device, op, problem, kernel, spec] = values;
    const Pins::Key key(std::move(op), std::move(problem));
    const Pins::Pin pin{std::move(kernel), std::move(spec)};
    const auto [at, fresh] = lock_.by_device[device].by_problem.try_emplace(key, pin);
    if (fresh) {
      lines_[{std::move(device), key}] = number_;
    } else if (at->second.kernel != pin.kernel || at->second.spec != pin.spec) {
      return Wrong(Format("locks what line {} locks otherwise", lines_[{std::move(device), key}]));
    }
    return {};
  }

  const std::string& name_;
  int number_ = 0;
  bool header_ = false;
  KernelLock lock_;
  std::map<std::pair<std::string, Pins::Key>, int> lines_;
};

}  // namespace

Result<KernelLock> KernelLock::Parse(std::string_view text, const std::string& name) {
  LockReader reader(name);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (Status status = reader.Line(text.substr(0, end)); !status) return Fail(status.error());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.Finish();
}

Result<KernelLock> KernelLock::Read(const std::string& path) {
  const Result<std::string> text = ReadFile(path, kMostBytes);
  if (!text) return Fail(text.error());
  return Parse(*text, path);
}

std::string KernelLock::Text() const {
  using Line = nlohmann::ordered_json;
  // Text that is not UTF-8 is replaced rather than thrown at.
  const auto line = [](const Line& object) {
    return object.dump(-1, ' ', false, Line::error_handler_t::replace) + "\n";
  };
  std::string text = line({{"format", kFormat}, {"schema", kSchema}});
  for (const auto& [device, pins] : by_device) {
    for (const auto& [key, pin] : pins.by_problem) {
      Line object;
      const std::string* values[] = {&device, &key.first, &key.second, &pin.kernel, &pin.spec};
      for (std::size_t i = 0; i < kMembers.size(); ++i) object[kMembers[i]] = *values[i];
      text += line(object);
    }
  }
  return text;
}

Status KernelLock::Write(const std::string& path) const { return WriteWholeFile(path, Text()); }

std::string_view LockVerdictName(LockVerdict verdict) {
  switch (verdict) {
    case LockVerdict::kAgrees:
      return "agrees";
    case LockVerdict::kOtherKernel:
      return "other kernel";
    case LockVerdict::kOtherLaunch:
      return "other launch";
    case LockVerdict::kMissing:
      return "not in the lock";
  }
  return "unknown";
}

}  // namespace tilewright
