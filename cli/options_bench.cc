#include <memory>

#include "gemm_words.h"
#include "options.h"
#include "parser.h"
#include "problem_words.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

/// A file, or random weights that are made while they are loaded.
void AddFileOrSynth(CLI::App& verb, ModelArguments& model) {
  CLI::Option* file = verb.add_option("MODEL", model.path, "GGUF file")->type_name("FILE");
  CLI::Option* synth =
      verb.add_option("--synth", model.synth,
                      "Instead of a file, random weights in the shape of a preset of `synth`")
          ->excludes(file)
          ->type_name("PRESET");
  verb.add_option("--quant", model.quant, "With --synth: type, or mix of types, of the weights")
      ->needs(synth)
      ->capture_default_str()
      ->type_name("TYPE");
  verb.add_option("--seed", model.seed, "With --synth: seed of the weights")
      ->needs(synth)
      ->capture_default_str()
      ->type_name("N");
}

/// `bench serve`.
void AddBenchServe(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchServeOptions>();
  CLI::App* verb = bench.add_subcommand(
      "serve", "Sequences that come and go, their prompts in pieces beside the others' tokens");
  AddFileOrSynth(*verb, o->model);
  const auto count = [&](const char* names, int& value, const char* what, int least) {
    verb->add_option(names, value, what)
        ->capture_default_str()
        ->check(Quiet(CLI::Range(least, 1 << 20)))
        ->type_name("N");
  };
  count("--sequences", o->sequences, "Clients, each of which sends one request after the other", 1);
  count("--requests", o->requests, "Of all clients together; 0: twice as many as sequences", 0);
  count("-p,--prompt", o->prompt, "Tokens of a prompt, on average", 1);
  count("-n,--generate", o->generate, "Tokens to generate for each, on average", 1);
  count("--repeat", o->repeat, "Repetitions, after one for warming up", 1);
  verb->add_option("--traffic-seed", o->traffic_seed, "Seed of prompts and lengths")
      ->capture_default_str()
      ->type_name("N");
  AddModel(*verb, o->model);
  AddCommon(*verb, o->common);
  verb->footer(
      "\nThe same requests are served twice in turn: with prompts in pieces beside the tokens of "
      "the others, in\npasses of up to --ubatch rows, and with prompts in passes of their own. A "
      "client waits from its request\nto the first token, and from each token to the next.\n"
      "\nExamples:\n  tilewright bench serve model.gguf --sequences 8 -p 256 -n 64\n"
      "  tilewright bench serve --synth llama-3.1-8b --quant q8_0 --device cuda:0 --sequences 64");
  OnGiven(
      *verb, [o] { return BenchServe(*o); }, exit_code);
}

/// A problem that can be measured, with what omitted fields are.
template <class Op>
std::string ExampleOf() {
  if constexpr (std::is_same_v<Op, GemmOp>) {
    return KeyOf(ParseGemm("m=1,n=4096,k=4096").value());
  } else {
    return KeyOf(typename Op::Desc{});
  }
}

