#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "console.h"
#include "options.h"
#include "parser.h"
#include "tilewright/chat.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

void AddModelFile(CLI::App& verb, ModelArguments& model) {
  verb.add_option("MODEL", model.path, "GGUF file")->required()->type_name("FILE");
}

void AddSampling(CLI::App& verb, RunOptions& o) {
  verb.add_option("-n,--predict", o.count, "Tokens to generate; -1: until the model stops")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(-1, 1 << 30)))
      ->type_name("N")
      ->each([&o](const std::string&) { o.count_given = true; });
  verb.add_option("--temp", o.temperature, "Temperature; 0: always the best token")
      ->capture_default_str()
      ->type_name("T");
  verb.add_option("--top-k", o.top_k, "Only the K best tokens; 0: all")
      ->capture_default_str()
      ->type_name("K");
  verb.add_option("--top-p", o.top_p, "Only the best that together have this probability; 1: all")
      ->capture_default_str()
      ->type_name("P");
  verb.add_option("--min-p", o.min_p,
                  "Only tokens with at least this fraction of the best one's probability")
      ->capture_default_str()
      ->type_name("P");
  verb.add_option("--repeat-penalty", o.repeat_penalty,
                  "Penalty that makes recent tokens less likely; 1: off")
      ->capture_default_str()
      ->type_name("X");
  verb.add_option("--repeat-last-n", o.repeat_window,
                  "Recent tokens that the penalty applies to; -1: all")
      ->capture_default_str()
      ->type_name("N");
  verb.add_option("--seed", o.seed, "Seed of the random choices; without it each run differs")
      ->type_name("N")
      ->each([&o](const std::string&) { o.seed_given = true; });
  verb.add_flag("--ignore-eos", o.ignore_end, "Continue when the model would stop");
}

void AddRun(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* verb = app.add_subcommand("run", "Generate text with a model");
  AddModelFile(*verb, o->model);
  verb->add_option("-p,--prompt", o->prompt, "The prompt, used verbatim")
      ->type_name("TEXT")
      ->each([options = o.get()](const std::string&) { options->has_prompt = true; });
  verb->add_option("-f,--file", o->file, "The prompt from a file; -: from standard input")
      ->type_name("FILE");
  verb->add_option("--tokens", o->tokens, "The prompt as token ids; no BOS is added")
      ->type_name("1,2,3");
  verb->add_flag("--chat", o->chat, "The prompt is a user's message in the model's chat template");
  verb->add_flag("-i,--interactive", o->interactive,
                 "A conversation: each line of standard input is a message, and is answered");
  const auto forms = ChatFormNames();
  verb->add_option("--chat-template", o->chat_template,
                   fmt::format("How conversations are written, for a model whose template is "
                               "missing or not understood: {}",
                               fmt::join(forms, ", ")))
      ->check(Quiet(CLI::IsMember(std::vector<std::string>(forms.begin(), forms.end()))))
      ->type_name("NAME");
  verb->add_option("--system", o->system, "The system message of --chat or --interactive")
      ->type_name("TEXT");
  AddSampling(*verb, *o);
  AddModel(*verb, o->model);
  verb->add_flag("--logits", o->logits,
                 "Print the logits after the prompt's last token; generates nothing unless -n says "
                 "so");
  verb->add_flag(
      "-v,--verbose", o->verbose,
      "Print kernels and speeds to standard error (to a terminal, speeds are always printed)");
  AddCommon(*verb, o->common);
  verb->footer(
      "\nPrints the generated text as it comes, without the prompt. Ctrl-C stops and exits 130.\n"
      "\nExamples:\n"
      "  tilewright run model.gguf -p \"Once upon a time\" -n 64 --seed 1\n"
      "  tilewright run model.gguf --chat -p \"Why is the sky blue?\" --temp 0\n"
      "  tilewright run model.gguf --interactive --system \"Be brief.\"\n"
      "  tilewright run model.gguf --tokens 1,2,3 -n 8 --temp 0 --json\n"
      "  tilewright run model.gguf -p \"Hello\" --logits --json");
  OnGiven(
      *verb, [o] { return Run(*o); }, exit_code);
}

void AddPerplexity(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PerplexityOptions>();
  CLI::App* verb = app.add_subcommand(
      "perplexity", "Perplexity of a model over a text, and how far it is from another's");
  AddModelFile(*verb, o->model);
  verb->add_option("-f,--file", o->file, "The text; -: from standard input")
      ->required()
      ->type_name("FILE");
  verb->add_option("--window", o->window,
                   "Tokens per window; each window starts with an empty cache")
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("--score", o->score,
                   "second-half: what has half a window before it, in full windows, as llama.cpp "
                   "does; all: every token of a window but its first")
      ->capture_default_str()
      ->check(Quiet(CLI::IsMember({"second-half", "all"})))
      ->type_name("WHICH");
  verb->add_option("--against", o->against,
                   "Compare with this model, from which MODEL was quantised: Kullback-Leibler "
                   "divergence, same best tokens, ratio of perplexities")
      ->type_name("FILE");
  AddModel(*verb, o->model);
  AddCommon(*verb, o->common);
  verb->footer(
      "\nWith the defaults perplexities compare with those of llama.cpp at a context of 512.\n"
      "\nExamples:\n"
      "  tilewright perplexity model.gguf -f text.txt\n"
      "  tilewright perplexity model-q4_k_m.gguf -f text.txt --against model-f16.gguf\n"
      "  tilewright perplexity model.gguf -f text.txt --activations f32 --kv f32 --json");
  OnGiven(
      *verb, [o] { return RunPerplexity(*o); }, exit_code);
}

