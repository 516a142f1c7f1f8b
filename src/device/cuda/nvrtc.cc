#include "device/cuda/nvrtc.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/env.h"
#include "core/text.h"
#include "device/cuda/nvrtc_log.h"

namespace tilewright::cuda {
namespace {

using Clock = std::chrono::steady_clock;

/// Environment variables that make NVRTC generate different code from the same source and options.
/// The second and third were seen to do so (13.0, 13.5); the others are read and intended to. They
/// are not part of any key.
constexpr const char* kVariables[] = {
    "NVRTC_APPEND_FLAGS",  "NV_NVVM_VERSION", "FINALIZER_USE_LEGACY_ELF_BUILDER",
    "NVRTC_PREPEND_FLAGS", "FINALIZER_CUBIE", "NVRTCWIZ",
};

tl::unexpected<CompileFailure> Failed(ErrorCode code, std::string message, std::string log = {},
                                      bool deterministic = false) {
  return tl::unexpected<CompileFailure>(
      CompileFailure{deterministic, Error{code, std::move(message)}, std::move(log)});
}

/// Answers the compiler's question whether to continue, which it asks from any of its threads,
/// hundreds of times per compilation. `cancelled` is called by one thread at a time, at most every
/// 20 ms, and never again once it has returned true.
class Flow {
 public:
  explicit Flow(const CancelFn& cancelled) : cancelled_(cancelled) {}

  static int Ask(void* flow, void*) noexcept { return static_cast<Flow*>(flow)->Stop() ? 1 : 0; }

  bool Stop() noexcept {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (stop_ || now < next_) return stop_;
    try {
      stop_ = cancelled_();
    } catch (...) {  // must not cross the compiler's frames
      stop_ = true;
    }
    next_ = Clock::now() + std::chrono::milliseconds(20);
    return stop_;
  }

 private:
  const CancelFn& cancelled_;
  std::mutex mutex_;
  Clock::time_point next_{};
  bool stop_ = false;
};

class Program {
 public:
  explicit Program(const NvrtcApi& api) : api_(api) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    // Fails only for an invalid program.
    if (program_ != nullptr) api_.DestroyProgram(&program_);
  }
  NvrtcProgram get() const { return program_; }
  NvrtcProgram* out() { return &program_; }

  /// One of the texts whose size NVRTC returns first; nullopt on any error.
  std::optional<std::string> Text(int (*size)(NvrtcProgram, std::size_t*),
                                  int (*get)(NvrtcProgram, char*)) const {
    std::size_t bytes = 0;
    if (size(program_, &bytes) != kNvrtcSuccess) return std::nullopt;
    std::string text(bytes, '\0');
    if (bytes != 0 && get(program_, text.data()) != kNvrtcSuccess) return std::nullopt;
    return text;
  }
  /// nullopt if NVRTC cannot return it for lack of memory.
  std::optional<std::string> Log() const {
    const std::optional<std::string> log = Text(api_.GetProgramLogSize, api_.GetProgramLog);
    if (!log) return std::nullopt;
    return StableLog(log->substr(0, log->find('\0')));
  }

 private:
  const NvrtcApi& api_;
  NvrtcProgram program_ = nullptr;
};

/// First line of a log that says what is wrong; else its first line.
std::string FirstComplaint(const std::string& log) {
  std::size_t at = log.find("error");
  if (at == std::string::npos) at = log.find("fatal");
  if (at == std::string::npos) at = 0;
  const std::size_t before = at == 0 ? std::string::npos : log.rfind('\n', at);
  const std::size_t start = before == std::string::npos ? 0 : before + 1;
  return log.substr(start, log.find('\n', start) - start);
}

/// Of a compilation that NVRTC says the source is to blame for. Only what the log says of the
/// source will be the same next time.
tl::unexpected<CompileFailure> Refusal(const std::string& what, const std::string& message,
                                       std::string log) {
  if (TellsOfNoMemory(log)) return Failed(ErrorCode::kOutOfMemory, message, std::move(log));
  const std::string diagnosis = Diagnosis(log);
  if (diagnosis.empty()) {
    return Failed(ErrorCode::kInternal,
                  message + " (nothing is said against the source, as when memory runs out)",
                  std::move(log));
  }
  // First in the log as well: of a refusal that is remembered the log is all that is left.
  if (log.find(diagnosis) == std::string::npos) log = diagnosis + "\n" + log;
  return Failed(ErrorCode::kUnsupported, what + ": " + diagnosis, std::move(log), true);
}

class NvrtcCompiler final : public KernelCompiler {
 public:
  explicit NvrtcCompiler(const NvrtcLibrary& library) : library_(library) {}

  const CompilerIdentity& identity() const override { return library_.identity; }

  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override {
    try {
      return TryCompile(job, cancelled);
    } catch (const std::bad_alloc&) {
      return Failed(ErrorCode::kOutOfMemory, "no memory left to compile " + job.name);
    }
  }

 private:
  tl::expected<CompileOutput, CompileFailure> TryCompile(const CompileJob& job,
                                                         const CancelFn& cancelled) const;
  int Create(const CompileJob& job, Program& program) const;
  tl::unexpected<CompileFailure> Failure(int result, const CompileJob& job, std::string log) const;

