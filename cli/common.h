#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/generate.h"
#include "tilewright/synth.h"
#include "tilewright/tilewright.h"
#include "tilewright/tokenizer.h"

namespace tilewright::cli {

/// Options that many verbs take, as the user wrote them.
struct CommonOptions {
  bool json = false;
  int threads = 0;
  std::string providers = "all";
  std::string cache_mode = "normal";
  std::string policy = "auto";
  std::string device = "cpu";
  std::vector<std::string> bundles;  ///< of compiled kernels
  std::string log;
};

/// Options of verbs that run a model.
struct ModelArguments {
  std::string path;
  std::string synth;           ///< instead of a file: a preset, with random weights
  std::string quant = "q4_0";  ///< of `synth`
  std::uint64_t seed = 0;      ///< of `synth`
  std::string guarantee = "fastest";
  std::string activations = "auto";
  std::string kv = "auto";
  int context = 0;
  int batch_rows = 512;
  std::string fusions = "all";
  std::string chains = "race";
};

/// What is said on standard error while the kernels of a GPU are compiled: on a terminal one line
/// that is replaced, elsewhere a line every few seconds. One thread at a time.
class CompileLine {
 public:
  void Show(const KernelSpec& spec, double ms);
  /// Removes the line, before something else is printed.
  void Clear();
  /// A line that says what was compiled, if anything was, and which bundle spares the next machine
  /// that; `model` is the file, "" for none.
  void Summarise(const std::string& model);

 private:
  int kernels_ = 0;
  double seconds_ = 0;
  std::string arch_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

/// Sets up the log and opens the device; prints the context's warnings, and which device "auto" is.
/// `compiling`, if given, must outlive the context. `weight_bytes`: of the model that is to run, 0 without one.
Result<std::unique_ptr<Context>> MakeContext(const CommonOptions& common,
                                             Calibration calibration = Calibration::kStored,
                                             CompileLine* compiling = nullptr,
                                             std::int64_t weight_bytes = 0);
/// Sets up the log, for verbs that need no context.
void SetUpLog(const CommonOptions& common);
/// Words of a precision, in the order of the enumerators.
constexpr std::string_view kPrecisionOptions[] = {"auto", "f32", "bf16", "int8", "w8a8"};
Result<Precision> ParsePrecision(std::string_view word);
Result<Guarantee> ParseGuarantee(const std::string& word);
/// --activations: on the CPU how far kernels may round; on a GPU the type between operations, and
/// unless it is auto kernels round no further.
struct Activations {
  Precision precision = Precision::kAuto;
  DataType type = DataType::kF32;
};
Result<Activations> ParseActivations(const std::string& word, const Context& context);
Result<DataType> ParseKv(const std::string& word, const Context& context);

/// A preset, and the type or mix of its random weights. kNotFound and kInvalidArgument list what
/// there is.
Result<SynthOptions> ParseSynth(const std::string& preset, const std::string& quant,
                                std::uint64_t seed);

/// A model ready to run. Members are destroyed last to first.
struct LoadedModel {
  std::unique_ptr<CompileLine> compiling;
  std::unique_ptr<Context> context;
  std::unique_ptr<DeviceDispatch> dispatch;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
  double load_ms = 0;
};
/// Context, model and session for `slots` sequences at once, with a progress bar.
Result<LoadedModel> LoadModel(const CommonOptions& common, const ModelArguments& arguments,
                              int slots = 1);

/// Sorted, the middle one (the mean of the two middle ones); 0 for none.
double Median(std::vector<double> values);

/// "12,16" and such: integers of `least` or more. The error names `what` and the word.
Result<std::vector<std::int32_t>> ParseIntegers(const std::string& text, std::string_view what,
                                                std::int32_t least = 0);

/// Reads a file whole; "-" is standard input.
Result<std::string> ReadFile(const std::string& path);

/// "1.5 GiB"
std::string HumanBytes(double bytes);
/// "1 kernel", "2 kernels".
std::string Counted(std::uint64_t count, std::string_view noun);

}  // namespace tilewright::cli
