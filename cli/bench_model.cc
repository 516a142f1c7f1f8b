#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <vector>

#include "bench_products.h"
#include "bench_profile.h"
#include "console.h"
#include "model_floor.h"
#include "report.h"
#include "verbs.h"

namespace tilewright::cli {
namespace {

struct Lists {
  std::vector<std::int32_t> prompts, generated, batches;
};

Result<Lists> ParseLists(const BenchModelOptions& options) {
  Result<std::vector<std::int32_t>> prompts = ParseIntegers(options.prompts, "-p");
  Result<std::vector<std::int32_t>> generated = ParseIntegers(options.generated, "-n");
  Result<std::vector<std::int32_t>> batches = ParseIntegers(options.batches, "--batch", 1);
  if (!prompts) return Fail(prompts.error());
  if (!generated) return Fail(generated.error());
  if (!batches) return Fail(batches.error());
  return Lists{std::move(*prompts), std::move(*generated), std::move(*batches)};
}

class Bench {
 public:
  Bench(const LoadedModel& loaded, int depth, int repeat)
      : session_(*loaded.session),
        vocab_(loaded.model->config().vocab),
        depth_(depth),
        repeat_(repeat) {}

  /// Fills the positions of `batch` sequences below the depth.
  Status Fill(int batch) {
    for (int slot = 0; slot < batch && depth_ > 0; ++slot) {
      const auto filled = session_.Prefill(RandomTokens(depth_), slot, 0, &Interrupted());
      if (!filled) return Fail(filled.error());
    }
    return {};
  }

  /// Tokens per second of each repetition, after one for warming up.
  Result<std::vector<double>> Prompt(int tokens, int batch) {
    return Repeat([&]() -> Result<double> {
      for (int slot = 0; slot < batch; ++slot) {
        const std::vector<TokenId> ids = RandomTokens(tokens);
        const auto logits = session_.Prefill(ids, slot, depth_, &Interrupted());
        if (!logits) return Fail(logits.error());
      }
      return static_cast<double>(tokens) * batch;
    });
  }

  Result<std::vector<double>> Decode(int tokens, int batch) {
    return Repeat([&]() -> Result<double> {
      // A token is generated once the best one is known, and no more than that is read back. Where the
      // device works beside the host it goes on with that token by itself, as generating text does.
      const bool ahead = session_.asynchronous();
      std::vector<Row> rows = DecodeRows(batch, 0);
      if (ahead) {
        if (Status s = session_.Submit(rows); !s) return Fail(s.error());
      }
      for (int i = 0; i < tokens; ++i) {
        if (Status s = ahead ? NextAhead(rows, i + 1 < tokens) : Next(batch, i); !s)
          return Fail(s.error());
        if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
      }
      return static_cast<double>(tokens) * batch;
    });
  }

  /// The steps of a pass of a prompt, or of a token of each sequence.
  Result<StepTimes> Profile(int tokens, int batch, bool prompt) {
    return session_.TimePass(
        prompt ? PromptRows(std::min(tokens, session_.max_rows())) : DecodeRows(batch, 0), repeat_);
  }

 private:
  Status Next(int batch, int generated) {
    const Result<TopLogits> best = session_.ForwardTop(DecodeRows(batch, generated), 1);
    if (!best) return Fail(best.error());
    return {};
  }
  /// Receives the pass over `rows`, once the one behind it has been submitted.
  Status NextAhead(std::vector<Row>& rows, bool more) {
    for (Row& row : rows) row = {kBestOfLast, row.position + 1, row.slot, true};
    if (more) {
      if (Status s = session_.Submit(rows); !s) return s;
    }
    const auto best = session_.Receive();
    if (!best) return Fail(best.error());
    return {};
  }
  std::vector<Row> DecodeRows(int batch, int generated) {
    std::vector<Row> rows;
    int slot = 0;
    for (const TokenId id : RandomTokens(batch))
      rows.push_back({id, depth_ + generated, slot++, true});
    return rows;
  }
  std::vector<Row> PromptRows(int tokens) {
    std::vector<Row> rows;
    int position = depth_;
    for (const TokenId id : RandomTokens(tokens)) rows.push_back({id, position++, 0, false});
    rows.back().logits = true;
    return rows;
  }

  std::vector<TokenId> RandomTokens(int count) {
    std::vector<TokenId> ids(static_cast<std::size_t>(count));
    for (TokenId& id : ids) id = static_cast<TokenId>(random_() % static_cast<unsigned>(vocab_));
    return ids;
  }

