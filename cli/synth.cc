#include "tilewright/synth.h"

#include <fmt/format.h>

#include "console.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

int ListPresets(bool json) {
  if (json) {
    Report report;
    report.Array("presets");
    for (const SynthShape& s : SynthPresets()) {
      Report row;
      row.Set("preset", s.name)
          .Set("layers", s.layers)
          .Set("hidden", s.hidden)
          .Set("heads", s.heads)
          .Set("kv_heads", s.kv_heads)
          .Set("ffn", s.ffn)
          .Set("vocab", s.vocab)
          .Set("context", s.context);
      report.Append("presets", std::move(row));
    }
    Out(report.Text() + "\n");
    return Finish(kExitOk);
  }
  Table table({"preset", "layers", "hidden", "heads", "kv heads", "ffn", "vocabulary", "context"});
  for (const SynthShape& s : SynthPresets()) {
    table.Row({std::string(s.name), fmt::format("{}", s.layers), fmt::format("{}", s.hidden),
               fmt::format("{}", s.heads), fmt::format("{}", s.kv_heads), fmt::format("{}", s.ffn),
               fmt::format("{}", s.vocab), fmt::format("{}", s.context)});
  }
  Out(table.Text());
  return Finish(kExitOk);
}

}  // namespace

int Synth(const SynthCommand& options) {
  SetUpLog(options.common);
  if (options.preset == "list") return ListPresets(options.common.json);
  if (options.output.empty() && !options.dry_run) {
    return Usage("give the file to write with -o", "synth");
  }
  const Result<SynthOptions> synth = ParseSynth(options.preset, options.quant, options.seed);
  if (!synth) return Usage(synth.error().message, "synth");
  Result<SynthReport> written = [&]() -> Result<SynthReport> {
    if (options.dry_run) return PlanSynthetic(*synth);
    Progress bar("writing");
    return WriteSynthetic(*synth, options.output, [&](std::uint64_t done, std::uint64_t total) {
      bar.Show(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1);
      return !Interrupted().load();
    });
  }();
  if (!written) return ExitFor(written.error());
  if (!written->note.empty()) Note(written->note);
  if (options.common.json) {
    Report report;
    report.Set("file", options.output)
        .Set("bytes", static_cast<std::int64_t>(written->file_bytes))
        .Set("parameters", static_cast<std::int64_t>(written->parameters))
        .Set("types", written->types);
    Out(report.Text() + "\n");
  } else {
    Out(fmt::format("{}: {}, {:.1f} M parameters, {}\n",
                    options.dry_run ? "would write" : options.output,
                    HumanBytes(static_cast<double>(written->file_bytes)),
                    static_cast<double>(written->parameters) / 1e6, written->types));
  }
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
