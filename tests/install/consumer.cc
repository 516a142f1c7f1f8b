#include <cstdio>

#include "tilewright/device.h"

int main() {
  const tilewright::DeviceSpec spec = tilewright::DetectCpuCappedAt(tilewright::Isa::kScalar);
  std::printf("%s\n", spec.ClassId().c_str());
  return spec.kind == tilewright::DeviceKind::kCpu ? 0 : 1;
}