  /// `once` returns how many tokens it ran.
  template <class F>
  Result<std::vector<double>> Repeat(F once) {
    std::vector<double> rates;
    for (int i = 0; i <= repeat_; ++i) {
      const auto start = std::chrono::steady_clock::now();
      Result<double> tokens = once();
      if (!tokens) return Fail(tokens.error());
      if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (i > 0) rates.push_back(*tokens / took.count());
    }
    return rates;
  }

  Session& session_;
  std::int32_t vocab_;
  int depth_, repeat_;
  std::mt19937 random_{1};
};

struct ResultRow {
  std::string test;
  int depth = 0, tokens = 0, batch = 1;
  bool prompt = false;
  std::vector<double> rates;
  std::optional<StepTimes> steps;
  ProductChain products;  ///< with `steps`, of decoding

  double FloorOf(const ModelFloor& floor) const {
    const double seconds = floor.Seconds(least());
    return seconds > 0 ? batch * (prompt ? tokens : 1) / seconds : 0;
  }
  /// Each prompt in one pass, or one token of all sequences, whose caches are as long as on average.
  LeastPasses least() const {
    const double rows = batch;
    if (prompt) return {.passes = rows, .rows = rows * tokens, .logits_rows = rows, .positions = 0};
    const double length = depth + (tokens + 1) / 2.0;
    return {.passes = 1, .rows = rows, .logits_rows = rows, .positions = rows * length};
  }
};

/// What is to be measured, in order.
std::vector<ResultRow> RowsOf(const Lists& lists, int depth) {
  std::vector<ResultRow> rows;
  const auto add = [&](const char* kind, int tokens, int batch, bool prompt) {
    if (tokens == 0) return;
    std::string test = fmt::format("{}{}", kind, tokens);
    if (depth > 0) test += fmt::format(" @ d{}", depth);
    rows.push_back({std::move(test), depth, tokens, batch, prompt, {}, std::nullopt, {}});
  };
  for (const int batch : lists.batches) {
    for (const int tokens : lists.prompts) add("pp", tokens, batch, true);
    for (const int tokens : lists.generated) add("tg", tokens, batch, false);
  }
  return rows;
}

Status Measure(const LoadedModel& loaded, const BenchModelOptions& options, Bench& bench,
               ResultRow& row) {
  Result<std::vector<double>> rates =
      row.prompt ? bench.Prompt(row.tokens, row.batch) : bench.Decode(row.tokens, row.batch);
  if (!rates) return Fail(rates.error());
  row.rates = std::move(*rates);
  if (!options.profile) return {};
  Result<StepTimes> steps = bench.Profile(row.tokens, row.batch, row.prompt);
  if (!steps) return Fail(steps.error());
  row.steps = std::move(*steps);
  if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
  if (row.prompt) return {};
  const Result<ProductChain> products = TimeProducts(loaded, row.batch, options.repeat);
  if (!products) return Fail(products.error());
  row.products = *products;
  if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
  return {};
}

Status RunAll(const LoadedModel& loaded, const BenchModelOptions& options,
              std::vector<ResultRow>& rows) {
  Bench bench(loaded, options.depth, options.repeat);
  Progress bar("measuring");
  int filled = 0;  // sequences
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bar.Show(static_cast<double>(i) / static_cast<double>(rows.size()), rows[i].test);
    if (rows[i].batch > filled) {
      if (Status status = bench.Fill(rows[i].batch); !status) return status;
      filled = rows[i].batch;
    }
    if (Status status = Measure(loaded, options, bench, rows[i]); !status) return status;
  }
  return {};
}

void Print(const LoadedModel& loaded, const std::vector<ResultRow>& rows, const ModelFloor& floor,
           const BenchModelOptions& options) {
  const DeviceSpec& device = loaded.context->device_spec();
  Report report;
  const ModelArguments& model = options.model;
  report.Set("model", model.synth.empty() ? model.path : model.synth + " " + model.quant)
      .Set("name", loaded.model->config().name)
      .Set("parameters", loaded.model->parameters())
      .Set("device", device.ClassId())
      .Set("threads", loaded.context->executor().workers())
      .Set("policy", MeasurePolicyName(loaded.context->scope().policy))
      .Set("depth", options.depth)
      .Set("repeat", options.repeat)
      .Array("rows");
  floor.SetRates(report);
  Table table({"test", "batch", "tok/s", "min", "max", "floor", "of floor"});
  for (const ResultRow& row : rows) {
    const double median = Median(row.rates), row_floor = row.FloorOf(floor);
    const auto [min, max] = std::minmax_element(row.rates.begin(), row.rates.end());
    Report line;
    line.Set("test", row.test)
        .Set("batch", row.batch)
        .Set("tok_s_median", median)
        .Set("tok_s_min", *min)
        .Set("tok_s_max", *max)
        .Set("floor_tok_s", row_floor)
        .Set("floor_bytes", floor.PassBytes(row.least()))
        .Set("floor_read_gb_s", floor.PassGbS(row.least()));
    if (row.steps) line.Set("steps", ReportSteps(*row.steps, floor.rates()));
    if (row.products.products > 0) {
      Report chain;
      chain.Set("products", row.products.products)
          .Set("layers", loaded.model->config().layers)
          .Set("us", row.products.us)
          .Set("bytes", row.products.bytes);
      line.Set("chain", std::move(chain));
    }
    report.Append("rows", std::move(line));
    table.Row({row.test, fmt::format("{}", row.batch), fmt::format("{:.1f}", median),
               fmt::format("{:.1f}", *min), fmt::format("{:.1f}", *max),
               fmt::format("{:.1f}", row_floor), OfFloor(median, row_floor)});
  }
  const std::vector<ChainVerdict> verdicts = loaded.session->chain_verdicts();
  if (!verdicts.empty()) report.Array("chains");
  for (const ChainVerdict& verdict : verdicts) {
    Report line;
    line.Set("rows", verdict.rows)
        .Set("separate_us", verdict.separate_us)
        .Set("chained_us", verdict.chained_us);
    report.Append("chains", std::move(line));
  }
  if (options.common.json) {
    Out(report.Text() + "\n");
    return;
  }
  const auto& name = loaded.model->config().name;
  Out(fmt::format("{} on {}, {} threads\n", name.empty() ? options.model.path : name,
                  device.ClassId(), loaded.context->executor().workers()));
  Out(table.Text());
  std::vector<ModelFloor::Named> read;
  for (const ResultRow& row : rows)
    read.push_back({fmt::format("{}, batch {}", row.test, row.batch), row.least()});
  Out(floor.Text(read));
  for (const ChainVerdict& verdict : verdicts) {
    Out(
        fmt::format("a pass of {} rows: {:.1f} us as separate kernels, {:.1f} us with chains of "
                    "products: {} from then on\n",
                    verdict.rows, verdict.separate_us, verdict.chained_us,
                    verdict.chained() ? "chained" : "separate"));
  }
  for (const ResultRow& row : rows) {
    if (row.steps) PrintSteps(row.test, row.batch, *row.steps, floor.rates());
    const ProductChain& chain = row.products;
    if (chain.products == 0) continue;
    Out(fmt::format(
        "the {} products of the layers alone, one after another: {:.1f} us, {:.0f} GB/s\n",
        chain.products, chain.us, chain.bytes / chain.us / 1e3));
  }
}

}  // namespace