/// `bench op OP PROBLEM...`.
template <class Op>
void AddBenchOne(CLI::App& op, int& exit_code) {
  const std::string name(Op::kName);
  auto o = std::make_shared<BenchOpOptions>();
  o->op = name;
  CLI::App* verb = op.add_subcommand(name, "The operation " + name);
  verb->add_option("problems", o->problems,
                   "Fields of each problem, as \"" + ExampleOf<Op>() + "\"")
      ->type_name("PROBLEM");
  verb->add_option("--shapes", o->shapes,
                   "CSV file whose columns are fields of a problem, and name")
      ->type_name("FILE");
  verb->add_flag("--all", o->all, "Time every launch of every kernel, not just the chosen one");
  verb->add_option(
          "--again", o->again,
          "Of all, time the fastest few, the chosen one and the first guess again in turn, "
          "with N samples of each")
      ->check(Quiet(CLI::Range(1, 10000)))
      ->needs("--all")
      ->type_name("N");
  verb->add_flag_callback(
      "--cold-l2", [o] { o->common.policy = "cold"; },
      "Weights, tables and caches are read from memory, as in a large model (the default)");
  verb->add_flag_callback(
      "--warm-l2", [o] { o->common.policy = "warm"; },
      "They stay in the last-level cache, as in a small model");
  verb->add_option("--repeat", o->repeat, "Samples per launch")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(1, 10000)))
      ->type_name("N");
  if constexpr (std::is_same_v<Op, attention::Op>) {
    verb->add_option("--positions", o->positions,
                     "Positions that each sequence holds, at most its context; 0: about 1,024")
        ->capture_default_str()
        ->check(Quiet(CLI::Range(0, 1 << 24)))
        ->type_name("N");
  }
  AddCommon(*verb, o->common);
  if constexpr (std::is_same_v<Op, GemmOp>) verb->alias("gemv");
  verb->footer(
      "\n" + FieldsText<Op>() +
      "\nThe first guess is the launch that would run without any measurement. The floor counts "
      "every byte at\nthe rate of the memory, with --warm-l2 on a CPU at that of reading so many "
      "bytes again and again, or\nthe operations at the peak; activations that are in the cache "
      "can "
      "be faster."
      "\n\nExample:\n  tilewright bench op " +
      name + " \"" + ExampleOf<Op>() + "\" --all");
  OnGiven(
      *verb, [o] { return BenchOp(*o); }, exit_code);
}

void AddBenchOp(CLI::App& bench, int& exit_code) {
  CLI::App* op = bench.add_subcommand("op", "The chosen kernel of any operation, by its shape");
  op->require_subcommand(1);
  op->footer(
      "\nExample:\n  tilewright bench op norm \"rows=4096 cols=4096 type_in=bf16 type_out=bf16\"");
  ForEachOperation([&]<class Op>() { AddBenchOne<Op>(*op, exit_code); });
}

/// `bench record`.
void AddBenchRecord(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchRecordOptions>();
  CLI::App* verb =
      bench.add_subcommand("record", "Times of every launch of some problems, for bench tuner");
  verb->add_option("MODEL", o->what.model.path, "GGUF file: every problem that it meets")
      ->type_name("FILE");
  AddProblems(*verb, o->what);
  verb->add_option("--rounds", o->rounds, "Samples of each launch, in turn")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(3, 10000)))
      ->type_name("N");
  verb->add_option("--seed", o->what.seed, "Seed of operands and of the order")
      ->capture_default_str()
      ->type_name("N");
  verb->add_option("-o,--output", o->output, "File to write")
      ->required()
      ->check(Named())
      ->type_name("FILE");
  AddModel(*verb, o->what.model);
  AddCommon(*verb, o->what.common);
  verb->footer(
      "\nEach launch is checked once, then timed in rounds of random order; of one that takes more "
      "than three times\nas long as the fastest, two rounds are all. Records are neither used nor "
      "written.\n"
      "\nExample:\n  tilewright bench record --shapes shapes.csv --m 1,128 --type q4_0 -o "
      "cpu.matrix");
  OnGiven(
      *verb, [o] { return BenchRecord(*o); }, exit_code);
}