  const NvrtcLibrary& library_;
};

/// What is wrong with a job before NVRTC sees it; empty for nothing.
std::string JobTrouble(const CompileJob& job) {
  const auto cut = [](std::string_view text) { return text.find('\0') != std::string_view::npos; };
  if (job.name.empty() || cut(job.name)) return "the unit has no name, or a NUL in it";
  if (cut(job.source)) return Format("{} holds a NUL", job.name);
  for (const SourceFile& header : job.headers)
    if (cut(header.name) || cut(header.text)) return Format("{} holds a NUL", header.name);
  for (const std::string& option : job.options)
    if (cut(option)) return "an option holds a NUL";
  return {};
}

int NvrtcCompiler::Create(const CompileJob& job, Program& program) const {
  const std::string source(job.source);
  std::vector<std::string> texts, names;
  for (const SourceFile& header : job.headers) {
    names.emplace_back(header.name);
    texts.emplace_back(header.text);
  }
  std::vector<const char*> text_pointers, name_pointers;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text_pointers.push_back(texts[i].c_str());
    name_pointers.push_back(names[i].c_str());
  }
  return library_.api.CreateProgram(program.out(), source.c_str(), job.name.c_str(),
                                    static_cast<int>(names.size()), text_pointers.data(),
                                    name_pointers.data());
}

tl::unexpected<CompileFailure> NvrtcCompiler::Failure(int result, const CompileJob& job,
                                                      std::string log) const {
  const char* words = library_.api.GetErrorString(result);
  const std::string what = Format("NVRTC {} refused {}: {} (code {})", library_.identity.version,
                                  job.name, words == nullptr ? "unknown" : words, result);
  const std::string complaint = FirstComplaint(log);
  const std::string message = complaint.empty() ? what : what + ": " + complaint;
  switch (result) {
    case kNvrtcCompilation:
      return Refusal(what, message, std::move(log));
    case kNvrtcInvalidOption:
    case kNvrtcInvalidInput:
      return Failed(ErrorCode::kInvalidArgument, message, std::move(log));
    case kNvrtcOutOfMemory:
      return Failed(ErrorCode::kOutOfMemory, message, std::move(log));
    case kNvrtcCancelled:
      return Failed(ErrorCode::kCancelled, Format("compiling {} was cancelled", job.name),
                    std::move(log));
    case kNvrtcBuiltinOperationFailure:
      return Failed(ErrorCode::kUnavailable,
                    Format("{}; its builtins are {}", message, library_.builtins_path),
                    std::move(log));
    case kNvrtcBusy:
      return Failed(ErrorCode::kUnavailable, message, std::move(log));
    default:
      return Failed(ErrorCode::kInternal, message, std::move(log));
  }
}

tl::expected<CompileOutput, CompileFailure> NvrtcCompiler::TryCompile(
    const CompileJob& job, const CancelFn& cancelled) const {
  for (const char* variable : kVariables) {
    if (GetEnv(variable)) {
      return Failed(ErrorCode::kUnavailable,
                    Format("{} is set: NVRTC would make other code than its options say, and the "
                           "cache could not tell; unset it",
                           variable));
    }
  }
  if (const std::string trouble = JobTrouble(job); !trouble.empty())
    return Failed(ErrorCode::kInvalidArgument, trouble);

  const Clock::time_point start = Clock::now();
  const NvrtcApi& api = library_.api;
  Flow flow(cancelled);
  Program program(api);
  if (const int result = Create(job, program); result != kNvrtcSuccess)
    return Failure(result, job, {});
  if (cancelled) {
    if (flow.Stop()) return Failure(kNvrtcCancelled, job, {});
    if (api.SetFlowCallback != nullptr) api.SetFlowCallback(program.get(), &Flow::Ask, &flow);
  }
  std::vector<const char*> options;
  for (const std::string& option : job.options) options.push_back(option.c_str());
  const int result =
      api.CompileProgram(program.get(), static_cast<int>(options.size()), options.data());
  std::optional<std::string> told_log = program.Log();
  if (result != kNvrtcSuccess) return Failure(result, job, told_log.value_or(""));
  if (!told_log) {
    // Only the log reports spills: without it they would go unnoticed.
    return Failed(ErrorCode::kOutOfMemory, Format("NVRTC {} compiled {} and does not give its log",
                                                  library_.identity.version, job.name));
  }
  std::string log = std::move(*told_log);

  std::optional<std::string> cubin = program.Text(api.GetCUBINSize, api.GetCUBIN);
  std::optional<std::string> ptx = program.Text(api.GetPTXSize, api.GetPTX);
  if (!cubin || cubin->empty() || !ptx) {
    return Failed(
        ErrorCode::kInternal,
        Format("NVRTC {} compiled {} and gave no machine code: is the architecture one of "
               "sm_*?",
               library_.identity.version, job.name),
        std::move(log));
  }
  CompileOutput output;
  output.resources = ResourcesOf(log, *cubin, job.symbol);
  output.cubin = std::move(*cubin);
  output.ptx = std::move(*ptx);
  output.ptx.resize(output.ptx.find_last_not_of('\0') + 1);  // it counts a trailing NUL
  output.log = std::move(log);
  output.compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return output;
}

}  // namespace

Result<std::shared_ptr<const KernelCompiler>> LoadNvrtcFrom(const NvrtcSearch& search,
                                                            const NvrtcSurroundings& surroundings) {
  static std::mutex mutex;
  // One compiler a library, never freed, as the libraries are.
  static auto& compilers =
      *new std::map<const NvrtcLibrary*, std::shared_ptr<const KernelCompiler>>();
  const Result<const NvrtcLibrary*> library = FindNvrtc(search, surroundings);
  if (!library) return Fail(library.error());
  const std::lock_guard lock(mutex);
  std::shared_ptr<const KernelCompiler>& compiler = compilers[*library];
  if (compiler == nullptr) compiler = std::make_shared<const NvrtcCompiler>(**library);
  return compiler;
}

}  // namespace tilewright::cuda

namespace tilewright {

Result<std::shared_ptr<const KernelCompiler>> LoadNvrtc(const NvrtcSearch& search) {
  return cuda::LoadNvrtcFrom(search, cuda::NvrtcSurroundings::OfThisProcess());
}

}  // namespace tilewright
