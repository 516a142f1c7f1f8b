#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "console.h"
#include "options.h"
#include "parser.h"
#include "verbs.h"

namespace tilewright::cli {

void OnGiven(CLI::App& verb, std::function<int()> run, int& exit_code) {
  verb.callback([run = std::move(run), &exit_code] { exit_code = run(); });
}

void AddJson(CLI::App& verb, CommonOptions& common) {
  verb.add_flag("--json", common.json, "Print one JSON object on standard output");
}

void AddDevice(CLI::App& verb, CommonOptions& common) {
  verb.add_option("--device", common.device,
                  "cpu, cuda:N, or auto: the first GPU that works, else the CPU")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& name) {
            const bool gpu = name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
                             name.find_first_not_of("0123456789", 5) == std::string::npos;
            return gpu || name == "cpu" || name == "auto"
                       ? std::string()
                       : fmt::format("'{}' is no device; known are cpu, cuda:N and auto", name);
          },
          ""))
      ->type_name("DEVICE");
  verb.add_option("--bundle", common.bundles,
                  "Take a GPU's kernels from this bundle; may be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
  verb.add_option("--threads", common.threads, "Threads to use; 0: what affinity and quota allow")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(0, 4096)))
      ->type_name("N");
}

void AddChoosing(CLI::App& verb, CommonOptions& common) {
  verb.add_option("--providers", common.providers, "Kernels to choose from: own, vendor or all")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"own", "vendor", "all"})))
      ->type_name("WHICH");
  verb.add_option(
          "--policy", common.policy,
          "Weights come from memory (cold) or stay in the last-level cache (warm); auto: by "
          "the size of the model")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"auto", "cold", "warm"})))
      ->type_name("WHICH");
  verb.add_option(
          "--cache-mode", common.cache_mode,
          "How to use earlier results: normal, readonly, offline, strict, verify or refresh")
      ->capture_default_str()
      ->check(
          Quiet(CLI::IsMember({"normal", "readonly", "offline", "strict", "verify", "refresh"})))
      ->type_name("MODE");
}

void AddLog(CLI::App& verb, CommonOptions& common) {
  verb.add_option("--log", common.log,
                  "Messages on standard error: off, error, warning, info or debug (also "
                  "TILEWRIGHT_LOG)")
      ->check(Quiet(CLI::IsMember({"off", "error", "warning", "info", "debug"})))
      ->type_name("LEVEL");
}

void AddCommon(CLI::App& verb, CommonOptions& common) {
  AddDevice(verb, common);
  AddChoosing(verb, common);
  AddJson(verb, common);
  AddLog(verb, common);
}

void AddModel(CLI::App& verb, ModelArguments& model) {
  verb.add_option("--guarantee", model.guarantee, "fastest, deterministic or batch-invariant")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"fastest", "deterministic", "batch-invariant"})))
      ->type_name("WHICH");
  verb.add_option(
          "--activations", model.activations,
          "Precision to which kernels may round activations: auto, f32 (no rounding), bf16, "
          "int8 or w8a8 (one scale a row, weights too: less accurate); "
          "on a GPU their type: auto (bf16), f32, f16 or bf16")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"auto", "f32", "f16", "bf16", "int8", "w8a8"})))
      ->type_name("TYPE");
  verb.add_option("--kv", model.kv,
                  "Type of the KV cache: auto (f16; bf16 on a GPU), f32, f16, bf16 or q8_0")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"auto", "f32", "f16", "bf16", "q8_0"})))
      ->type_name("TYPE");
  verb.add_option("-c,--context", model.context,
                  "Maximum positions of a sequence; 0: as the model was trained")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(0, 1 << 24)))
      ->type_name("N");
  verb.add_option("--ubatch", model.batch_rows, "Rows of one pass over a prompt")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(1, 1 << 16)))
      ->type_name("N");
  CLI::Option* fusions =
      verb.add_option("--fusions", model.fusions,
                      "What is computed at once: all, none, or some of merge-qkv, merge-gate-up, "
                      "residual, swiglu, mul-mat-swiglu, rope-scatter, rope-qkv, "
                      "rope-attention, add-norm, norm-mul-mat, quantise-once with commas between")
          ->capture_default_str()
          ->check(CLI::Validator(
              [](const std::string& text) {
                const Result<FusionSet> set = FusionSet::Parse(text);
                return set ? std::string() : set.error().message;
              },
              ""))
          ->type_name("LIST");
  verb.add_option(
          "--chains", model.chains,
          "Chains of products as one launch on a GPU: off, race (where passes of 8 to 64 rows "
          "are faster so) or on")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"off", "race", "on"})))
      ->type_name("MODE");
  verb.add_flag_callback(
          "--no-fuse", [&model] { model.fusions = "none"; },
          "One kernel for each operation; slower, for comparison. Same as --fusions none")
      ->excludes(fusions);
}

