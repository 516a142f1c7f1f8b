#include <memory>

#include "options.h"
#include "parser.h"
#include "problem_words.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// `explain OP PROBLEM`; the fields of a problem are those of its key.
template <class Op>
void AddExplainOp(CLI::App& explain, int& exit_code) {
  const std::string name(Op::kName);
  auto o = std::make_shared<ExplainOptions>();
  o->op = name;
  CLI::App* verb = explain.add_subcommand(name, "The operation " + name);
  verb->add_option("problem", o->problem,
                   "Fields of the problem, as \"" + KeyOf(typename Op::Desc{}) + "\"")
      ->required()
      ->type_name("PROBLEM");
  verb->add_option("--device-spec", o->device_spec, "Decide for the device in this JSON file")
      ->type_name("FILE");
  verb->add_flag("--all", o->all, "Show every launch parameter of every kernel");
  AddCommon(*verb, o->common);
  verb->footer("\n" + FieldsText<Op>());
  OnGiven(
      *verb, [o] { return ExplainOp(*o); }, exit_code);
}

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
  word("--type-b,--type", words.type_b, "Weights: f32, bf16, f16, q4_0, q8_0, ...")
      ->type_name("TYPE");
  word("--type-c", words.type_c, "Result")->type_name("TYPE");
  word("--type-u", words.type_u, "Scales of A, if stored separately")->type_name("TYPE");
  word("--type-v", words.type_v, "Scales of B, if stored separately")->type_name("TYPE");
  word("--scaling", words.scaling, "one-zero, one-one (adds C) or any alpha and beta")
      ->type_name("WHICH");
  word("--epilogue", words.epilogue, "none or gated-silu")->type_name("WHICH");
  word("--pack", words.pack_b, "Layout of the weights: any, plain or a kernel's own")
      ->type_name("NAME");
  word("--precision,--activations", words.precision, "auto, f32, bf16, int8 or w8a8")
      ->type_name("TYPE");
  word("--guarantee", words.guarantee, "fastest, deterministic or batch-invariant")
      ->type_name("WHICH");
  verb->add_option("--set", words.set, "Any field of the problem, as quant_b=k/128")
      ->type_name("FIELD=VALUE");
  verb->add_option("--device-spec", o->device_spec, "Decide for the device in this JSON file")
      ->type_name("FILE");
  verb->add_flag("--all", o->all, "Show every launch parameter of every kernel");
  AddCommon(*verb, o->common);
  verb->footer(
      "\nExamples:\n"
      "  tilewright explain gemm --m 1 --n 1536 --k 576 --type-b q4_1\n"
      "  tilewright explain gemm --m 64 --n 4096 --k 4096 --type-b bf16 --device-spec laptop.json "
      "--json");
  OnGiven(
      *verb, [o] { return ExplainGemm(*o); }, exit_code);
  ForEachOperation([&]<class Op>() {
    if constexpr (!std::is_same_v<Op, GemmOp>) AddExplainOp<Op>(*explain, exit_code);
  });
}

void AddKernels(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<KernelsOptions>();
  CLI::App* verb = app.add_subcommand("kernels", "List every kernel, and whether it can run here");
  verb->add_flag("--feasible", o->feasible_only, "Only kernels that can run here");
  AddCommon(*verb, o->common);
  verb->footer("\nExample:\n  TILEWRIGHT_ISA=avx2 tilewright kernels --feasible");
  OnGiven(
      *verb, [o] { return ListKernels(*o); }, exit_code);
}

void AddDoctor(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* verb = app.add_subcommand("doctor", "Check this machine, and report what is missing");
  verb->add_flag("--calibrate", o->calibrate,
                 "Measure the rates from which kernels' times are predicted, and store them");
  AddCommon(*verb, o->common);
  verb->footer("\nExits with 1 if something is wrong.\n\nExample:\n  tilewright doctor");
  OnGiven(
      *verb, [o] { return Doctor(*o); }, exit_code);
}