void AddSynth(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<SynthCommand>();
  CLI::App* verb =
      app.add_subcommand("synth", "Write a model of a known shape with random weights");
  verb->add_option("--preset", o->preset, "The shape of the model; list: print all presets")
      ->required()
      ->type_name("NAME");
  verb->add_option("--quant", o->quant, SynthTypes() + "; or a mix of types: " + SynthMixes())
      ->capture_default_str()
      ->type_name("TYPE");
  verb->add_option("-o,--output", o->output, "The file to write")->type_name("FILE");
  verb->add_option("--seed", o->seed, "Seed of the random weights")
      ->capture_default_str()
      ->type_name("N");
  verb->add_flag("--dry-run", o->dry_run, "Only report what would be written");
  AddJson(*verb, o->common);
  AddLog(*verb, o->common);
  verb->footer(
      "\nExamples:\n"
      "  tilewright synth --preset list\n"
      "  tilewright synth --preset llama-3.2-1b --quant q4_k_m -o llama-1b.gguf");
  OnGiven(
      *verb, [o] { return Synth(*o); }, exit_code);
}

/// An option with or without the name of a lock.
CLI::Option* AddLockFile(CLI::App& verb, const std::string& name, TuneArguments& o,
                         const std::string& what) {
  return verb.add_option(name, o.lock, what)->expected(0, 1)->type_name("[FILE]");
}

/// Where --check or --write-lock has no FILE, the usual one is meant; and where nothing else says
/// what to tune, FILE is the MODEL, as in `tune --check MODEL`.
void SettleLock(TuneArguments& o) {
  if (o.empty()) o.model.path = std::exchange(o.lock, "");
  if (o.lock.empty()) o.lock = kLockFile;
}

void AddTune(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<TuneArguments>();
  CLI::App* verb = app.add_subcommand(
      "tune", "Measure which kernels are fastest on this machine, and record it");
  verb->add_option("MODEL", o->model.path, "GGUF file: tune every problem that it meets")
      ->type_name("FILE");
  AddProblems(*verb, *o);
  const CLI::Option* budget =
      verb->add_option("--budget", o->budget, "Total device time, as 500ms, 60s or 2m; 0: no limit")
          ->capture_default_str()
          ->type_name("TIME");
  const CLI::Option* remeasure =
      verb->add_flag("--remeasure", o->remeasure, "Measure again what was measured before");
  const CLI::Option* seed = verb->add_option("--seed", o->seed, "Seed of the tuner's order")
                                ->capture_default_str()
                                ->type_name("N");
  const CLI::Option* write_lock = AddLockFile(
      *verb, "--write-lock", *o,
      fmt::format("Measure nothing; write what is chosen now to FILE, else {}", kLockFile));
  const CLI::Option* check = AddLockFile(
      *verb, "--check", *o,
      fmt::format("Measure nothing; exit 1 if what is chosen now is not what FILE, else {}, says",
                  kLockFile));
  const CLI::Option* report =
      verb->add_option("--report", o->report, "Also write what was found as a page of HTML")
          ->check(Named())
          ->type_name("FILE");
  AddModel(*verb, o->model);
  AddCommon(*verb, o->common);
  verb->footer(
      "\nEvery measurement is kept, even if Ctrl-C (exit 130) or the budget ends the tuning.\n"
      "--write-lock keeps the lines of problems that are not named; --check ignores them.\n"
      "\nExamples:\n"
      "  tilewright tune model.gguf --budget 60s\n"
      "  tilewright tune --gemm \"m=1,n=1536,k=576,type=q4_1\"\n"
      "  tilewright tune --op \"attention rows=1 heads=32 kv_heads=8 head_dim=128 context=4096\"\n"
      "  tilewright tune --shapes shapes.csv --m 1,16 --type q8_0\n"
      "  tilewright tune model.gguf --write-lock && git add tilewright.lock\n"
      "  tilewright tune model.gguf --check --report drift.html");
  OnGiven(
      *verb,
      [=] {
        o->check = check->count() > 0, o->write_lock = write_lock->count() > 0;
        for (const CLI::Option* lock : {check, write_lock}) {
          if (lock->count() == 0) continue;
          for (const CLI::Option* other : {budget, remeasure, seed, check, write_lock}) {
            if (other == lock || other->count() == 0) continue;
            return Usage(fmt::format("{} measures nothing and cannot be combined with {}",
                                     lock->get_name(), other->get_name()),
                         "tune");
          }
        }
        if (o->write_lock && report->count() > 0)
          return Usage("--report is of a tuning or of --check, not of --write-lock", "tune");
        if (o->check || o->write_lock) SettleLock(*o);
        return Tune(*o);
      },
      exit_code);
}

}  // namespace

void AddModelVerbs(CLI::App& app, int& exit_code) {
  AddRun(app, exit_code);
  AddTune(app, exit_code);
  AddPerplexity(app, exit_code);
  AddSynth(app, exit_code);
}

}  // namespace tilewright::cli
