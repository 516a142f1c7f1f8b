#include "model/synth/weight_source.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/random.h"
#include "model/synth/rope_factors.h"

namespace tilewright::synth {
namespace {

using enum WeightRole;

constexpr float kSmallDeviation = 0.05f;

/// Of the biases of experts. Those of gate and up are large, so that some values are clamped.
std::optional<float> ExpertBiasDeviation(WeightRole role) {
  if (role == kExpertGateBias || role == kExpertUpBias) return 3.0f;
  if (role == kExpertDownBias) return kSmallDeviation;
  return std::nullopt;
}

/// Vectors that are added to something.
bool IsAboutZero(WeightRole role) {
  return role == kQBias || role == kKBias || role == kVBias || role == kAttnOutputBias ||
         role == kRouterBias || role == kSharedRouter;
}

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kPiecesPerThread = 2;

}  // namespace

WeightSource::WeightSource(const SynthOptions& options, const Plan& plan,
                           const SynthProgress& progress, int threads)
    : options_(options),
      plan_(plan),
      progress_(progress),
      threads_(MakeThreadPool(threads, /*spin_us=*/0)),
      pieces_(kPieceBytes * kPiecesPerThread * static_cast<std::size_t>(threads_->workers())) {}

Status WeightSource::Emit(std::size_t index, const GgufWriter::Sink& sink) {
  const GgufTensorSpec& spec = plan_.writer.tensors()[index];
  const WeightRole role = plan_.roles[index];
  if (IsRopeFactors(role)) {
    const std::vector<float> factors = RopeFactors(role, options_.shape);
    return sink(std::as_bytes(std::span(factors)));
  }
  const bool vector = spec.dims == 1;
  const float mean = vector && !IsAboutZero(role) ? 1.0f : 0.0f;  // a norm is about 1
  const float of_matrix = 1.0f / std::sqrt(static_cast<float>(spec.shape[0]));
  const float deviation = ExpertBiasDeviation(role).value_or(vector ? kSmallDeviation : of_matrix);
  const WeightMaker& maker = MakerOf(spec.dtype);
  const std::size_t block = static_cast<std::size_t>(GetTypeInfo(spec.dtype).block_bytes);
  const std::size_t piece = kPieceBytes / block * block;
  const std::size_t at_once = pieces_.size() / kPieceBytes * piece;
  const std::size_t bytes = BytesOf(spec.dtype, spec.shape[0] * spec.shape[1] * spec.shape[2]);
  for (std::size_t at = 0; at < bytes; at += at_once) {
    const std::span<std::byte> made(pieces_.data(), std::min(at_once, bytes - at));
    threads_->Run(static_cast<int>((made.size() + piece - 1) / piece), [&](int i, int) {
      const std::size_t begin = static_cast<std::size_t>(i) * piece;
      Random random(SeedOf(index, at / piece + static_cast<std::size_t>(i)));
      maker.Fill(random, mean, deviation,
                 made.subspan(begin, std::min(piece, made.size() - begin)));
    });
    if (auto status = sink(made); !status) return status;
    done_ += made.size();
    if (progress_ &&
        !progress_(std::min(done_, plan_.report.file_bytes), plan_.report.file_bytes)) {
      return Fail(ErrorCode::kCancelled, "writing the synthetic model was stopped");
    }
  }
  return {};
}

std::uint64_t WeightSource::SeedOf(std::size_t tensor, std::size_t piece) const {
  std::uint64_t mixed = options_.seed;
  mixed = SplitMix64(mixed) + tensor;
  if (piece > 0) mixed = SplitMix64(mixed) + piece;
  return SplitMix64(mixed);
}

const WeightMaker& WeightSource::MakerOf(DataType type) {
  auto& maker = makers_[type];
  if (!maker) maker = std::make_unique<WeightMaker>(type, options_.seed);
  return *maker;
}

}  // namespace tilewright::synth
