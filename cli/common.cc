#include "common.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "console.h"
#include "tilewright/log.h"

namespace tilewright::cli {
namespace {

void PrintMessage(void*, LogLevel level, std::string_view message) {
  if (level == LogLevel::kError) {
    Complain(message);
  } else if (level == LogLevel::kWarning) {
    Warn(message);
  } else {
    Note(message);
  }
}

}  // namespace

void SetUpLog(const CommonOptions& common) {
  std::string word = common.log;
  if (word.empty()) {
    if (const char* env = std::getenv("TILEWRIGHT_LOG")) word = env;
  }
  LogSink sink;
  sink.write = PrintMessage;
  if (!word.empty()) {
    if (const auto level = ParseLogLevel(word)) {
      sink.level = *level;
    } else {
      Warn(fmt::format("log level '{}' is unknown; known are debug, info, warning, error, off",
                       word));
    }
  }
  SetLogSink(sink);
}

Result<Precision> ParsePrecision(std::string_view word) {
  const auto* const found = std::ranges::find(kPrecisionOptions, word);
  if (found != std::end(kPrecisionOptions))
    return static_cast<Precision>(found - std::begin(kPrecisionOptions));
  return Fail(ErrorCode::kInvalidArgument, fmt::format("precision '{}' is unknown; known are {}",
                                                       word, fmt::join(kPrecisionOptions, ", ")));
}

Result<Guarantee> ParseGuarantee(const std::string& word) {
  if (word == "fastest") return Guarantee::kFastest;
  if (word == "deterministic") return Guarantee::kDeterministic;
  if (word == "batch-invariant") return Guarantee::kBatchInvariant;
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("guarantee '{}' is unknown; known are fastest, deterministic, batch-invariant",
                  word));
}

Result<Activations> ParseActivations(const std::string& word, const Context& context) {
  const bool cpu = context.device_spec().kind == DeviceKind::kCpu;
  Activations activations{Precision::kAuto, context.DefaultSession().activations};
  if (cpu) {
    Result<Precision> precision = ParsePrecision(word);
    if (!precision) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("--activations {}: for a GPU only; on the CPU they are {}", word,
                              fmt::join(kPrecisionOptions, ", ")));
    }
    activations.precision = *precision;
    return activations;
  }
  if (word == "auto") return activations;
  const std::optional<DataType> type = ParseDataType(word);
  if (type != DataType::kF32 && type != DataType::kF16 && type != DataType::kBF16) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--activations {}: on {} they are auto (bf16), f32, f16 or bf16", word,
                            context.device_name()));
  }
  activations.type = *type;
  // Who names a type wants it kept: auto alone lets products with weights in blocks round to int8.
  activations.precision = type == DataType::kF32 ? Precision::kF32 : Precision::kBF16;
  return activations;
}

Result<DataType> ParseKv(const std::string& word, const Context& context) {
  if (word == "auto") return context.DefaultSession().kv;
  if (auto type = ParseDataType(word)) return *type;
  return Fail(ErrorCode::kInvalidArgument, fmt::format("KV type '{}' is unknown", word));
}

/// `word` is one of those that the option takes.
Chains ParseChains(std::string_view word) {
  if (word == "off") return Chains::kOff;
  return word == "on" ? Chains::kOn : Chains::kRace;
}

Result<std::unique_ptr<Context>> MakeContext(const CommonOptions& common, Calibration calibration,
                                             CompileLine* compiling, std::int64_t weight_bytes) {
  SetUpLog(common);
  ContextOptions options;
  options.device = common.device;
  options.artifacts.bundles = common.bundles;
  if (compiling != nullptr) {
    options.artifacts.on_compiled = [line = compiling](const KernelSpec& spec, double ms) {
      line->Show(spec, ms);
    };
  }
  options.threads = common.threads;
  options.calibration = calibration;
  if (common.policy == "cold") options.policy = MeasurePolicy::kCold;
  if (common.policy == "warm") options.policy = MeasurePolicy::kWarm;
  options.weight_bytes = weight_bytes;
  if (common.providers == "own") options.providers = Bit(Provider::kOwn);
  if (common.providers == "vendor") options.providers = Bit(Provider::kVendor);
  Result<CacheMode> mode = ParseCacheMode(common.cache_mode);
  if (!mode) return Fail(mode.error());
  options.cache_mode = *mode;
  Result<std::unique_ptr<Context>> context = Context::Create(options);
  if (!context) {
    // A GPU that cannot be used is a failure; what a processor lacks was asked for in error.
    const Error& error = context.error();
    const bool gpu = common.device != "cpu" && error.code == ErrorCode::kUnavailable;
    return Fail(gpu ? ErrorCode::kNotFound : error.code, error.message);
  }
  if ((*context)->device_spec().kind == DeviceKind::kCuda) SetGpuWorks();
  for (const std::string& warning : (*context)->warnings()) Warn(warning);
  if (!(*context)->device_note().empty()) Note((*context)->device_note());
  return context;
}

