#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "bench_products.h"
#include "bench_profile.h"
#include "console.h"
#include "machine_floor.h"
#include "report.h"
#include "tilewright/hand_over.h"
#include "tilewright/read_floor.h"
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

/// The minimum cost of a forward pass.
struct Floor : MachineRates {
  Peaks peaks;                            ///< of a CPU, of every precision
  std::map<double, double> read_seconds;  ///< by bytes, where they were measured
  double weight_bytes = 0;                ///< read by a pass
  double row_ops = 0;                     ///< of the layers, for one row
  double logits_ops = 0;                  ///< of the output projection, for one row
  double kv_bytes_position = 0;           ///< of one position of one sequence
  std::vector<double> hand_over_ns;       ///< of a CPU, before and after the runs

  /// Tokens per second for `batch` prompts of `tokens` tokens each, limited by the arithmetic of
  /// the projections (without attention) and by reading the weights once per prompt.
  double Prompt(int tokens, int batch) const {
    const double ops = batch * (row_ops * tokens + logits_ops);
    const double seconds = std::max(ops / (peak.giga_ops * 1e9), batch * ReadSeconds(weight_bytes));
    return seconds > 0 ? batch * tokens / seconds : 0;
  }
  /// Tokens per second for `batch` sequences that grow from `depth` by `tokens`: each step reads the
  /// weights once and the KV cache of every sequence at its average length.
  double Decode(int depth, int tokens, int batch) const {
    const double ops = batch * (row_ops + logits_ops);
    const double seconds =
        std::max(ReadSeconds(DecodeBytes(depth, tokens, batch)), ops / (peak.giga_ops * 1e9));
    return seconds > 0 ? batch / seconds : 0;
  }
  double DecodeBytes(int depth, int tokens, int batch) const {
    const double length = depth + (tokens + 1) / 2.0;
    return std::floor(weight_bytes + batch * kv_bytes_position * length);
  }
  double ReadSeconds(double bytes) const {
    const auto measured = read_seconds.find(bytes);
    return measured != read_seconds.end() ? measured->second : bytes / (read_gb_s * 1e9);
  }
};

/// Multiplications and additions for one row with all matrices of the set, of experts with those that
/// it uses.
double RowOps(const WeightSet& weights, const ModelConfig& config) {
  double elements = 0;
  for (const Weight& weight : weights.all()) {
    if (weight.op == TensorOp::kNone) continue;
    const bool experts = weight.view.shape[2] > 1;
    const double share = experts ? static_cast<double>(config.experts_used) / config.experts : 1;
    elements += share * static_cast<double>(weight.view.elements());
  }
  return 2 * elements;
}

/// The precision of the multiplications that `activations` allows for these weights.
Precision PeakPrecision(const Model& model, Precision activations) {
  if (activations != Precision::kAuto) return activations;
  DataType type = DataType::kF32;
  if (!model.blocks().empty()) {
    const WeightSet& block = model.blocks()[0];
    const bool sparse = model.config().experts > 0;
    type = block[sparse ? WeightRole::kExpertDown : WeightRole::kDown].view.dtype;
  }
  if (GetTypeInfo(type).block_quantised) return Precision::kI8;
  return type == DataType::kBF16 ? Precision::kBF16 : Precision::kF32;
}

/// What this machine can do now. Taken before and after the runs, and the better of the two counts,
/// since a neighbour on the host may have taken a share. What a token reads is read as it is by the
/// bench, again and again by the same threads: a model's weights may stay in the last-level cache.
void MeasureMachine(const LoadedModel& loaded, Precision activations, Floor& floor) {
  const DeviceSpec& device = loaded.context->device_spec();
  if (device.kind == DeviceKind::kCuda) {
    // Bound by what the board's clocks and units can do.
    floor.read_gb_s = device.read_gb_s;
    floor.peak = {device.bf16_gflop_s, "bf16 on tensor cores"};
    return;
  }
  Executor& executor = loaded.context->executor();
  floor.read_gb_s = std::max(floor.read_gb_s, MeasureReadBandwidth(executor));
  floor.hand_over_ns.push_back(MeasureHandOverNs(executor));
  const Peaks now = MeasurePeaks(device, executor);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].giga_ops > floor.peaks[i].giga_ops) floor.peaks[i] = now[i];
  }
  floor.peak = PeakOf(floor.peaks, PeakPrecision(*loaded.model, activations));
  for (auto& [bytes, seconds] : floor.read_seconds) {
    const double again = MeasureReadSeconds(executor, static_cast<std::int64_t>(bytes));
    if (again > 0 && again < seconds) seconds = again;
  }
}

Floor MakeFloor(const LoadedModel& loaded, const Lists& lists, int depth) {
  Floor floor;
  const Model& model = *loaded.model;
  floor.weight_bytes = static_cast<double>(model.bytes_per_token());
  for (const WeightSet& block : model.blocks()) floor.row_ops += RowOps(block, model.config());
  floor.logits_ops = RowOps(model.globals(), model.config());
  floor.kv_bytes_position = static_cast<double>(loaded.session->kv_bytes_per_position());
  if (loaded.context->device_spec().kind != DeviceKind::kCpu) return floor;
  const auto measure = [&](double bytes) {
    floor.read_seconds.emplace(bytes, std::numeric_limits<double>::infinity());
  };
  if (!lists.prompts.empty()) measure(floor.weight_bytes);
  for (const std::int32_t batch : lists.batches)
    for (const std::int32_t tokens : lists.generated)
      if (tokens > 0) measure(floor.DecodeBytes(depth, tokens, batch));
  return floor;
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

  double FloorOf(const Floor& floor) const {
    return prompt ? floor.Prompt(tokens, batch) : floor.Decode(depth, tokens, batch);
  }
  /// What a step of this row must read at least.
  double BytesOf(const Floor& floor) const {
    return prompt ? floor.weight_bytes : floor.DecodeBytes(depth, tokens, batch);
  }
};