void AddArtifacts(CLI::App& verb, ArtifactArguments& artifacts, bool compiles) {
  verb.add_option("--bundle", artifacts.bundles, "Also search this bundle; may be repeated")
      ->allow_extra_args(false)
      ->check(Named())
      ->type_name("FILE");
  CLI::Option* const site = verb.add_option("--site", artifacts.site_dirs,
                                            "Also search this store, read-only; may be repeated")
                                ->allow_extra_args(false)
                                ->check(Named())
                                ->type_name("FOLDER");
  verb.add_flag("--site-by-group", artifacts.site_by_group,
                "Trust such stores even if their group can write to them")
      ->needs(site);
  CLI::Option* const shared =
      verb.add_option("--shared", artifacts.shared_dir, "Also search this store, and add to it")
          ->check(Named())
          ->type_name("FOLDER");
  verb.add_flag("--shared-by-group", artifacts.shared_by_group,
                "Trust that store even if another user owns it or its group can write to it")
      ->needs(shared);
  verb.add_option("--nvrtc", artifacts.nvrtc,
                  "The compiler: libnvrtc or its folder (also TILEWRIGHT_NVRTC)")
      ->check(Named())
      ->type_name("PATH");
  if (compiles) {
    verb.add_option("-j,--jobs", artifacts.jobs,
                    "Compile this many kernels at a time; 0: as many as memory allows")
        ->capture_default_str()
        ->check(Quiet(CLI::Range(0, 1024)))
        ->type_name("N");
  }
}

void AddKeys(CLI::App& verb, std::vector<std::string>& keys) {
  verb.add_option("--key", keys,
                  "Accept only a bundle that this Ed25519 public key (PEM) signed; may be repeated")
      ->allow_extra_args(false)
      ->check(Named())
      ->type_name("FILE");
}

struct CacheAction {
  const char* name;
  const char* what;
  const char* example;
};
constexpr CacheAction kCacheActions[] = {
    {"ls", "List problems and the chosen kernels; compiled kernels", "ls q4_1"},
    {"show", "Show every measurement and every compiled kernel", "show \"m=1 n=576\""},
    {"verify", "Check every record and every compiled kernel", "verify --recompile"},
    {"stat", "Print statistics", "stat --json"},
    {"explain", "Explain why records are used or not; why a kernel must be compiled",
     "explain rmsnorm.bf16-bf16-none-bf16.tt.sm_90a.0x0x0.w4.s0.k0.c0x0.scale.p2_0_0_0"},
    {"export", "Write records as JSON Lines, or compiled kernels as a bundle (FILE.twb)",
     "export kernels.twb"},
    {"import", "Read records from JSON Lines, or compiled kernels from a bundle or entry",
     "import kernels.twb"},
    {"merge", "Add the records of another store", "merge other/records.sqlite"},
    {"gc", "Remove stale entries and trim to the limits", "gc --dry-run"},
};

void AddCacheAction(CLI::App& cache, const CacheAction& action, int& exit_code) {
  auto o = std::make_shared<CacheOptions>();
  const std::string name = o->action = action.name;
  CLI::App* verb = cache.add_subcommand(name, action.what);
  if (name == "import" || name == "merge" || name == "export") {
    auto* file = verb->add_option("FILE", o->file,
                                  name == "export"  ? "FILE.twb: compiled kernels; else records; "
                                                      "-: records on standard output"
                                  : name == "merge" ? "Another records.sqlite, or JSON Lines"
                                                    : "JSON Lines, a bundle or an entry; -: JSON "
                                                      "Lines on standard input, with --only "
                                                      "artifacts a bundle or an entry");
    file->check(Named())->type_name("FILE");
    if (name != "export") file->required();
    if (name == "import") AddKeys(*verb, o->keys);
  }
  if (name == "ls" || name == "show" || name == "explain") {
    verb->add_option("FILTER", o->filter,
                     name == "explain"
                         ? "Only problems that contain this text; or a compiled kernel's whole "
                           "spec: which layer has it, or how the nearest stored one differs"
                         : "Only problems and kernels that contain this text")
        ->type_name("TEXT");
  }
  if (name == "show") {
    verb->add_flag("--quarantine", o->quarantine, "Only kernels that failed here");
    verb->add_option("--dump", o->dump,
                     "Print ptx, source, log or cubin of the one compiled kernel that matches")
        ->check(Quiet(CLI::IsMember({"ptx", "source", "log", "cubin"})))
        ->type_name("WHAT");
  }
  if (name == "gc") {
    verb->add_flag("--dry-run", o->dry_run, "Only count what would be removed");
    verb->add_flag("--unreachable", o->unreachable,
                   "Also remove kernels of older sources or other compilers");
  }
  if (name == "verify") {
    verb->add_flag("--recompile", o->recompile, "Compile every kernel again and compare the bytes");
  }
  if (name != "merge") {
    verb->add_option("--only", o->only, "records or artifacts")
        ->check(Quiet(CLI::IsMember({"records", "artifacts"})))
        ->type_name("WHICH");
    AddArtifacts(*verb, o->artifacts, name == "verify");
  }
  AddChoosing(*verb, o->common);
  AddJson(*verb, o->common);
  AddLog(*verb, o->common);
  verb->footer(std::string("\nExample:\n  tilewright cache ") + action.example);
  OnGiven(
      *verb, [o] { return Cache(*o); }, exit_code);
}

