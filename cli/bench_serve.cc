#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "console.h"
#include "model_floor.h"
#include "report.h"
#include "tilewright/batch_scheduler.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<TokenId> prompt;
  std::int32_t tokens = 0;  ///< to generate
};

/// Lengths from half to one and a half of those asked for, so that sequences do not keep in step.
std::vector<Request> MakeRequests(const BenchServeOptions& options, std::int32_t vocab) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(options.traffic_seed));
  const auto around = [&](int mean) {
    return std::max(1, mean / 2 + static_cast<int>(random() % static_cast<unsigned>(mean + 1)));
  };
  std::vector<Request> requests(static_cast<std::size_t>(options.requests));
  for (Request& request : requests) {
    request.prompt.resize(static_cast<std::size_t>(around(options.prompt)));
    for (TokenId& id : request.prompt)
      id = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
    request.tokens = around(options.generate);
  }
  return requests;
}

/// The longest sequence that MakeRequests makes.
int LongestSequence(const BenchServeOptions& options) {
  return options.prompt / 2 + options.prompt + options.generate / 2 + options.generate;
}

/// What every way to serve them takes: a token needs a pass, which at most all sequences share, and
/// behind one that its prompt or the token before it was in.
LeastPasses LeastOf(const std::vector<Request>& requests, int sequences) {
  LeastPasses least{.passes = 0, .rows = 0, .logits_rows = 0, .positions = 0};
  for (const Request& request : requests) {
    const auto prompt = static_cast<double>(request.prompt.size());
    const auto tokens = static_cast<double>(request.tokens);
    // The prompt's last row finds the first token, and the last one is not fed.
    least.rows += prompt + tokens - 1;
    least.logits_rows += tokens;
    least.positions += (tokens - 1) * (prompt + tokens / 2);
    least.passes = std::max(least.passes, tokens);
  }
  least.passes = std::max(least.passes, std::ceil(least.logits_rows / sequences));
  return least;
}

/// The times of one run over all requests, in seconds.
struct Served {
  double seconds = 0;
  std::int64_t prompt_tokens = 0, generated = 0, passes = 0, rows = 0;
  std::vector<double> first;    ///< from when the request was sent to its first token
  std::vector<double> between;  ///< from each token of a sequence to its next
};

/// Clients that each send one request after the other.
class Clients {
 public:
  Clients(const std::vector<Request>& requests, BatchScheduler scheduler)
      : requests_(requests), scheduler_(std::move(scheduler)), last_(requests.size()) {}

  Result<Served> Serve(Session& session, int clients) {
    const auto start = Clock::now();
    for (int i = 0; i < clients; ++i) {
      if (Status sent = Send(start); !sent) return Fail(sent.error());
    }
    for (auto rows = scheduler_.Next(); !rows.empty(); rows = scheduler_.Next()) {
      ++served_.passes;
      served_.rows += static_cast<std::int64_t>(rows.size());
      const auto best = session.ForwardTop(rows, 1);
      if (!best) return Fail(best.error());
      const auto taken = scheduler_.Take(best->ids);
      if (!taken) return Fail(taken.error());
      const auto now = Clock::now();
      for (const ScheduledToken& token : *taken) {
        if (Status received = Receive(token, now); !received) return Fail(received.error());
      }
      if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
    }
    served_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(served_);
  }

 private:
  /// The next request, if there is one left. The scheduler numbers them as they come.
  Status Send(Clock::time_point now) {
    if (sent_ == requests_.size()) return {};
    const Request& request = requests_[sent_];
    last_[sent_++] = {now, false};
    served_.prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
    const auto added = scheduler_.Add(request.prompt, request.tokens);
    if (!added) return Fail(added.error());
    return {};
  }
  Status Receive(const ScheduledToken& token, Clock::time_point now) {
    Last& last = last_[static_cast<std::size_t>(token.sequence)];
    const double took = std::chrono::duration<double>(now - last.at).count();
    (last.generates ? served_.between : served_.first).push_back(took);
    last = {now, true};
    ++served_.generated;
    return token.last ? Send(now) : Status();
  }

  struct Last {
    Clock::time_point at;  ///< of the last token, or of the request
    bool generates = false;
  };
  const std::vector<Request>& requests_;
  BatchScheduler scheduler_;
  std::vector<Last> last_;
  std::size_t sent_ = 0;
  Served served_;
};

/// The runs with one way to schedule.
struct Way {
  const char* name;
  bool mixed;
  std::vector<Served> runs;
};

Result<Served> RunOnce(const LoadedModel& loaded, const std::vector<Request>& requests,
                       const BenchServeOptions& options, bool mixed) {
  Session& session = *loaded.session;
  auto scheduler = BatchScheduler::Create({.slots = options.sequences,
                                           .max_rows = session.max_rows(),
                                           .context = session.context(),
                                           .mixed = mixed});
  if (!scheduler) return Fail(scheduler.error());
  return Clients(requests, std::move(*scheduler)).Serve(session, options.sequences);
}

/// All requests once for warming up, then `repeat` times, each way in turn.
Status RunAll(const LoadedModel& loaded, const BenchServeOptions& options,
              const std::vector<Request>& requests, std::vector<Way>& ways) {
  Progress bar("serving");
  const auto total = static_cast<double>(ways.size()) * (options.repeat + 1);
  int done = 0;
  for (int i = 0; i <= options.repeat; ++i) {
    for (Way& way : ways) {
      bar.Show(done++ / total, i == 0 ? "warming up" : way.name);
      Result<Served> served = RunOnce(loaded, requests, options, way.mixed);
      if (!served) return Fail(served.error());
      if (i > 0) way.runs.push_back(std::move(*served));
    }
  }
  return {};
}

