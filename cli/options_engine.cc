#include <memory>

#include "options.h"
#include "parser.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

void AddExplain(CLI::App& app, int& exit_code) {
  CLI::App* explain = app.add_subcommand("explain", "Why a kernel was chosen");
  explain->require_subcommand(1);
  explain->footer("\nExample:\n  tilewright explain gemm --m 1 --n 576 --k 576 --type-b q4_1");
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* verb =
      explain->add_subcommand("gemm", "A matrix product: D = alpha * A * B + beta * C");
  GemmWords& words = o->gemm;
  const auto word = [verb](const char* name, std::string& value, const char* what) {
    return verb->add_option(name, value, what)->capture_default_str();
  };
  word("--m", words.m, "Rows of A: the tokens")->required()->type_name("N");
  word("--n", words.n, "Columns of B: the outputs")->required()->type_name("N");
  word("--k", words.k, "Columns of A")->required()->type_name("N");
  word("--type-a", words.type_a, "Activations: f32, bf16, f16, ...")->type_name("TYPE");
  word("--type-b,--type", words.type_b, "Weights: f32, bf16, f16, q4_0, q4_1, q8_0, q6_k, ...")
      ->type_name("TYPE");
  word("--type-c", words.type_c, "Result")->type_name("TYPE");
  word("--type-u", words.type_u, "Scales of A, where they lie beside it")->type_name("TYPE");
  word("--type-v", words.type_v, "Scales of B, where they lie beside it")->type_name("TYPE");
  word("--scaling", words.scaling, "one-zero, one-one (adds C) or any alpha and beta")
      ->type_name("WHICH");
  word("--epilogue", words.epilogue, "none or gated-silu")->type_name("WHICH");
  word("--pack", words.pack_b, "Layout of the weights: any, plain or a kernel's own")
      ->type_name("NAME");
  word("--precision,--activations", words.precision, "auto, f32, bf16 or int8")->type_name("TYPE");
  word("--guarantee", words.guarantee, "fastest, deterministic or batch-invariant")
      ->type_name("WHICH");
  verb->add_option("--set", words.set, "Any field of the problem, as quant_b=k/128")
      ->type_name("FIELD=VALUE");
  verb->add_option("--device-spec", o->device_spec, "Decide for the device in this JSON file")
      ->type_name("FILE");
  verb->add_flag("--all", o->all, "Every launch parameter of every kernel");
  AddCommon(*verb, o->common);
  verb->footer(
      "\nExamples:\n"
      "  tilewright explain gemm --m 1 --n 1536 --k 576 --type-b q4_1\n"
      "  tilewright explain gemm --m 64 --n 4096 --k 4096 --type-b bf16 --device-spec laptop.json "
      "--json");
  OnGiven(
      *verb, [o] { return ExplainGemm(*o); }, exit_code);
}

void AddKernels(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<KernelsOptions>();
  CLI::App* verb = app.add_subcommand("kernels", "Every kernel, and whether it can run here");
  verb->add_flag("--feasible", o->feasible_only, "Only those that can");
  AddCommon(*verb, o->common);
  verb->footer("\nExample:\n  TILEWRIGHT_ISA=avx2 tilewright kernels --feasible");
  OnGiven(
      *verb, [o] { return ListKernels(*o); }, exit_code);
}

void AddDoctor(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* verb = app.add_subcommand("doctor", "This machine, and what is missing");
  AddCommon(*verb, o->common);
  verb->footer("\nExits 1 if something is bad.\n\nExample:\n  tilewright doctor");
  OnGiven(
      *verb, [o] { return Doctor(*o); }, exit_code);
}

void AddCacheAction(CLI::App& cache, const std::string& name, const std::string& what,
                    const std::string& example, int& exit_code) {
  auto o = std::make_shared<CacheOptions>();
  o->action = name;
  CLI::App* verb = cache.add_subcommand(name, what);
  if (name == "import" || name == "merge" || name == "export") {
    auto* file = verb->add_option("FILE", o->file,
                                  name == "export"  ? "JSON Lines; -: standard output"
                                  : name == "merge" ? "Another records.sqlite, or JSON Lines"
                                                    : "JSON Lines; -: standard input");
    file->type_name("FILE");
    if (name != "export") file->required();
  }
  if (name == "ls" || name == "show" || name == "explain") {
    verb->add_option("FILTER", o->filter, "Only problems and kernels that contain this text")
        ->type_name("TEXT");
  }
  if (name == "show") verb->add_flag("--quarantine", o->quarantine, "Kernels that failed here");
  if (name == "gc") verb->add_flag("--dry-run", o->dry_run, "Only count them");
  AddChoosing(*verb, o->common);
  AddJson(*verb, o->common);
  AddLog(*verb, o->common);
  verb->footer("\nExample:\n  tilewright cache " + example);
  OnGiven(
      *verb, [o] { return Cache(*o); }, exit_code);
}

}  // namespace

void AddEngineVerbs(CLI::App& app, int& exit_code) {
  AddExplain(app, exit_code);
  AddKernels(app, exit_code);
  CLI::App* cache = app.add_subcommand("cache", "Tuning records");
  cache->require_subcommand(1);
  cache->footer(
      "\nExamples:\n  tilewright cache stat\n  tilewright cache export records.jsonl\n"
      "  tilewright cache show --quarantine");
  AddCacheAction(*cache, "ls", "Problems and what was chosen", "ls q4_1", exit_code);
  AddCacheAction(*cache, "show", "Every measurement", "show \"m=1 n=576\"", exit_code);
  AddCacheAction(*cache, "verify", "Check every record", "verify", exit_code);
  AddCacheAction(*cache, "stat", "Numbers", "stat --json", exit_code);
  AddCacheAction(*cache, "explain", "Why records are used or not", "explain", exit_code);
  AddCacheAction(*cache, "export", "Write records as JSON Lines", "export records.jsonl",
                 exit_code);
  AddCacheAction(*cache, "import", "Read records from JSON Lines", "import records.jsonl",
                 exit_code);
  AddCacheAction(*cache, "merge", "Take the records of another store", "merge other/records.sqlite",
                 exit_code);
  AddCacheAction(*cache, "gc", "Remove records of kernels that have changed", "gc --dry-run",
                 exit_code);
  AddDoctor(app, exit_code);
  AddNotBuilt(app, "bundle", "Compile kernels into one file that can be shipped", exit_code);
}

}  // namespace tilewright::cli
