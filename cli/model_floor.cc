#include "model_floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tilewright/hand_over.h"
#include "tilewright/read_floor.h"

namespace tilewright::cli {
namespace {

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
  return BestPrecision(type);
}

}  // namespace

ModelFloor::ModelFloor(const LoadedModel& loaded, const std::string& activations)
    : loaded_(loaded),
      precision_(PeakPrecision(*loaded.model,
                               ParseActivations(activations, *loaded.context).value().precision)) {
  const Model& model = *loaded.model;
  for (const WeightSet& block : model.blocks()) row_ops_ += RowOps(block, model.config());
  logits_ops_ = RowOps(model.globals(), model.config());
}

void ModelFloor::Expect(const LeastPasses& least) {
  if (on_cpu()) read_seconds_.emplace(PassBytes(least), std::numeric_limits<double>::infinity());
}

void ModelFloor::Measure() {
  const DeviceSpec& device = loaded_.context->device_spec();
  if (device.kind == DeviceKind::kCuda) {
    // Bound by what the board's clocks and units can do.
    rates_ = {device.read_gb_s, {device.bf16_gflop_s, "bf16 on tensor cores"}};
    return;
  }
  Executor& executor = loaded_.context->executor();
  rates_.read_gb_s = std::max(rates_.read_gb_s, MeasureReadBandwidth(executor));
  hand_over_ns_.push_back(MeasureHandOverNs(executor));
  const Peaks now = MeasurePeaks(device, executor);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].giga_ops > peaks_[i].giga_ops) peaks_[i] = now[i];
  }
  rates_.peak = PeakOf(peaks_, precision_);
  for (auto& [bytes, seconds] : read_seconds_) {
    const double again = MeasureReadSeconds(executor, static_cast<std::int64_t>(bytes));
    if (again > 0 && again < seconds) seconds = again;
  }
}

double ModelFloor::Seconds(const LeastPasses& least) const {
  const double ops = row_ops_ * least.rows + logits_ops_ * least.logits_rows;
  return std::max(ops / (rates_.peak.giga_ops * 1e9), least.passes * ReadSeconds(PassBytes(least)));
}

double ModelFloor::PassBytes(const LeastPasses& least) const {
  const auto position = static_cast<double>(loaded_.session->kv_bytes_per_position());
  return std::floor(static_cast<double>(loaded_.model->bytes_per_token()) +
                    position * least.positions / least.passes);
}

double ModelFloor::PassGbS(const LeastPasses& least) const {
  const double bytes = PassBytes(least);
  return bytes / ReadSeconds(bytes) * 1e-9;
}

double ModelFloor::ReadSeconds(double bytes) const {
  const auto measured = read_seconds_.find(bytes);
  return measured != read_seconds_.end() ? measured->second : bytes / (rates_.read_gb_s * 1e9);
}

void ModelFloor::SetRates(Report& report) const {
  report.Set("read_gb_s", rates_.read_gb_s)
      .Set("peak_gop_s", rates_.peak.giga_ops)
      .Set("peak_instruction", rates_.peak.instruction);
  if (!on_cpu()) return;
  report.Set("peaks", PeaksReport(peaks_))
      .Set("hand_over_ns_before", hand_over_ns_.front())
      .Set("hand_over_ns_after", hand_over_ns_.back());
}

std::string ModelFloor::Text(std::span<const Named> runs) const {
  std::string text = fmt::format("floor: {:.1f} GB/s read, {:.0f} Gop/s {}, {}\n", rates_.read_gb_s,
                                 rates_.peak.giga_ops, rates_.peak.instruction,
                                 on_cpu() ? "measured in this run" : "by the board's clocks");
  if (!on_cpu()) return text;
  for (const auto& [name, least] : runs) {
    text += fmt::format("{}: {:.1f} MB read again and again at {:.1f} GB/s\n", name,
                        PassBytes(least) * 1e-6, PassGbS(least));
  }
  text += fmt::format("peaks: {}\n", PeaksText(peaks_));
  if (hand_over_ns_.front() > 0 && hand_over_ns_.back() > 0) {
    text += fmt::format(
        "a worker sees what another wrote after {:.0f} ns before the runs, {:.0f} ns after\n",
        hand_over_ns_.front(), hand_over_ns_.back());
  }
  return text;
}

std::string OfFloor(double rate, double floor) {
  return floor > 0 ? fmt::format("{:.0f} %", 100 * rate / floor) : "-";
}

}  // namespace tilewright::cli
