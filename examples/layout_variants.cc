// A dictionary of prepared kernels, one for each layout of the operands of a matrix product. Each
// variant has a key of its own, made from typed fields, so the first run of the program compiles
// four kernels and every later one compiles none, whether a kernel is asked for ahead of time or
// when it is first needed.
//
//   layout_variants [STORE] [--ahead] [--arch sm_80]
//
// STORE is a folder (default: the user's own); --ahead compiles all four before the first is used.

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw = tilewright;

namespace {

/// Orders of A [m][k] and B [k][n]: `t` is row-major, `n` column-major.
struct Layout {
  const char* name;
  tw::Order a, b;
};
constexpr Layout kLayouts[] = {{"NT", tw::Order::kColMajor, tw::Order::kRowMajor},
                               {"TN", tw::Order::kRowMajor, tw::Order::kColMajor},
                               {"NN", tw::Order::kColMajor, tw::Order::kColMajor},
                               {"TT", tw::Order::kRowMajor, tw::Order::kRowMajor}};

/// Call sites ask by layout; what they get is a pointer, valid while the store lives.
class LayoutVariants {
 public:
  /// `base` is any product of the family; only its orders are changed.
  LayoutVariants(tw::ArtifactStore& store, const tw::KernelSpec& base) : store_(store) {
    for (const Layout& layout : kLayouts) {
      tw::KernelSpec spec = base;
      spec.order_a = layout.a;
      spec.order_b = layout.b;
      specs_[layout.name] = spec;
    }
  }

  /// Everything that can stall happens here, in parallel.
  tw::Status CompileAhead() {
    std::vector<tw::KernelSpec> all;
    for (const auto& [name, spec] : specs_) all.push_back(spec);
    for (const tw::Result<tw::KernelHandle>& handle : store_.CompileAll(all)) {
      if (!handle) return tw::Fail(handle.error());
    }
    return {};
  }

  /// The kernel of a layout: at once if this process has it, else from the store, else compiled.
  tw::Result<tw::KernelHandle> Get(const std::string& layout) {
    tw::KernelHandle& handle = handles_[layout];
    if (handle) return handle;
    handle = store_.Find(specs_.at(layout));
    if (handle) return handle;
    tw::Result<tw::KernelHandle> made = store_.Compile(specs_.at(layout));
    if (made) handle = *made;
    return made;
  }

 private:
  tw::ArtifactStore& store_;
  std::map<std::string, tw::KernelSpec> specs_;
  std::map<std::string, tw::KernelHandle> handles_;
};

/// The first bf16 product of the portable family that has one kernel for every layout.
tw::Result<tw::KernelSpec> Product(const tw::KernelFamilies& families, tw::CudaArch arch) {
  for (const tw::KernelSpec& spec : families.Catalog(arch)) {
    if (spec.family.view() == "gemm_mma" && spec.type_a == tw::DataType::kBF16) return spec;
  }
  return tw::Fail(tw::ErrorCode::kNotFound, "no matrix product for " + arch.ToString());
}

int Complain(const tw::Error& error) {
  std::fprintf(stderr, "layout_variants: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  tw::ArtifactStoreOptions options;
  bool ahead = false;
  std::string arch_name = "sm_80";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ahead") == 0) {
      ahead = true;
    } else if (std::strcmp(argv[i], "--arch") == 0 && i + 1 < argc) {
      arch_name = argv[++i];
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr,
                   "usage: layout_variants [--ahead] [--arch sm_80] [FOLDER of the store]\n");
      return 2;
    } else {
      options.root = argv[i];
    }
  }
  const tw::Result<tw::CudaArch> arch = tw::ParseCudaArch(arch_name);
  if (!arch) return Complain(arch.error());
  const tw::KernelFamilies families = tw::AllKernelFamilies();
  const tw::Result<tw::KernelSpec> base = Product(families, *arch);
  if (!base) return Complain(base.error());
  const auto store = tw::ArtifactStore::Open(families, options);
  if (!store) return Complain(store.error());

  LayoutVariants variants(**store, *base);
  if (ahead) {
    if (const tw::Status compiled = variants.CompileAhead(); !compiled) {
      return Complain(compiled.error());
    }
    std::printf("compiled ahead: %llu\n",
                static_cast<unsigned long long>((*store)->process_counters().compiles));
  }
  for (const Layout& layout : kLayouts) {
    const auto start = std::chrono::steady_clock::now();
    const tw::Result<tw::KernelHandle> kernel = variants.Get(layout.name);
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (!kernel) return Complain(kernel.error());
    std::printf("%s  %s  %zu bytes, %u registers  %.1f us\n", layout.name,
                (*kernel)->symbol.c_str(), (*kernel)->cubin.size(), (*kernel)->resources.registers,
                us);
    // From here on the dictionary answers without asking the store.
    if (*variants.Get(layout.name) != *kernel) return 1;
  }
  std::printf("compiles in this process: %llu\n",
              static_cast<unsigned long long>((*store)->process_counters().compiles));
}
