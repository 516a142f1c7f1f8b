#include "artifact/build.h"

#include <charconv>

#include "artifact/render.h"
#include "core/text.h"

namespace tilewright {

CompileJob CompileInput::Job() const {
  return CompileJob{.name = std::string(unit.name),
                    .source = unit.text,
                    .headers = headers,
                    .options = options,
                    .symbol = symbol};
}

Result<CompileInput> PrepareCompile(const KernelSpec& spec, const KernelFamily& family,
                                    const KernelSources& sources) {
  Result<KeyRecord> request = MakeRequestRecord(spec, family, sources);
  if (!request) return Fail(request.error());
  Result<std::vector<std::string>> options = CompilerOptions(spec, family, request->key);
  if (!options) return Fail(options.error());
  CompileInput input;
  input.spec = spec;
  input.symbol = KernelSymbol(spec, request->key);
  input.request = *std::move(request);
  input.spec_header = std::make_shared<const std::string>(RenderSpec(spec, input.symbol));
  const KernelSources::Unit& unit = *sources.Find(spec.family);  // MakeRequestRecord found it
  input.unit = unit.files[0].file;
  input.headers.push_back({kSpecHeader, *input.spec_header});
  for (std::size_t i = 1; i < unit.files.size(); ++i) input.headers.push_back(unit.files[i].file);
  input.options = *std::move(options);
  input.launch = family.launch(spec);
  input.limits = family.limits(spec);
  input.launch_abi = family.launch_abi;
  return input;
}

std::uint32_t MinDriver(const CompilerIdentity& compiler) {
  std::uint32_t major = 0, minor = 0;
  const char* const last = compiler.version.data() + compiler.version.size();
  const auto [dot, major_error] = std::from_chars(compiler.version.data(), last, major);
  if (major_error != std::errc() || dot == last || *dot != '.' || major > 1000) return 0;
  const auto [end, minor_error] = std::from_chars(dot + 1, last, minor);
  if (minor_error != std::errc() || minor > 99 || (end != last && *end != '.')) return 0;
  return major * 1000 + minor * 10;
}

Result<std::string> MakeEntry(const CompileInput& input, const CompilerIdentity& compiler,
                              const CompileOutput& output) {
  const Result<KeyRecord> action = MakeActionRecord(input.request.key, compiler);
  if (!action) return Fail(action.error());
  ArtifactData data;
  data.request_record = input.request.bytes;
  data.action_record = action->bytes;
  data.symbol = input.symbol;
  data.launch = input.launch;
  data.launch_abi = input.launch_abi;
  data.resources = output.resources;
  data.min_driver = MinDriver(compiler);
  data.compile_ms = output.compile_ms;
  data.cubin = output.cubin;
  data.ptx = output.ptx;
  const std::string source = *input.spec_header + std::string(input.unit.text);
  data.source = source;
  data.log = output.log;
  return EncodeArtifact(data);
}

}  // namespace tilewright