/// `bench tuner`.
void AddBenchTuner(CLI::App& bench, int& exit_code) {
  auto o = std::make_shared<BenchTunerOptions>();
  CLI::App* verb = bench.add_subcommand(
      "tuner", "What the tuner's choices lose against the fastest, on recorded times");
  verb->add_option("--replay", o->matrices, "Matrix of `bench record`; may be repeated")
      ->required()
      ->type_name("FILE");
  verb->add_option("--budget-percent", o->budget_percent,
                   "Device time of a session, of 50 samples of every launch; 0: no limit")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(0.0, 1000.0)))
      ->type_name("P");
  verb->add_option("--replicates", o->replicates, "Sessions of each problem")
      ->capture_default_str()
      ->check(Quiet(CLI::Range(1, 1000000)))
      ->type_name("N");
  verb->add_option("--seed", o->seed, "Seed of the sessions")
      ->capture_default_str()
      ->type_name("N");
  AddJson(*verb, o->common);
  verb->footer(
      "\nA session begins at a random round of the recording and takes one round after the other. "
      "It measures nothing\nhere, so any machine will do. model: what is lost without any "
      "measurement.\n"
      "\nExample:\n  tilewright bench tuner --replay cpu.matrix --budget-percent 5");
  OnGiven(
      *verb, [o] { return BenchTuner(*o); }, exit_code);
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed and compare it with the floor");
  bench->require_subcommand(1);
  bench->footer(
      "\nExamples:\n"
      "  tilewright bench model model.gguf -p 512,2048 -n 128 --batch 1,8\n"
      "  tilewright bench gemm --shapes shapes.csv --m 1,16,64 --type q4_1\n"
      "  tilewright bench op attention \"rows=32 sequences=32 context=1024 heads=32 kv_heads=8\" "
      "--all");
  {
    auto o = std::make_shared<BenchModelOptions>();
    CLI::App* verb = bench->add_subcommand("model", "Speed of prompt processing and generation");
    AddFileOrSynth(*verb, o->model);
    verb->add_option("-p,--prompt", o->prompts, "Lengths of prompts; 0: none")
        ->capture_default_str()
        ->type_name("512,2048");
    verb->add_option("-n,--generate", o->generated, "Numbers of tokens to generate; 0: none")
        ->capture_default_str()
        ->type_name("128");
    verb->add_option("--batch", o->batches, "Sequences processed together")
        ->capture_default_str()
        ->type_name("1,8");
    verb->add_option("-d,--depth", o->depth, "Positions that a sequence holds before it is timed")
        ->capture_default_str()
        ->check(Quiet(CLI::Range(0, 1 << 24)))
        ->type_name("N");
    verb->add_option("--repeat", o->repeat, "Repetitions, after one for warming up")
        ->capture_default_str()
        ->check(Quiet(CLI::Range(1, 1000)))
        ->type_name("N");
    verb->add_flag("--profile", o->profile,
                   "Also the time of every kind of step of a pass, against its floor");
    AddModel(*verb, o->model);
    AddCommon(*verb, o->common);
    verb->footer(
        "\nThe floor is the speed that memory bandwidth and peak arithmetic, both measured in the "
        "same "
        "run,\nwould allow. tgN decodes N tokens of each sequence from position --depth on.\n"
        "\nExamples:\n  tilewright bench model model.gguf -p 512 -n 128 --json\n"
        "  tilewright bench model --synth llama-3.1-8b --quant q4_k_m --device cuda:0 -d 512");
    OnGiven(
        *verb, [o] { return BenchModel(*o); }, exit_code);
  }
  {
    auto o = std::make_shared<BenchGemmOptions>();
    CLI::App* verb = bench->add_subcommand("gemm", "The chosen kernel of each shape");
    verb->add_option("--shapes", o->shapes,
                     "CSV file with the columns name, n, k and perhaps m, type")
        ->required()
        ->type_name("FILE");
    verb->add_option("--m", o->rows, "Batch sizes, for a file without the column m")
        ->capture_default_str()
        ->type_name("1,16,64");
    verb->add_option("--type", o->type, "Weights, for a file without the column type")
        ->capture_default_str()
        ->type_name("TYPE");
    verb->add_option("--precision", o->precision, "auto, f32, bf16, int8 or w8a8")
        ->capture_default_str()
        ->check(Quiet(CLI::IsMember(
            std::vector<std::string>(std::begin(kPrecisionOptions), std::end(kPrecisionOptions)))))
        ->type_name("TYPE");
    verb->add_option("--baseline", o->baseline, "none, onednn or cublaslt")
        ->capture_default_str()
        ->check(Quiet(CLI::IsMember({"none", "onednn", "cublaslt"})))
        ->type_name("WHICH");
    verb->add_option("--repeat", o->repeat, "Samples per shape")
        ->capture_default_str()
        ->check(Quiet(CLI::Range(1, 10000)))
        ->type_name("N");
    AddCommon(*verb, o->common);
    verb->footer("\nExample:\n  tilewright bench gemm --shapes shapes.csv --m 1,64 --type q4_1");
    OnGiven(
        *verb, [o] { return BenchGemm(*o); }, exit_code);
  }
  AddBenchServe(*bench, exit_code);
  AddBenchOp(*bench, exit_code);
  AddBenchRecord(*bench, exit_code);
  AddBenchTuner(*bench, exit_code);
}

}  // namespace tilewright::cli
