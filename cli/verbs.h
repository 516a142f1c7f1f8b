#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "artifacts.h"
#include "common.h"

namespace tilewright::cli {

// For each verb, its options as the user gave them, and the function that does the work and returns
// the exit code (console.h). Only options*.cc use the option parser.

struct RunOptions {
  CommonOptions common;
  ModelArguments model;
  std::string prompt, tokens, file;  ///< one of them
  bool has_prompt = false;           ///< -p was given, perhaps with an empty text
  bool chat = false;
  bool interactive = false;
  std::string system, chat_template;
  int count = -1;
  bool count_given = false;
  double temperature = 0.8, top_p = 0.95, min_p = 0.05, repeat_penalty = 1.0;
  int top_k = 40, repeat_window = 64;
  std::uint64_t seed = 0;
  bool seed_given = false;
  bool ignore_end = false;
  bool logits = false;
  bool verbose = false;
};
int Run(const RunOptions& options);

struct BenchModelOptions {
  CommonOptions common;
  ModelArguments model;
  std::string prompts = "512";
  std::string generated = "128";
  std::string batches = "1";
  int depth = 0;
  int repeat = 5;
  bool profile = false;
};
int BenchModel(const BenchModelOptions& options);

struct BenchServeOptions {
  CommonOptions common;
  ModelArguments model;
  int sequences = 16;
  int requests = 0;  ///< 0: twice as many as sequences
  int prompt = 512, generate = 128;
  std::uint64_t traffic_seed = 1;
  int repeat = 3;
};
int BenchServe(const BenchServeOptions& options);

struct BenchTunerOptions {
  CommonOptions common;  ///< json
  std::vector<std::string> matrices;
  double budget_percent = 5;
  int replicates = 200;
  std::uint64_t seed = 1;
};
int BenchTuner(const BenchTunerOptions& options);

struct PerplexityOptions {
  CommonOptions common;
  ModelArguments model;
  std::string file;
  int window = 512;
  std::string score = "second-half";  ///< or "all"
  std::string against;                ///< another model's file; may be empty
};
int RunPerplexity(const PerplexityOptions& options);

/// Words of a GEMM problem, by the field names of KeyOf.
struct GemmWords {
  std::string m, n, k;
  std::string type_a = "f32", type_b = "q4_1", type_c = "f32", type_u, type_v;
  std::string scaling = "one_zero", epilogue = "none", pack_b = "any", precision = "auto";
  std::string guarantee = "fastest";
  std::vector<std::string> set;  ///< "field=value"
};

struct ExplainOptions {
  CommonOptions common;
  GemmWords gemm;
  std::string op, problem;  ///< for an operation other than GEMM: "rows=8 cols=576"
  std::string device_spec;
  bool all = false;
};
int ExplainGemm(const ExplainOptions& options);
int ExplainOp(const ExplainOptions& options);

struct KernelsOptions {
  CommonOptions common;
  bool feasible_only = false;
};
int ListKernels(const KernelsOptions& options);

struct SynthCommand {
  CommonOptions common;
  std::string preset, quant = "q4_0", output;
  std::uint64_t seed = 0;
  bool dry_run = false;
};
int Synth(const SynthCommand& options);

struct DoctorOptions {
  CommonOptions common;
  bool calibrate = false;
};
int Doctor(const DoctorOptions& options);

/// The file that --check and --write-lock mean unless one is named.
constexpr const char* kLockFile = "tilewright.lock";

struct TuneArguments {
  CommonOptions common;
  ModelArguments model;  ///< path may be empty
  std::string shapes;
  std::vector<std::string> gemms;
  std::vector<std::string> problems;  ///< "norm rows=8 cols=576"
  std::string ops;                    ///< for a model: "gemm,norm"; "": all
  std::string rows;                   ///< "": the verb's default
  std::string type = "q4_1";
  std::string budget = "60s";
  std::string report;       ///< of HTML; "": none
  bool check = false;       ///< compare with `lock` and measure nothing
  bool write_lock = false;  ///< write to `lock` and measure nothing
  std::string lock;         ///< its file; set with `check` and `write_lock`
  bool remeasure = false;
  std::uint64_t seed = 1;

  /// Neither a model nor a problem is named.
  bool empty() const {
    return model.path.empty() && gemms.empty() && problems.empty() && shapes.empty();
  }
};
int Tune(const TuneArguments& options);

struct BenchRecordOptions {
  TuneArguments what;  ///< model, problems and seed
  int rounds = 60;
  std::string output;
};
int BenchRecord(const BenchRecordOptions& options);

struct BenchGemmOptions {
  CommonOptions common;
  std::string shapes, rows = "1,16,64", type = "q4_1", precision = "auto", baseline = "none";
  int repeat = 5;
};
int BenchGemm(const BenchGemmOptions& options);

struct BenchOpOptions {
  CommonOptions common;
  std::string op;
  std::vector<std::string> problems;  ///< "rows=8 cols=576"
  std::string shapes;
  int repeat = 5;
  bool all = false;
  int again = 0;               ///< samples of the fastest few once more
  std::int32_t positions = 0;  ///< TrialOptions::positions
};
int BenchOp(const BenchOpOptions& options);

struct CacheOptions {
  CommonOptions common;
  ArtifactArguments artifacts;
  std::string action;  ///< "ls", "show", ...
  std::string file;    ///< for export, import and merge
  std::string filter;  ///< part of a problem or kernel; for explain also a kernel's whole spec
  std::string only;    ///< "records", "artifacts" or "" for both
  std::string dump;    ///< show: "ptx", "source", "log" or "cubin" of the one kernel that matches
  std::vector<std::string> keys;  ///< import: public keys, one of which must have signed a bundle
  bool quarantine = false;
  bool dry_run = false;
  bool recompile = false;    ///< verify
  bool unreachable = false;  ///< gc
};
int Cache(const CacheOptions& options);

struct BundleBuildOptions {
  CommonOptions common;
  ArtifactArguments artifacts;
  std::string archs, model, list, output, sign_key;
  bool archs_given = false;
  bool all = false;
  bool with_ptx = true, with_source = true;
};
int BuildBundle(const BundleBuildOptions& options);

struct BundleFileOptions {
  CommonOptions common;
  std::string file;
  std::vector<std::string> keys;
  int driver = 0, compute_capability = 0;
};
int ShowBundle(const BundleFileOptions& options);
int VerifyBundle(const BundleFileOptions& options);

/// Parses the command line and runs the verb it names.
int ParseAndRun(int argc, char** argv);

}  // namespace tilewright::cli
