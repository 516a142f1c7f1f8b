#include <fmt/format.h>

#include <algorithm>

#include "artifacts.h"
#include "console.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

std::vector<std::string> SplitWords(const std::string& text) {
  std::vector<std::string> words;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

Result<std::vector<CudaArch>> ParseArchs(const std::string& text) {
  std::vector<CudaArch> archs;
  for (const std::string& word : SplitWords(text)) {
    Result<CudaArch> arch = ParseCudaArch(word);
    if (!arch) return Fail(ErrorCode::kInvalidArgument, "--arch: " + arch.error().message);
    if (std::find(archs.begin(), archs.end(), *arch) == archs.end()) archs.push_back(*arch);
  }
  return archs;
}

/// The kernels of a list, for the requested architectures. A kernel is omitted for an architecture
/// that lacks its instructions; if it is omitted for all of them, that is an error.
Result<std::vector<KernelSpec>> FromList(const std::string& file,
                                         const std::vector<CudaArch>& archs,
                                         const KernelFamilies& families) {
  Result<std::string> text = ReadFile(file);
  if (!text) return Fail(text.error());
  const std::string name = file == "-" ? "standard input" : file;
  Result<std::vector<KernelSpec>> listed = ParseSpecList(*text, name);
  if (listed && listed->empty()) {
    return Fail(ErrorCode::kInvalidArgument, name + " lists no kernels");
  }
  if (!listed || archs.empty()) return listed;
  std::vector<KernelSpec> specs;
  for (const KernelSpec& line : *listed) {
    std::string reason;
    std::size_t made = 0;
    for (const CudaArch arch : archs) {
      KernelSpec spec = line;
      spec.arch = arch;
      const KernelFamily* family = families.Find(spec.family);
      if (family == nullptr) {
        reason = fmt::format("there is no kernel family '{}'", spec.family.view());
      } else if (const auto rejection = family->check(spec)) {
        reason = rejection->ToString();
      } else {
        specs.push_back(spec);
        ++made;
      }
    }
    if (made == 0) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{}: {} cannot be built for any of the architectures: {}", name,
                              SpecName(line), reason));
    }
  }
  return specs;
}

Result<std::vector<KernelSpec>> WantedKernels(const BundleBuildOptions& options,
                                              const std::vector<CudaArch>& archs,
                                              const KernelFamilies& families) {
  std::vector<KernelSpec> specs;
  if (!options.list.empty()) {
    Result<std::vector<KernelSpec>> listed = FromList(options.list, archs, families);
    if (!listed) return listed;
    specs = std::move(*listed);
  }
  for (const CudaArch arch : archs) {
    std::vector<KernelSpec> more;
    if (options.all) more = families.Catalog(arch);
    if (!options.model.empty()) {
      Result<GgufFile> model = GgufFile::Open(options.model);
      if (!model) return Fail(model.error());
      Result<ModelKernels> kernels = KernelsOfModel(*model, arch);
      if (!kernels) return Fail(kernels.error());
      for (const std::string& left : kernels->unserved) {
        Warn(fmt::format("{}: no kernel for {}", arch.ToString(), left));
      }
      more.insert(more.end(), kernels->specs.begin(), kernels->specs.end());
    }
    if (more.empty() && options.list.empty()) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("there are no kernels for {}", arch.ToString()));
    }
    specs.insert(specs.end(), more.begin(), more.end());
  }
  return specs;
}

