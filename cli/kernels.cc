#include <fmt/format.h>

#include "console.h"
#include "report.h"
#include "tilewright/features.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

std::string Types(std::uint32_t mask) {
  std::string text;
  for (unsigned bit = 0; bit < 32; ++bit) {
    if ((mask >> bit & 1) == 0) continue;
    if (!text.empty()) text += ' ';
    text += DataTypeName(static_cast<DataType>(bit));
  }
  return text;
}

std::string_view Rounds(Precision precision) {
  return precision <= Precision::kF32 ? "no" : kPrecisionOptions[static_cast<int>(precision)];
}

std::string Limits(const KernelDesc& desc) {
  std::string text;
  const auto add = [&text](std::string_view words) {
    if (!text.empty()) text += ", ";
    text += words;
  };
  if (desc.max_m > 0) add(fmt::format("m <= {}", desc.max_m));
  if (desc.align_n > 1) add(fmt::format("n % {} = 0", desc.align_n));
  if (desc.align_k > 1) add(fmt::format("k % {} = 0", desc.align_k));
  if (desc.split_k) add("split-k");
  return text.empty() ? "-" : text;
}

/// Why the device or --providers excludes a kernel; "" if it may run.
std::string WhyNot(const KernelBase& kernel, const DeviceSpec& device, std::uint32_t providers) {
  if ((providers & Bit(kernel.info().provider)) == 0) return "provider: excluded by --providers";
  const auto rejection = kernel.CheckDevice(device);
  return rejection ? rejection->ToString() : "";
}

Report Describe(std::string_view op, const KernelBase& kernel, const std::string& why_not) {
  const KernelInfo& info = kernel.info();
  Report row;
  row.Set("op", op)
      .Set("kernel", info.name)
      .Set("provider", ProviderName(info.provider))
      .Set("features", FeatureList(info.features))
      .Set("feasible", why_not.empty())
      .Set("reason", why_not)
      .Set("deterministic", info.deterministic)
      .Set("batch_invariant", info.batch_invariant)
      .Set("reference", info.reference)
      .Set("fingerprint", info.fingerprint);
  if (const auto* gemm = dynamic_cast<const Kernel*>(&kernel)) {
    const KernelDesc& d = gemm->desc();
    row.Set("type_a", Types(d.type_a))
        .Set("type_b", Types(d.type_b))
        .Set("type_c", Types(d.type_c))
        .Set("pack_b", PackName(d.pack_b))
        .Set("activations", Rounds(d.activations))
        .Set("max_m", d.max_m)
        .Set("split_k", d.split_k);
  }
  return row;
}

}  // namespace

int ListKernels(const KernelsOptions& options) {
  Result<std::unique_ptr<Context>> context = MakeContext(options.common);
  if (!context) return ExitFor(context.error());
  const DeviceSpec& device = (*context)->device_spec();
  const std::uint32_t providers = (*context)->feasible_options().providers;
  Table table({"kernel", "weights", "layout", "rounds input", "takes", "needs", "here"},
              {true, true, true, true, true, true, true});
  Report report;
  report.Set("device", device.ClassId()).Array("kernels");
  int total = 0, here = 0;
  (*context)->kernels().ForEach([&](std::string_view op, const KernelBase& kernel) {
    const std::string why_not = WhyNot(kernel, device, providers);
    ++total;
    here += why_not.empty() ? 1 : 0;
    if (options.feasible_only && !why_not.empty()) return;
    report.Append("kernels", Describe(op, kernel, why_not));
    std::vector<std::string> cells = {kernel.info().name,
                                      "-",
                                      "-",
                                      "-",
                                      "-",
                                      FeatureList(kernel.info().features),
                                      why_not.empty() ? "yes" : why_not};
    if (const auto* gemm = dynamic_cast<const Kernel*>(&kernel)) {
      cells[1] = Types(gemm->desc().type_b);
      cells[2] = PackName(gemm->desc().pack_b);
      cells[3] = Rounds(gemm->desc().activations);
      cells[4] = Limits(gemm->desc());
    }
    table.Row(std::move(cells));
  });
  if (options.common.json) {
    Out(report.Text() + "\n");
  } else {
    Out(table.Text());
    Out(fmt::format("{} kernels, {} can run on {}\n", total, here, device.ClassId()));
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
