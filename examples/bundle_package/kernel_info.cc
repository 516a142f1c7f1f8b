// Kernels out of the bundle that was built with this program, in strict mode: nothing is compiled,
// and no compiler is looked for. Prints what each kernel takes of the machine.
//
//   kernel_info [SPEC ...]     default: two RMS norms for sm_90a
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tilewright/artifact_store.h"
#include "tilewright/tilewright.h"

namespace {

/// The bundle beside the program (in the build folder), else where the package installs it.
std::string BundleFile() {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (std::filesystem::exists(folder / "kernels.twb")) return (folder / "kernels.twb").string();
  return (folder / ".." / "share" / "bundle_package" / "kernels.twb").string();
}

int Complain(const tilewright::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) {
    names = {"rmsnorm.bf16-bf16-none-bf16.tt.sm_90a.0x0x0.w8.s0.k0.c0x0.scale.p2_0_0_0",
             "rmsnorm.bf16-bf16-bf16-bf16.tt.sm_90a.0x0x0.w8.s0.k0.c0x0.add.p2_0_0_0"};
  }
  tilewright::ArtifactStoreOptions options;
  options.bundles = {BundleFile()};
  options.mode = tilewright::CacheMode::kStrict;
  const auto store = tilewright::ArtifactStore::Open(tilewright::AllKernelFamilies(), options);
  if (!store) return Complain(store.error());

  for (const std::string& name : names) {
    const auto spec = tilewright::ParseSpecName(name);
    if (!spec) return Complain(spec.error());
    const auto kernel = (*store)->Compile(*spec);
    if (!kernel) return Complain(kernel.error());
    const tilewright::ArtifactData& artifact = **kernel;
    const auto spills = artifact.resources.SpillBytes();
    std::printf(
        "%s\n  %u threads, %u registers, %u bytes of shared memory, %s bytes spilled; cubin of "
        "%zu bytes by %s\n",
        name.c_str(), artifact.launch.threads, artifact.resources.registers,
        artifact.resources.static_smem_bytes + artifact.launch.dynamic_smem_bytes,
        spills ? std::to_string(*spills).c_str() : "an unknown number of", artifact.cubin.size(),
        artifact.compiler.ToString().c_str());
  }
  std::printf("%zu kernels, %llu compiled\n", names.size(),
              static_cast<unsigned long long>((*store)->process_counters().compiles));
  return 0;
}
