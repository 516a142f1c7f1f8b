#include "artifacts.h"

#include <fmt/format.h>

#include <optional>

#include "console.h"

namespace tilewright::cli {

Result<std::unique_ptr<ArtifactStore>> OpenArtifacts(const CommonOptions& common,
                                                     const ArtifactArguments& arguments,
                                                     const CacheMode* mode) {
  SetUpLog(common);
  ArtifactStoreOptions options;
  Result<CacheMode> asked = ParseCacheMode(common.cache_mode);
  if (!asked) return Fail(asked.error());
  options.mode = mode != nullptr ? *mode : *asked;
  options.bundles = arguments.bundles;
  options.site_dirs = arguments.site_dirs;
  options.site_by_group = arguments.site_by_group;
  options.shared_dir = arguments.shared_dir;
  options.shared_by_group = arguments.shared_by_group;
  options.compile_threads = arguments.jobs;
  options.nvrtc.path = arguments.nvrtc;
  options.whole_artifacts = arguments.whole;
  // Problems with a layer are reported through the log.
  return ArtifactStore::Open(AllKernelFamilies(), std::move(options));
}

struct CompileBar::Impl {
  explicit Impl(std::string label) : bar(std::move(label)) {}
  cli::Progress bar;
};

CompileBar::CompileBar(std::string label) : impl_(std::make_unique<Impl>(std::move(label))) {}
CompileBar::~CompileBar() = default;

CompileControl CompileBar::control() {
  CompileControl control;
  control.cancelled = [] { return Interrupted().load(); };
  control.progress = [impl = impl_.get()](const CompileProgress& progress) {
    impl->bar.Show(
        static_cast<double>(progress.done) / static_cast<double>(progress.total),
        fmt::format("{} of {}, {} compiled", progress.done, progress.total, progress.compiled));
  };
  return control;
}

std::string Describe(const ResourceUsage& resources) {
  const std::optional<std::uint64_t> spills = resources.SpillBytes();
  return fmt::format(
      "{} registers, {} static shared{}{}", resources.registers,
      HumanBytes(resources.static_smem_bytes),
      resources.stack_bytes > 0 ? fmt::format(", {} B stack", resources.stack_bytes) : "",
      !spills       ? ", spills unknown"
      : *spills > 0 ? fmt::format(", {} B spilled", *spills)
                    : ", no spills");
}

void SetSpills(const ResourceUsage& resources, Report& report) {
  if (const std::optional<std::uint64_t> spills = resources.SpillBytes()) {
    report.Set("spill_bytes", static_cast<std::int64_t>(*spills));
  } else {
    report.SetNull("spill_bytes");
  }
}

}  // namespace tilewright::cli