/// The q-th part of all values from below, 0 of none.
double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

/// What is reported of a way: medians over the runs, of waits over all tokens of all runs.
struct Summary {
  std::vector<double> generated_per_second;
  double total_per_second = 0, rows_per_pass = 0, passes = 0;
  std::vector<double> first_ms, between_ms;

  explicit Summary(const Way& way) {
    std::vector<double> total;
    for (const Served& run : way.runs) {
      const auto generated = static_cast<double>(run.generated);
      generated_per_second.push_back(generated / run.seconds);
      total.push_back((generated + static_cast<double>(run.prompt_tokens)) / run.seconds);
      for (const double seconds : run.first) first_ms.push_back(1e3 * seconds);
      for (const double seconds : run.between) between_ms.push_back(1e3 * seconds);
    }
    total_per_second = Median(total);
    passes = static_cast<double>(way.runs.front().passes);
    rows_per_pass = static_cast<double>(way.runs.front().rows) / passes;
  }
};

void Print(const LoadedModel& loaded, const BenchServeOptions& options,
           const std::vector<Way>& ways, const ModelFloor& floor, const LeastPasses& least) {
  const ModelArguments& model = options.model;
  Report report;
  report.Set("model", model.synth.empty() ? model.path : model.synth + " " + model.quant)
      .Set("name", loaded.model->config().name)
      .Set("device", loaded.context->device_spec().ClassId())
      .Set("threads", loaded.context->executor().workers())
      .Set("sequences", options.sequences)
      .Set("requests", options.requests)
      .Set("prompt", options.prompt)
      .Set("generate", options.generate)
      .Set("max_rows", loaded.session->max_rows())
      .Set("repeat", options.repeat)
      .Set("floor_passes", least.passes)
      .Set("floor_bytes", floor.PassBytes(least))
      .Set("floor_read_gb_s", floor.PassGbS(least))
      .Array("rows");
  floor.SetRates(report);
  const double row_floor = least.logits_rows / floor.Seconds(least);
  Table table({"prompts", "generated tok/s", "min", "max", "floor", "of floor", "all tok/s",
               "rows a pass", "first ms", "95 %", "next ms", "95 %", "99 %"});
  for (const Way& way : ways) {
    const Summary s(way);
    const auto [min, max] =
        std::minmax_element(s.generated_per_second.begin(), s.generated_per_second.end());
    Report line;
    line.Set("prompts", way.name)
        .Set("tok_s_median", Median(s.generated_per_second))
        .Set("tok_s_min", *min)
        .Set("tok_s_max", *max)
        .Set("floor_tok_s", row_floor)
        .Set("all_tok_s_median", s.total_per_second)
        .Set("passes", s.passes)
        .Set("rows_per_pass", s.rows_per_pass)
        .Set("first_ms_median", Quantile(s.first_ms, 0.5))
        .Set("first_ms_p95", Quantile(s.first_ms, 0.95))
        .Set("next_ms_median", Quantile(s.between_ms, 0.5))
        .Set("next_ms_p95", Quantile(s.between_ms, 0.95))
        .Set("next_ms_p99", Quantile(s.between_ms, 0.99));
    report.Append("rows", std::move(line));
    const auto digits = [](double value) { return fmt::format("{:.1f}", value); };
    table.Row({way.name, digits(Median(s.generated_per_second)), digits(*min), digits(*max),
               digits(row_floor), OfFloor(Median(s.generated_per_second), row_floor),
               digits(s.total_per_second), digits(s.rows_per_pass),
               digits(Quantile(s.first_ms, 0.5)), digits(Quantile(s.first_ms, 0.95)),
               fmt::format("{:.2f}", Quantile(s.between_ms, 0.5)),
               fmt::format("{:.2f}", Quantile(s.between_ms, 0.95)),
               fmt::format("{:.2f}", Quantile(s.between_ms, 0.99))});
  }
  if (options.common.json) {
    Out(report.Text() + "\n");
    return;
  }
  Out(fmt::format("{} requests of about {} + {} tokens, {} at a time, passes of up to {} rows\n",
                  options.requests, options.prompt, options.generate, options.sequences,
                  loaded.session->max_rows()));
  Out(table.Text());
  const ModelFloor::Named read[] = {{fmt::format("{:.0f} passes at least", least.passes), least}};
  Out(floor.Text(read));
}

}  // namespace

int BenchServe(const BenchServeOptions& given) {
  BenchServeOptions options = given;
  if (options.model.path.empty() && options.model.synth.empty())
    return Usage("give a GGUF file, or --synth and a preset", "bench serve");
  if (!options.model.synth.empty()) {
    const auto synth = ParseSynth(options.model.synth, options.model.quant, options.model.seed);
    if (!synth) return Usage(synth.error().message, "bench serve");
  }
  if (options.requests == 0) options.requests = 2 * options.sequences;
  options.model.batch_rows = std::max(options.model.batch_rows, options.sequences);
  if (options.model.context == 0) options.model.context = LongestSequence(options);
  Result<LoadedModel> loaded = LoadModel(options.common, options.model, options.sequences);
  if (!loaded) return ExitFor(loaded.error());
  std::vector<Way> ways = {{"beside decodes", true, {}}, {"alone", false, {}}};
  const std::vector<Request> requests = MakeRequests(options, loaded->model->config().vocab);
  const LeastPasses least = LeastOf(requests, options.sequences);
  ModelFloor floor(*loaded, options.model.activations);
  floor.Expect(least);
  floor.Measure();
  if (Status ran = RunAll(*loaded, options, requests, ways); !ran) return ExitFor(ran.error());
  floor.Measure();
  loaded->compiling->Summarise(options.model.path);
  Print(*loaded, options, ways, floor, least);
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