void CompileLine::Show(const KernelSpec& spec, double ms) {
  ++kernels_;
  seconds_ += ms / 1e3;
  arch_ = spec.arch.ToString();
  const std::string text =
      fmt::format("compiling kernels: {} so far, {}", kernels_, spec.family.view());
  if (StderrIsTerminal()) {
    shown_ = true;
    Err("\r\x1b[K" + text);
    return;
  }
  constexpr std::chrono::seconds kBetweenLines{5};
  const auto now = std::chrono::steady_clock::now();
  if (now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  Note(text);
}

void CompileLine::Clear() {
  if (std::exchange(shown_, false)) Err("\r\x1b[K");
}

void CompileLine::Summarise(const std::string& model) {
  Clear();
  if (kernels_ == 0) return;
  Note(
      fmt::format("compiled {} in {:.1f} s; they are kept for the next run. A bundle spares other "
                  "machines this: tilewright bundle build {} --arch {} -o FILE.twb, then "
                  "--bundle FILE.twb",
                  Counted(static_cast<std::uint64_t>(kernels_), "kernel"), seconds_,
                  model.empty() ? "--all" : "--model " + model, arch_));
}

Result<SynthOptions> ParseSynth(const std::string& preset, const std::string& quant,
                                std::uint64_t seed) {
  Result<SynthShape> shape = FindSynthPreset(preset);
  if (!shape) return Fail(shape.error());
  SynthOptions options;
  options.shape = *shape;
  options.seed = seed;
  if (Status known = SetSynthQuant(quant, options); !known)
    return Fail(known.error().code, fmt::format("--quant {}", known.error().message));
  return options;
}

/// The file of the arguments, or the random weights that they ask for instead of one.
Result<GgufFile> OpenModel(const ModelArguments& arguments) {
  if (arguments.synth.empty()) return GgufFile::Open(arguments.path);
  const Result<SynthOptions> options = ParseSynth(arguments.synth, arguments.quant, arguments.seed);
  if (!options) return Fail(options.error());
  return GenerateSynthetic(*options);
}

Result<LoadedModel> LoadModel(const CommonOptions& common, const ModelArguments& arguments,
                              int slots) {
  const auto start = std::chrono::steady_clock::now();
  LoadedModel loaded;
  loaded.compiling = std::make_unique<CompileLine>();
  Result<GgufFile> file = OpenModel(arguments);
  if (!file) return Fail(file.error());
  Result<std::unique_ptr<Context>> context =
      MakeContext(common, Calibration::kStored, loaded.compiling.get(), WeightBytes(*file));
  if (!context) return Fail(context.error());
  loaded.context = std::move(*context);
  Result<Activations> activations = ParseActivations(arguments.activations, *loaded.context);
  Result<Guarantee> guarantee = ParseGuarantee(arguments.guarantee);
  Result<DataType> kv = ParseKv(arguments.kv, *loaded.context);
  Result<FusionSet> fusions = FusionSet::Parse(arguments.fusions);
  if (!activations) return Fail(activations.error());
  if (!guarantee) return Fail(guarantee.error());
  if (!kv) return Fail(kv.error());
  if (!fusions) return Fail(fusions.error());
  loaded.dispatch = loaded.context->MakeDispatch(activations->precision, *guarantee);

  Progress bar("loading");
  ModelOptions model_options;
  model_options.fusions = *fusions;
  model_options.packer = loaded.dispatch.get();
  model_options.executor = &loaded.context->executor();
  model_options.device = &loaded.context->device();
  model_options.progress = [&](double fraction) {
    bar.Show(fraction);
    return !Interrupted().load();
  };
  Result<std::unique_ptr<Model>> model = Model::Load(std::move(*file), model_options);
  if (!model) return Fail(model.error());
  loaded.model = std::move(*model);

  SessionOptions session_options = loaded.context->DefaultSession();
  session_options.kv = *kv;
  session_options.activations = activations->type;
  session_options.context = arguments.context;
  session_options.max_rows = arguments.batch_rows;
  session_options.slots = slots;
  session_options.chains = ParseChains(arguments.chains);
  Result<std::unique_ptr<Session>> session =
      Session::Create(*loaded.model, *loaded.dispatch, session_options);
  if (!session) return Fail(session.error());
  if (const std::int32_t trained = loaded.model->config().context; arguments.context > trained) {
    Warn(fmt::format("--context {} is more than the {} positions that the model was trained for",
                     arguments.context, trained));
  }
  loaded.session = std::move(*session);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  loaded.load_ms = took.count();
  return loaded;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Result<std::vector<std::int32_t>> ParseIntegers(const std::string& text, std::string_view what,
                                                std::int32_t least) {
  std::vector<std::int32_t> values;
  std::stringstream stream(text);
  std::string word;
  while (std::getline(stream, word, ',')) {
    const auto first = word.find_first_not_of(" \t\n"), last = word.find_last_not_of(" \t\n");
    if (first != std::string::npos) word = word.substr(first, last - first + 1);
    std::int32_t value = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc() || stop != end || value < least) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: '{}' is not a number of {} or more", what, word, least));
    }
    values.push_back(value);
  }
  if (values.empty()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: no numbers in '{}'", what, text));
  }
  return values;
}

Result<std::string> ReadFile(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    if (std::ferror(stdin) != 0) return Fail(ErrorCode::kIo, "standard input cannot be read");
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Fail(ErrorCode::kNotFound, fmt::format("{}: cannot be opened for reading", path));
  }
  // A folder opens and then refuses to be read.
  if (file.peek() == std::ifstream::traits_type::eof()) {
    if (file.bad()) return Fail(ErrorCode::kIo, fmt::format("{}: cannot be read", path));
    return std::string();
  }
  text << file.rdbuf();
  if (file.bad()) return Fail(ErrorCode::kIo, fmt::format("{}: cannot be read", path));
  return text.str();
}

std::string HumanBytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string Counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace tilewright::cli
