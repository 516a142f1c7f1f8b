#include <algorithm>
#include <cmath>
#include <utility>

#include "core/text.h"
#include "engine/rope_angles.h"

namespace tilewright::rope {
namespace {

constexpr double kTwoPi = 6.283185307179586476925;

/// Llama 3.1 stretches long wavelengths by `scaling_factor` so that a longer context meets angles
/// seen in training, keeps short ones, and blends linearly in original_context / wavelength between
/// (Meta's llama-models, apply_scaling).
double ScaleLlama3(const RopeParams& p, double frequency) {
  const double wavelengths = p.original_context * frequency / kTwoPi;  // in the original context
  if (wavelengths > static_cast<double>(p.high_freq_factor)) return frequency;
  const double slow = frequency / static_cast<double>(p.scaling_factor);
  if (wavelengths < static_cast<double>(p.low_freq_factor)) return slow;
  const double low = p.low_freq_factor, high = p.high_freq_factor;
  const double keep = (wavelengths - low) / (high - low);
  return (1 - keep) * slow + keep * frequency;
}

/// The values are there when it returns.
template <class T>
Status Place(const std::vector<T>& values, const DeviceMemory& memory, Device& device,
             Stream stream) {
  const std::size_t bytes = values.size() * sizeof(T);
  if (Status status = device.Upload(memory.data(), values.data(), bytes, stream); !status)
    return status;
  return device.Synchronize(stream);
}

}  // namespace

double Frequency(const RopeParams& params, const float* factors, int i) {
  double frequency = std::pow(static_cast<double>(params.base), -2.0 * i / params.dims);
  if (factors != nullptr) frequency /= static_cast<double>(factors[i]);
  if (params.scaling_factor > 0) frequency = ScaleLlama3(params, frequency);
  return frequency * static_cast<double>(params.freq_scale);
}

void TurnHead(const RopeParams& params, const float* factors, double position,
              std::span<double> head) {
  const int half = params.dims / 2;
  const bool adjacent = params.mode == RopeMode::kInterleaved;
  for (int i = 0; i < half; ++i) {
    double& x0 = head[static_cast<std::size_t>(adjacent ? 2 * i : i)];
    double& x1 = head[static_cast<std::size_t>(adjacent ? 2 * i + 1 : i + half)];
    const double angle = position * Frequency(params, factors, i);
    const double c = std::cos(angle), s = std::sin(angle);
    const double y0 = x0 * c - x1 * s;
    x1 = x0 * s + x1 * c;
    x0 = y0;
  }
}

std::vector<std::uint64_t> TurnsOf(std::span<const double> frequencies) {
  std::vector<std::uint64_t> turns;
  turns.reserve(frequencies.size());
  for (const double frequency : frequencies) {
    const double whole = frequency / kTwoPi;
    const double fraction = whole - std::floor(whole);  // 1 if `whole` is just below an integer
    turns.push_back(fraction < 1 ? static_cast<std::uint64_t>(std::ldexp(fraction, 64)) : 0);
  }
  return turns;
}

Status CheckParams(const RopeParams& params, const float* factors) {
  const auto refuse = [](std::string message) {
    return Fail(ErrorCode::kInvalidArgument, "rope: " + message);
  };
  if (params.dims < 2 || params.dims % 2 != 0 || params.dims > kMaxDims) {
    return refuse(Format("dims = {}, must be even, 2 to {}", params.dims, kMaxDims));
  }
  if (!(params.base > 0) || !std::isfinite(params.base))
    return refuse(Format("base = {}, must be above 0", params.base));
  if (!std::isfinite(params.freq_scale))
    return refuse(Format("freq_scale = {}", params.freq_scale));
  if (!(params.scaling_factor >= 0))
    return refuse(Format("scaling_factor = {}, must be 0 or more", params.scaling_factor));
  if (params.scaling_factor > 0) {
    if (factors != nullptr) return refuse("frequency factors and a scaling factor at once");
    if (!(params.high_freq_factor > params.low_freq_factor)) {
      return refuse(Format("high_freq_factor = {}, must be above low_freq_factor = {}",
                           params.high_freq_factor, params.low_freq_factor));
    }
  }
  for (int i = 0; factors != nullptr && i < params.dims / 2; ++i) {
    if (factors[i] == 0 || !std::isfinite(factors[i])) {
      return refuse(Format("factors[{}] = {}, must be finite and not 0", i, factors[i]));
    }
  }
  return {};
}

Result<Table> Table::Make(const RopeParams& params, const float* factors, std::int64_t positions) {
  return Make(params, factors, positions, HostDevice(), HostDevice().default_stream());
}

Result<Table> Table::Make(const RopeParams& params, const float* factors, std::int64_t positions,
                          Device& device, Stream stream) {
  if (Status status = CheckParams(params, factors); !status) return Fail(status.error());
  if (positions < 0)
    return Fail(ErrorCode::kInvalidArgument, Format("rope: a table of {} positions", positions));
  Table table;
  table.params_ = params;
  table.positions_ = positions;
  for (int i = 0; i < params.dims / 2; ++i)
    table.frequencies_.push_back(Frequency(params, factors, i));
  const std::vector<std::uint64_t> turns = TurnsOf(table.frequencies_);
  Result<DeviceMemory> fractions = device.Allocate(turns.size() * sizeof turns[0]);
  if (!fractions) return Fail(fractions.error());
  table.turns_ = std::move(*fractions);
  if (Status status = Place(turns, table.turns_, device, stream); !status)
    return Fail(status.error());
  const auto floats = static_cast<std::size_t>(positions * params.dims);
  Result<DeviceMemory> rows = device.Allocate(floats * sizeof(float));
  if (!rows) return Fail(rows.error());
  table.rows_ = std::move(*rows);
  if (floats == 0) return table;
  std::vector<float> staged(device.host_accessible() ? 0 : floats);
  float* out = device.host_accessible() ? table.rows_.as<float>() : staged.data();
  for (std::int64_t p = 0; p < positions; ++p) table.Compute(p, out + p * params.dims);
  if (device.host_accessible()) return table;
  if (Status status = Place(staged, table.rows_, device, stream); !status)
    return Fail(status.error());
  return table;
}

void Table::Compute(std::int64_t position, float* out) const {
  const std::size_t half = frequencies_.size();
  for (std::size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    out[i] = static_cast<float>(std::cos(angle));
    out[half + i] = static_cast<float>(std::sin(angle));
  }
}

Result<const Table*> TableSet::Find(const RopeParams& params, const TensorView& factors,
                                    std::int64_t positions, Device& device, Stream stream) {
  const std::int32_t dims = params.dims;
  if (dims < 2 || dims > kMaxDims) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("rope: dims = {}, must be 2 to {}", dims, kMaxDims));
  }
  const auto half = static_cast<std::size_t>(dims / 2);
  float values[kMaxDims / 2];
  const std::span<const float> read(values, factors.data != nullptr ? half : 0);
  if (!read.empty()) {
    if (Status s = device.Download(values, factors.data, read.size_bytes(), stream); !s)
      return Fail(s.error());
    if (Status s = device.Synchronize(stream); !s) return Fail(s.error());
  }
  for (const Entry& known : entries_) {
    if (known.device == &device && known.table.params() == params &&
        known.table.positions() >= positions && std::ranges::equal(known.factors, read))
      return &known.table;
  }
  Result<Table> table =
      Table::Make(params, read.empty() ? nullptr : values, positions, device, stream);
  if (!table) return Fail(table.error());
  entries_.push_back({&device, {read.begin(), read.end()}, std::move(*table)});
  return &entries_.back().table;
}

}  // namespace tilewright::rope