void AddBundleBuild(CLI::App& bundle, int& exit_code) {
  auto o = std::make_shared<BundleBuildOptions>();
  CLI::App* verb = bundle.add_subcommand("build", "Compile kernels into one file; needs no GPU");
  CLI::Option* archs =
      verb->add_option("--arch", o->archs, "Architectures: sm_80, sm_90a, ...; several with commas")
          ->type_name("ARCHS");
  verb->add_option("--model", o->model, "Include the kernels that this model needs")
      ->check(Named())
      ->type_name("FILE");
  verb->add_option("--list", o->list,
                   "Include the kernels of this list, one spec per line; --arch replaces theirs; "
                   "-: standard "
                   "input")
      ->check(Named())
      ->type_name("FILE");
  verb->add_flag("--all", o->all, "Include every kernel of the registry");
  verb->add_option("-o,--output", o->output, "The bundle to write")
      ->required()
      ->check(Named())
      ->type_name("FILE");
  verb->add_option("--sign", o->sign_key, "Sign with this Ed25519 private key (PEM)")
      ->check(Named())
      ->type_name("FILE");
  verb->add_flag_callback(
      "--no-ptx", [o] { o->with_ptx = false; }, "Omit the PTX");
  verb->add_flag_callback(
      "--no-source", [o] { o->with_source = false; }, "Omit the sources");
  verb->add_option(
          "--cache-mode", o->common.cache_mode,
          "How to use earlier results: normal, readonly, offline, strict, verify or refresh")
      ->capture_default_str()
      ->check(
          Quiet(CLI::IsMember({"normal", "readonly", "offline", "strict", "verify", "refresh"})))
      ->type_name("MODE");
  AddArtifacts(*verb, o->artifacts, true);
  AddJson(*verb, o->common);
  AddLog(*verb, o->common);
  verb->footer(
      "\nExamples:\n"
      "  tilewright bundle build --arch sm_90a,sm_80 --model MODEL.gguf -o model.twb\n"
      "  tilewright bundle build --list missing.txt -o kernels.twb --sign key.pem");
  OnGiven(
      *verb,
      [o, archs] {
        o->archs_given = archs->count() > 0;
        return BuildBundle(*o);
      },
      exit_code);
}

void AddBundle(CLI::App& app, int& exit_code) {
  CLI::App* bundle = app.add_subcommand(
      "bundle", "Build and check bundles: compiled kernels in one file that can be shipped");
  bundle->require_subcommand(1);
  bundle->footer(
      "\nExamples:\n  tilewright bundle build --arch sm_90a --all -o kernels.twb\n"
      "  tilewright bundle show kernels.twb\n  tilewright bundle verify kernels.twb --key pub.pem");
  AddBundleBuild(*bundle, exit_code);
  for (const bool verifies : {false, true}) {
    auto o = std::make_shared<BundleFileOptions>();
    CLI::App* verb = verifies
                         ? bundle->add_subcommand("verify", "Check every byte and the signature")
                         : bundle->add_subcommand("show", "Show the contents of a bundle");
    verb->add_option("FILE", o->file, "The bundle")->required()->check(Named())->type_name("FILE");
    AddKeys(*verb, o->keys);
    if (verifies) {
      verb->add_option("--driver", o->driver, "Check against this CUDA driver: 12080, 13000, ...")
          ->check(Quiet(CLI::Range(1, 1 << 20)))
          ->type_name("VERSION");
      verb->add_option("--compute-capability", o->compute_capability,
                       "Check against this compute capability: 80, 90, ...")
          ->check(Quiet(CLI::Range(1, 999)))
          ->type_name("CC");
    }
    AddJson(*verb, o->common);
    AddLog(*verb, o->common);
    verb->footer(std::string("\nExample:\n  tilewright bundle ") + (verifies ? "verify" : "show") +
                 " kernels.twb");
    OnGiven(
        *verb, [o, verifies] { return verifies ? VerifyBundle(*o) : ShowBundle(*o); }, exit_code);
  }
}

}  // namespace

void AddEngineVerbs(CLI::App& app, int& exit_code) {
  AddExplain(app, exit_code);
  AddKernels(app, exit_code);
  CLI::App* cache = app.add_subcommand("cache", "Inspect tuning records and compiled kernels");
  cache->require_subcommand(1);
  cache->footer(
      "\nExamples:\n  tilewright cache stat\n  tilewright cache export records.jsonl\n"
      "  tilewright cache export kernels.twb\n  tilewright cache show --quarantine");
  for (const CacheAction& action : kCacheActions) AddCacheAction(*cache, action, exit_code);
  AddDoctor(app, exit_code);
  AddBundle(app, exit_code);
}

}  // namespace tilewright::cli
