#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "model/synth/weights.h"
#include "tilewright/executor.h"
#include "tilewright/gguf.h"
#include "tilewright/model.h"
#include "tilewright/synth.h"

namespace tilewright::synth {

/// What a synthetic file holds.
struct Plan {
  GgufWriter writer;
  std::vector<WeightRole> roles;  // by index in writer.tensors()
  SynthReport report;
};

/// Gives each tensor of a plan its values: pieces from random numbers of their own, several at once
/// on threads that sleep between the calls. The values depend on the seed, the tensor and the place
/// in it alone.
class WeightSource {
 public:
  /// All three must outlive the source. The values are the same for any number of threads.
  WeightSource(const SynthOptions& options, const Plan& plan, const SynthProgress& progress,
               int threads = std::min(DefaultThreads(), 8));

  /// Gives `sink` the bytes of a tensor, on the calling thread. Errors: the sink's; kCancelled where
  /// `progress` returns false.
  Status Emit(std::size_t index, const GgufWriter::Sink& sink);

 private:
  std::uint64_t SeedOf(std::size_t tensor, std::size_t piece) const;
  const WeightMaker& MakerOf(DataType type);

  const SynthOptions& options_;
  const Plan& plan_;
  const SynthProgress& progress_;
  std::unique_ptr<Executor> threads_;
  std::vector<std::byte> pieces_;  // made at once
  std::map<DataType, std::unique_ptr<WeightMaker>> makers_;
  std::uint64_t done_ = 0;
};

}  // namespace tilewright::synth
