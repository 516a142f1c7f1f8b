#include "core/text.h"
#include "model/arch/architecture.h"
#include "model/arch/list.h"

namespace tilewright {

std::span<const Architecture* const> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  for (const Architecture* architecture : Architectures()) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

Result<const Architecture*> ArchitectureOf(const GgufFile& file) {
  constexpr std::string_view kKey = "general.architecture";
  Result<std::string_view> name = file.String(kKey);
  if (!name) return Fail(name.error());
  if (const Architecture* found = FindArchitecture(*name)) return found;
  std::string known;
  for (const Architecture* architecture : Architectures()) {
    known += Format("{}{}", known.empty() ? "" : ", ", architecture->name);
  }
  return Fail(ErrorCode::kUnsupported,
              Format("{} = '{}': not supported; supported are {}", kKey, Printable(*name), known));
}

}  // namespace tilewright