Report Describe(const ArtifactData& artifact) {
  Report resources;
  resources.Set("registers", static_cast<std::int64_t>(artifact.resources.registers))
      .Set("static_smem_bytes", static_cast<std::int64_t>(artifact.resources.static_smem_bytes))
      .Set("dynamic_smem_bytes", static_cast<std::int64_t>(artifact.launch.dynamic_smem_bytes))
      .Set("stack_bytes", static_cast<std::int64_t>(artifact.resources.stack_bytes));
  SetSpills(artifact.resources, resources);
  Report row;
  row.Set("spec", SpecName(artifact.spec))
      .Set("arch", artifact.spec.arch.ToString())
      .Set("request", artifact.request.Hex())
      .Set("action", artifact.action.Hex())
      .Set("compiler", artifact.compiler.ToString())
      .Set("symbol", artifact.symbol)
      .Set("launch_abi", static_cast<std::int64_t>(artifact.launch_abi))
      .Set("min_driver", static_cast<std::int64_t>(artifact.min_driver))
      .Set("threads", static_cast<std::int64_t>(artifact.launch.threads))
      .Set("cubin_bytes", static_cast<std::int64_t>(artifact.cubin.size()))
      .Set("ptx_bytes", static_cast<std::int64_t>(artifact.ptx.size()))
      .Set("resources", std::move(resources));
  return row;
}

std::string SignerText(const Bundle& bundle) {
  const std::optional<Ed25519Public> signer = bundle.signer();
  return signer ? "signed by " + PublicKeyText(*signer) : "not signed";
}

/// A report that names the bundle: path, digest, signer.
Report Name(const BundleFileOptions& options, const Bundle& bundle) {
  Report report;
  report.Set("path", options.file).Set("digest", bundle.Digest());
  if (const std::optional<Ed25519Public> signer = bundle.signer()) {
    report.Set("signer", PublicKeyText(*signer));
  } else {
    report.SetNull("signer");
  }
  return report;
}

Result<std::shared_ptr<const Bundle>> OpenBundle(const BundleFileOptions& options) {
  SetUpLog(options.common);
  Bundle::OpenOptions open;
  open.trusted_keys = options.keys;
  return Bundle::Open(options.file, open);
}

}  // namespace

int BuildBundle(const BundleBuildOptions& options) {
  if (options.list.empty() && options.model.empty() && !options.all) {
    return Usage("name the kernels: --model FILE, --list FILE or --all", "bundle build");
  }
  if (options.output == "-") {
    return Usage("-o -: a bundle must be written to a file", "bundle build");
  }
  std::vector<CudaArch> archs;
  if (options.archs_given) {
    Result<std::vector<CudaArch>> parsed = ParseArchs(options.archs);
    if (!parsed) return Usage(parsed.error().message, "bundle build");
    archs = std::move(*parsed);
  } else if (!options.model.empty() || options.all) {
    return Usage("name the architectures: --arch sm_90a,sm_80 (only a --list has its own)",
                 "bundle build");
  }
  // A bundle's bytes depend on the kernels and the compiler, not on the contents of a store.
  ArtifactArguments artifacts = options.artifacts;
  artifacts.whole = options.with_ptx || options.with_source;
  Result<std::unique_ptr<ArtifactStore>> store = OpenArtifacts(options.common, artifacts);
  if (!store) return ExitFor(store.error());
  Result<std::vector<KernelSpec>> specs = WantedKernels(options, archs, (*store)->families());
  if (!specs) return ExitFor(specs.error());
  BundleWriteOptions write;
  write.with_ptx = options.with_ptx;
  write.with_source = options.with_source;
  write.sign_key_file = options.sign_key;
  Result<BundleReport> written = [&] {
    CompileBar bar("compiling");
    return WriteBundle(**store, *specs, options.output, write, bar.control());
  }();
  if (!written) return ExitFor(written.error());
  if (options.common.json) {
    Report report;
    report.Set("path", options.output)
        .Set("kernels", static_cast<std::int64_t>(written->kernels))
        .Set("compiled", static_cast<std::int64_t>(written->compiled))
        .Set("bytes", static_cast<std::int64_t>(written->bytes))
        .Set("digest", written->digest)
        .Set("signed", !options.sign_key.empty());
    Out(report.Text() + "\n");
  } else {
    Out(fmt::format("{}: {} ({} compiled now), {}\ndigest {}\n", options.output,
                    Counted(written->kernels, "kernel"), written->compiled,
                    HumanBytes(static_cast<double>(written->bytes)), written->digest));
  }
  return Finish(kExitOk);
}

