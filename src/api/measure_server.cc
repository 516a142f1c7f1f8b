// The worker's side of measuring in a process of its own.

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "api/open_device.h"
#include "api/worker_settings.h"
#include "core/paths.h"
#include "core/text.h"
#include "engine/tune/measuring.h"
#include "tilewright/tilewright.h"
#include "worker/message.h"

namespace tilewright {
namespace {

using worker::Message;
using worker::MessageOf;

/// Standard input and output as the connection, out of the reach of kernels and libraries: what
/// they print goes to standard error.
struct Connection {
  int in = -1, out = -1;
};
Connection TakeConnection() {
  Connection connection{fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1),
                        fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) {
    dup2(nothing, STDIN_FILENO);
    close(nothing);
  }
  return connection;
}

/// A worker must not survive its parent, even where it is stuck in a kernel.
void DieWithParent(int connection) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGTTOU, SIG_IGN);  // in a process group of its own it may print all the same
  const rlimit no_core{0, 0};     // the memory of a process with a GPU is large
  setrlimit(RLIMIT_CORE, &no_core);
  // The parent may have died before it could be watched; other systems may not tell. A worker that
  // is idle sees the end of the connection by itself.
  std::thread([connection] {
    pollfd watched{connection, 0, 0};
    while (poll(&watched, 1, -1) <= 0 && errno == EINTR) {
    }
    constexpr std::chrono::seconds kToEndByItself{1};
    std::this_thread::sleep_for(kToEndByItself);
    _exit(0);
  }).detach();
}

/// The candidates of one operation.
class Trials {
 public:
  virtual ~Trials() = default;
  virtual Status Prepare(std::string_view problem) = 0;
  struct Candidate {
    std::string_view kernel, fingerprint, spec;
  };
  /// nullopt for a kernel that is not here, or is another one. `reps` 0: check.
  virtual std::optional<Tuner::Outcome> Try(const Candidate& candidate, int reps) = 0;
};

template <class Op>
class TrialsOf final : public Trials {
 public:
  TrialsOf(OpRegistry<Op>& registry, Device& device, const MeasurerOptions& options)
      : registry_(registry), measurer_(MakeMeasurer<Op>(device, options)) {}

  Status Prepare(std::string_view problem) override {
    const Result<typename Op::Desc> desc = ParseProblem<Op>(problem);
    if (!desc) return Fail(desc.error());
    return measurer_->Prepare(*desc);
  }
  std::optional<Tuner::Outcome> Try(const Candidate& candidate, int reps) override {
    auto* const kernel = registry_.Find(candidate.kernel);
    if (kernel == nullptr || kernel->info().fingerprint != candidate.fingerprint)
      return std::nullopt;
    const auto spec = ParseSpec(candidate.spec, kernel);
    if (!spec) return std::nullopt;
    return reps > 0 ? measurer_->Time(*spec, reps) : measurer_->Check(*spec);
  }

 private:
  OpRegistry<Op>& registry_;
  std::unique_ptr<Measurer<Op>> measurer_;
};

class Server {
 public:
  Server(const MeasureServerOptions& options, std::string build)
      : options_(options), build_(std::move(build)) {}

  Message Answer(const Message& message) {
    if (message.verb == "hello") return {"hello", {std::string(worker::kProtocol), build_}};
    if (message.verb == "open") return Open(message.words);
    if (message.verb == "prepare") return Prepare(message.words);
    if (message.verb == "check" || message.verb == "time") return Try(message);
    return Refusal(Format("'{}' is no request", Printable(message.verb, 40)));
  }

  /// A lost device is left as it is: the driver's own ways of releasing it may hang.
  bool lost() const { return lost_; }
  void Abandon() {
    static_cast<void>(trials_.release());
    static_cast<void>(opened_.kernels.release());
    static_cast<void>(opened_.device.release());
    static_cast<void>(opened_.store.release());
  }

 private:
  static Message Refusal(std::string what) {
    return MessageOf(Error{ErrorCode::kInvalidArgument, std::move(what)});
  }

