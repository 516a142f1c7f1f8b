#pragma once

#include <functional>
#include <string>

#include "common.h"

namespace CLI {
class App;
}

namespace tilewright::cli {

struct TuneArguments;

/// Adds verbs to `app`; the callback of the verb given stores its exit code in `exit_code`, which
/// must outlive the parse.
void AddModelVerbs(CLI::App& app, int& exit_code);   ///< run, perplexity, synth, tune
void AddEngineVerbs(CLI::App& app, int& exit_code);  ///< explain, kernels, cache, doctor, bundle
void AddBench(CLI::App& app, int& exit_code);        ///< bench model, gemm, op, record, tuner

/// Calls `run` if `verb` was given.
void OnGiven(CLI::App& verb, std::function<int()> run, int& exit_code);

// Options shared by many verbs.
void AddJson(CLI::App& verb, CommonOptions& common);
void AddDevice(CLI::App& verb, CommonOptions& common);    ///< --device, --threads
void AddChoosing(CLI::App& verb, CommonOptions& common);  ///< --providers, --cache-mode
void AddLog(CLI::App& verb, CommonOptions& common);       ///< --log
void AddCommon(CLI::App& verb, CommonOptions& common);    ///< all of these
void AddModel(CLI::App& verb, ModelArguments& model);

/// --gemm, --op, --ops, --shapes, --m, --type
void AddProblems(CLI::App& verb, TuneArguments& what);

}  // namespace tilewright::cli