int BenchModel(const BenchModelOptions& given) {
  BenchModelOptions options = given;
  Result<Lists> lists = ParseLists(options);
  if (!lists) return Usage(lists.error().message, "bench model");
  if (options.model.path.empty() && options.model.synth.empty())
    return Usage("give a GGUF file, or --synth and a preset", "bench model");
  if (!options.model.synth.empty()) {
    const auto synth = ParseSynth(options.model.synth, options.model.quant, options.model.seed);
    if (!synth) return Usage(synth.error().message, "bench model");
  }
  std::int32_t longest = 1;
  for (std::int32_t tokens : lists->prompts) longest = std::max(longest, tokens);
  for (std::int32_t tokens : lists->generated) longest = std::max(longest, tokens);
  if (options.model.context == 0) options.model.context = options.depth + longest;
  const int slots = *std::max_element(lists->batches.begin(), lists->batches.end());
  options.model.batch_rows = std::max(options.model.batch_rows, slots);
  Result<LoadedModel> loaded = LoadModel(options.common, options.model, slots);
  if (!loaded) return ExitFor(loaded.error());
  std::vector<ResultRow> rows = RowsOf(*lists, options.depth);
  ModelFloor floor(*loaded, options.model.activations);
  for (const ResultRow& row : rows) floor.Expect(row.least());
  floor.Measure();
  if (Status ran = RunAll(*loaded, options, rows); !ran) return ExitFor(ran.error());
  floor.Measure();
  loaded->compiling->Summarise(options.model.path);
  Print(*loaded, rows, floor, options);
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