  Message Open(const std::vector<std::string>& words) {
    WorkerSettings settings{options_.context, {}};
    if (Status taken = TakeWords(words, settings); !taken) return MessageOf(taken.error());
    measure_ = settings.measure;
    trials_.reset();
    opened_ = OpenedDevice();
    executor_ = MakeThreadPool(settings.context.threads);
    const Result<std::string> folder = settings.context.cache_dir.empty()
                                           ? CacheDir()
                                           : Result<std::string>(settings.context.cache_dir);
    std::vector<std::string> warnings;  // those of the parent's context
    Result<OpenedDevice> opened =
        OpenDevice(settings.context, folder.value_or(std::string()), *executor_, warnings);
    if (!opened) return MessageOf(opened.error());
    opened_ = std::move(*opened);
    if (options_.add_kernels) {
      if (Status added = options_.add_kernels(*opened_.kernels, *opened_.device); !added)
        return MessageOf(added.error());
    }
    return {"opened", {opened_.device->spec().ClassId()}};
  }

  Message Prepare(const std::vector<std::string>& words) {
    if (words.size() != 2) return Refusal("prepare: an operation and a problem are needed");
    if (opened_.device == nullptr) return Refusal("prepare: no device is open");
    if (trials_ == nullptr || words[0] != op_) {
      trials_.reset();  // what the operation before holds makes room
      ForEachOperation([&]<class Op>() {
        if (words[0] == Op::kName) {
          trials_ =
              std::make_unique<TrialsOf<Op>>(opened_.kernels->of<Op>(), *opened_.device, measure_);
        }
      });
      if (trials_ == nullptr)
        return Refusal(Format("'{}' is no operation", Printable(words[0], 40)));
      op_ = words[0];
    }
    try {
      if (Status prepared = trials_->Prepare(words[1]); !prepared)
        return MessageOf(prepared.error());
    } catch (const std::bad_alloc&) {
      return MessageOf(Error{ErrorCode::kOutOfMemory, "no memory for the operands"});
    }
    return {"prepared", {}};
  }

  Message Try(const Message& message) {
    const std::vector<std::string>& words = message.words;
    const bool times = message.verb == "time";
    int reps = 0;
    if (words.size() != (times ? 4 : 3) || trials_ == nullptr)
      return Refusal(message.verb + ": a candidate of a problem that was prepared is needed");
    if (times) {
      const char* end = words[3].data() + words[3].size();
      const auto [stop, error] = std::from_chars(words[3].data(), end, reps);
      if (error != std::errc() || stop != end || reps < 1)
        return Refusal(Format("time: '{}' repetitions", Printable(words[3], 40)));
    }
    worker::Reply reply;
    try {
      std::optional<Tuner::Outcome> outcome = trials_->Try({words[0], words[1], words[2]}, reps);
      if (!outcome) return {"unknown", {}};
      reply.outcome = *std::move(outcome);
    } catch (const std::bad_alloc&) {
      reply.outcome = Failed(Error{ErrorCode::kOutOfMemory, "no memory for the trial"});
    } catch (const std::exception& thrown) {
      reply.outcome = Failed(Verdict::kCrash, Format("Launch threw: {}", thrown.what()));
    }
    if (reply.outcome.verdict != Verdict::kOk || reply.outcome.skipped) {
      Device& device = *opened_.device;
      lost_ = !device.Synchronize(device.default_stream());
      reply.device_lost = lost_;
    }
    return MessageOf(reply);
  }

  const MeasureServerOptions& options_;
  std::string build_;
  MeasurerOptions measure_;
  std::unique_ptr<Executor> executor_;
  OpenedDevice opened_;
  std::string op_;
  std::unique_ptr<Trials> trials_;
  bool lost_ = false;
};

bool SendAll(int out, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = write(out, bytes.data(), bytes.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

/// The next message; nullopt at the end of the connection, or of what makes sense on it.
std::optional<Message> Receive(int in, worker::MessageReader& reader) {
  for (;;) {
    Result<std::optional<Message>> next = reader.Next();
    if (!next) return std::nullopt;
    if (*next) return std::move(*next);
    char piece[4096];
    const ssize_t got = read(in, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    reader.Add({piece, static_cast<std::size_t>(got)});
  }
}

}  // namespace

int ServeMeasurements(const MeasureServerOptions& options) {
  const Connection connection = TakeConnection();
  if (connection.in < 0 || connection.out < 0) return 1;
  DieWithParent(connection.in);
  Result<std::string> build = BuildIdentity();
  if (!build) return 1;
  Server server(options, std::move(*build));
  worker::MessageReader reader;
  while (std::optional<Message> message = Receive(connection.in, reader)) {
    Result<std::string> answer = worker::Encode(server.Answer(*message));
    if (!answer || !SendAll(connection.out, *answer)) return 1;
    if (server.lost()) {
      server.Abandon();
      return 0;
    }
  }
  return reader.incomplete() ? 1 : 0;
}

}  // namespace tilewright