Result<std::vector<ResultRow>> RunAll(const LoadedModel& loaded, const Lists& lists,
                                      const BenchModelOptions& options) {
  Bench bench(loaded, options.depth, options.repeat);
  std::vector<ResultRow> rows;
  const double total =
      static_cast<double>((lists.prompts.size() + lists.generated.size()) * lists.batches.size());
  Progress bar("measuring");
  const auto add = [&](const char* kind, int tokens, int batch, bool prompt) -> Status {
    if (tokens == 0) return {};
    std::string test = fmt::format("{}{}", kind, tokens);
    if (options.depth > 0) test += fmt::format(" @ d{}", options.depth);
    bar.Show(static_cast<double>(rows.size()) / total, test);
    Result<std::vector<double>> rates =
        prompt ? bench.Prompt(tokens, batch) : bench.Decode(tokens, batch);
    if (!rates) return Fail(rates.error());
    rows.push_back(
        {test, options.depth, tokens, batch, prompt, std::move(*rates), std::nullopt, {}});
    if (!options.profile) return {};
    Result<StepTimes> steps = bench.Profile(tokens, batch, prompt);
    if (!steps) return Fail(steps.error());
    rows.back().steps = std::move(*steps);
    if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
    if (prompt) return {};
    const Result<ProductChain> products = TimeProducts(loaded, batch, options.repeat);
    if (!products) return Fail(products.error());
    rows.back().products = *products;
    if (Interrupted()) return Fail(ErrorCode::kCancelled, "interrupted");
    return {};
  };
  for (int batch : lists.batches) {
    if (Status filled = bench.Fill(batch); !filled) return Fail(filled.error());
    for (int tokens : lists.prompts) {
      if (Status status = add("pp", tokens, batch, true); !status) return Fail(status.error());
    }
    for (int tokens : lists.generated) {
      if (Status status = add("tg", tokens, batch, false); !status) return Fail(status.error());
    }
  }
  return rows;
}

void Print(const LoadedModel& loaded, const std::vector<ResultRow>& rows, const Floor& floor,
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
      .Set("read_gb_s", floor.read_gb_s)
      .Set("peak_gop_s", floor.peak.giga_ops)
      .Set("peak_instruction", floor.peak.instruction)
      .Set("depth", options.depth)
      .Set("repeat", options.repeat)
      .Array("rows");
  const bool cpu = device.kind == DeviceKind::kCpu;
  if (cpu) {
    report.Set("peaks", PeaksReport(floor.peaks))
        .Set("hand_over_ns_before", floor.hand_over_ns.front())
        .Set("hand_over_ns_after", floor.hand_over_ns.back());
  }
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
        .Set("floor_bytes", row.BytesOf(floor))
        .Set("floor_read_gb_s", row.BytesOf(floor) / floor.ReadSeconds(row.BytesOf(floor)) * 1e-9);
    if (row.steps) line.Set("steps", ReportSteps(*row.steps, floor));
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
               fmt::format("{:.1f}", row_floor),
               row_floor > 0 ? fmt::format("{:.0f} %", 100 * median / row_floor) : "-"});
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
  Out(fmt::format("floor: {:.1f} GB/s read, {:.0f} Gop/s {}, {}\n", floor.read_gb_s,
                  floor.peak.giga_ops, floor.peak.instruction,
                  cpu ? "measured in this run" : "by the board's clocks"));
  if (cpu) {
    for (const ResultRow& row : rows) {
      const double bytes = row.BytesOf(floor);
      Out(fmt::format("{}, batch {}: {:.1f} MB read again and again at {:.1f} GB/s\n", row.test,
                      row.batch, bytes * 1e-6, bytes / floor.ReadSeconds(bytes) * 1e-9));
    }
    Out(fmt::format("peaks: {}\n", PeaksText(floor.peaks)));
    if (floor.hand_over_ns.front() > 0 && floor.hand_over_ns.back() > 0) {
      Out(fmt::format(
          "a worker sees what another wrote after {:.0f} ns before the runs, {:.0f} ns after\n",
          floor.hand_over_ns.front(), floor.hand_over_ns.back()));
    }
  }
  for (const ChainVerdict& verdict : verdicts) {
    Out(
        fmt::format("a pass of {} rows: {:.1f} us as separate kernels, {:.1f} us with chains of "
                    "products: {} from then on\n",
                    verdict.rows, verdict.separate_us, verdict.chained_us,
                    verdict.chained() ? "chained" : "separate"));
  }
  for (const ResultRow& row : rows) {
    if (row.steps) PrintSteps(row.test, row.batch, *row.steps, floor);
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
  const Precision activations =
      ParseActivations(options.model.activations, *loaded->context).value().precision;
  Floor floor = MakeFloor(*loaded, *lists, options.depth);
  MeasureMachine(*loaded, activations, floor);
  Result<std::vector<ResultRow>> rows = RunAll(*loaded, *lists, options);
  if (!rows) return ExitFor(rows.error());
  MeasureMachine(*loaded, activations, floor);
  loaded->compiling->Summarise(options.model.path);
  Print(*loaded, *rows, floor, options);
  return Finish(kExitOk);
}

}  // namespace tilewright::cli