int ShowBundle(const BundleFileOptions& options) {
  Result<std::shared_ptr<const Bundle>> bundle = OpenBundle(options);
  if (!bundle) return ExitFor(bundle.error());
  Report report = Name(options, **bundle);
  report.Array("kernels").Array("troubles");
  Table table({"kernel", "cubin", "registers", "shared", "min driver", "compiler"},
              {true, false, false, false, false, true});
  std::size_t bad = 0;
  for (std::size_t i = 0; i < (*bundle)->size(); ++i) {
    Result<ArtifactData> artifact = (*bundle)->Load(i);
    if (!artifact) {
      ++bad;
      Warn(artifact.error().message);
      report.Append("troubles", artifact.error().message);
      continue;
    }
    report.Append("kernels", Describe(*artifact));
    table.Row({SpecName(artifact->spec), HumanBytes(static_cast<double>(artifact->cubin.size())),
               fmt::format("{}", artifact->resources.registers),
               HumanBytes(artifact->resources.static_smem_bytes +
                          static_cast<double>(artifact->launch.dynamic_smem_bytes)),
               fmt::format("{}.{}", artifact->min_driver / 1000, artifact->min_driver % 1000 / 10),
               artifact->compiler.ToString()});
  }
  if (options.common.json) {
    Out(report.Text() + "\n");
  } else {
    Out(table.Text());
    Out(fmt::format("{}, digest {}, {}\n", Counted((*bundle)->size(), "kernel"),
                    (*bundle)->Digest(), SignerText(**bundle)));
  }
  return Finish(bad == 0 ? kExitOk : kExitFailed);
}

int VerifyBundle(const BundleFileOptions& options) {
  Result<std::shared_ptr<const Bundle>> opened = OpenBundle(options);
  if (!opened) return ExitFor(opened.error());
  const Bundle& bundle = **opened;
  const Bundle::VerifyResult result = bundle.Verify();
  BundleNeeds needs;
  needs.driver = static_cast<std::uint32_t>(options.driver);
  needs.compute_capability = options.compute_capability;
  const KernelFamilies families = AllKernelFamilies();
  Report report = Name(options, bundle);
  report.Set("good", static_cast<std::int64_t>(result.good)).Set("signed", result.is_signed);
  report.Array("refused").Array("troubles");
  std::string refusals;
  std::size_t serves = 0;
  for (std::size_t i = 0; i < bundle.size(); ++i) {
    const Result<ArtifactData> artifact = bundle.Load(i);
    const KernelFamily* family = artifact ? families.Find(artifact->spec.family) : nullptr;
    needs.launch_abi = family != nullptr ? family->launch_abi : 0;
    const std::optional<BundleRefusal> refusal = bundle.Check(i, needs);
    if (!refusal && artifact) ++serves;
    if (!refusal || refusal->field == "payload_digest") continue;  // damage: among the troubles
    // Of an entry in a newer format, only the key is known.
    const std::string spec = artifact ? SpecName(artifact->spec) : "";
    const std::string request = bundle.entry(i).request.Hex();
    Report row;
    row.Set("spec", spec)
        .Set("request", request)
        .Set("field", refusal->field)
        .Set("have", refusal->have)
        .Set("need", refusal->need);
    report.Append("refused", std::move(row));
    refusals += fmt::format("{}: {}\n", artifact ? spec : "entry " + request, refusal->ToString());
  }
  report.Set("serves", static_cast<std::int64_t>(serves));
  for (const std::string& trouble : result.troubles) {
    report.Append("troubles", trouble);
    if (!options.common.json) Complain(trouble);
  }
  if (options.common.json) {
    Out(report.Text() + "\n");
  } else {
    Out(refusals + fmt::format("{}: {} of {} whole, {} {}; {}\n", options.file,
                               result.good + result.newer, Counted(bundle.size(), "kernel"), serves,
                               serves == 1 ? "serves" : "serve", SignerText(bundle)));
  }
  return Finish(result.troubles.empty() ? kExitOk : kExitFailed);
}

}  // namespace tilewright::cli