void AddProblems(CLI::App& verb, TuneArguments& what) {
  verb.add_option("--gemm", what.gemms, "A problem, as m=1,n=576,k=576,type=q4_1; may be repeated")
      ->type_name("PROBLEM");
  verb.add_option("--op", what.problems,
                  "A problem of any operation, as \"norm rows=8 cols=576\"; may be repeated")
      ->type_name("PROBLEM");
  verb.add_option("--ops", what.ops, "Only these operations of a model; without it all")
      ->type_name("gemm,norm");
  verb.add_option("--shapes", what.shapes,
                  "CSV file with the columns name, n, k and perhaps m, type")
      ->type_name("FILE");
  verb.add_option("--m", what.rows, "Batch sizes of a model or of --shapes without the column m")
      ->type_name("1,16,64");
  verb.add_option("--type", what.type, "Weights of --shapes without the column type")
      ->capture_default_str()
      ->type_name("TYPE");
}

namespace {

/// Edit distance between two words, at most `limit`.
std::size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// "; did you mean 'run'?" for the name that `word` was likely to be, or nothing: up to two letters
/// are wrong, or one of both is the other's beginning.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& names) {
  const std::string* nearest = nullptr;
  std::size_t best = std::string::npos;
  for (const std::string& name : names) {
    const std::size_t shorter = std::min(word.size(), name.size());
    const bool begins = shorter >= 4 && word.compare(0, shorter, name, 0, shorter) == 0;
    const std::size_t distance = Distance(word, name);
    if ((!begins && distance >= std::min<std::size_t>(3, shorter)) || distance >= best) continue;
    best = distance;
    nearest = &name;
  }
  return nearest == nullptr ? "" : fmt::format("; did you mean '{}'?", *nearest);
}

/// For the first word that is not a verb of `app`.
std::string UnknownVerb(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return fmt::format("unknown verb '{}'{}", word, DidYouMean(word, names));
}

/// For the first word that looks like a long option of `verb` and is none; nothing where all are.
std::optional<std::string> UnknownOption(const CLI::App& verb, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string given(argv[i]), word = given.substr(0, given.find('='));
    if (word == "--") break;
    if (word.compare(0, 2, "--") != 0) continue;
    if (std::find(names.begin(), names.end(), word) != names.end()) continue;
    // Names of one or two letters are near to any other.
    const std::string hint = word.size() < 5 ? "" : DidYouMean(word, names);
    return fmt::format("unknown option '{}'{}", word, hint);
  }
  return std::nullopt;
}

/// The verb as far as it was recognised, such as "bench model".
std::string PathOf(const CLI::App& app, const CLI::App** last) {
  std::string path;
  const CLI::App* at = &app;
  while (true) {
    const auto given = at->get_subcommands();
    if (given.empty()) break;
    at = given.front();
    path += (path.empty() ? "" : " ") + at->get_name();
  }
  *last = at;
  return path;
}

int ReportWrongWords(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* last = nullptr;
  const std::string path = PathOf(app, &last);
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  // If a verb was expected, the word found there is more informative than the parser's message.
  const auto depth = path.empty() ? 0 : 1 + std::count(path.begin(), path.end(), ' ');
  const bool verb_due = !last->get_subcommands([](const CLI::App*) { return true; }).empty();
  const int at = static_cast<int>(depth) + 1;
  if (verb_due && at < argc && argv[at][0] != '-') {
    message = UnknownVerb(*last, argv[at]);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    message = UnknownOption(*last, argc, argv).value_or(message);
  }
  if (!message.empty() && message.back() == '.') message.pop_back();
  Complain(fmt::format("{} (see 'tilewright{}{} --help')", message, path.empty() ? "" : " ", path));
  return kExitUsage;
}

}  // namespace

int ParseAndRun(int argc, char** argv) {
  CLI::App app(
      "Runs language models with kernels tuned for this machine, and explains why each was "
      "chosen.");
  app.name("tilewright");
  app.set_version_flag("--version", fmt::format("tilewright {}", Version()));
  app.require_subcommand(1);
  app.footer(
      "\nExamples:\n"
      "  tilewright run MODEL.gguf -p \"The capital of France is\" -n 32\n"
      "  tilewright tune MODEL.gguf --budget 60s\n"
      "  tilewright bench model MODEL.gguf -p 512 -n 128\n"
      "  tilewright explain gemm --m 1 --n 576 --k 1536 --type-b q4_1\n\n"
      "'tilewright VERB --help' lists the options. Exit codes: 0 success, 1 failure, 2 usage error "
      "or not available on this machine, 130 interrupted.");
  int exit_code = kExitOk;
  AddModelVerbs(app, exit_code);
  AddBench(app, exit_code);
  AddEngineVerbs(app, exit_code);
  if (argc < 2) {
    Err(app.help());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return Finish(kExitOk);
  } catch (const CLI::ParseError& error) {
    return ReportWrongWords(app, error, argc, argv);
  }
  return exit_code;
}

}  // namespace tilewright::cli
