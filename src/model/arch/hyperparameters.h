#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tilewright/gguf.h"
#include "tilewright/model.h"

namespace tilewright {

/// Reads the metadata keys of one architecture and keeps the first error, so that the reading code
/// can be a plain list of fields; after an error, values are harmless defaults.
class Hyperparameters {
 public:
  Hyperparameters(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  /// "ARCHITECTURE.block_count" for "block_count".
  std::string Key(std::string_view key) const { return prefix_ + std::string(key); }
  bool Has(std::string_view key) const { return file_.Has(Key(key)); }

  /// A count from 1 to 2^24.
  std::int32_t Count(std::string_view key);
  std::int32_t Count(std::string_view key, std::int32_t absent);
  /// A finite number.
  float Float(std::string_view key, std::optional<float> absent = std::nullopt);
  std::string Text(std::string_view key);

  /// The message is `key` in full followed by `what`, such as " = -1, must be positive".
  void Refuse(ErrorCode code, std::string_view key, std::string_view what);
  void Keep(Error error);
  const std::optional<Error>& error() const { return error_; }
  const GgufFile& file() const { return file_; }

 private:
  const GgufFile& file_;
  std::string prefix_;
  std::optional<Error> error_;
};

/// The keys that decoder-only transformers share: block_count, embedding_length, attention.*,
/// rope.*. Sets all of `config` except architecture, name, rope.mode and what only tensors say.
void ReadTransformer(Hyperparameters& from, ModelConfig& config);
/// The keys rope.scaling.*, for ReadTransformer: sets rope, rope_magnitude and original_context.
void ReadRopeScaling(Hyperparameters& from, ModelConfig& config);
/// How attention is restricted to windows where a file does not say otherwise.
struct WindowDefaults {
  std::int32_t window = 0;  ///< 0: no block has one
  std::int32_t period = 1;  ///< every so many blocks, the last one sees all positions
  float rope_base = 0;      ///< of blocks with a window; 0: as the others
  bool scaled = false;      ///< whether the scaling of RoPE is for them too
};
/// The keys attention.sliding_window, attention.sliding_window_pattern (a period, or a bool for each
/// block) and rope.freq_base_swa. After ReadTransformer.
void ReadSlidingWindow(Hyperparameters& from, const WindowDefaults& absent, ModelConfig& config);
/// A key of a soft cap, 0 or positive.
float ReadSoftcap(Hyperparameters& from, std::string_view key, float absent);
/// What a file with experts need not say.
struct ExpertDefaults {
  bool required = true;   ///< whether a file without experts is an error
  bool normalise = true;  ///< config.normalise_experts, which no key says
  bool shared = false;    ///< whether there is an expert that all rows use
};
/// The keys expert_count, expert_used_count, expert_feed_forward_length and
/// expert_shared_feed_forward_length. After ReadTransformer.
void ReadExperts(Hyperparameters& from, const ExpertDefaults& absent, ModelConfig& config);
/// Rejects a file with more than one expert.
void RefuseExperts(Hyperparameters& from);
/// Both: for transformers without experts.
void ReadDense(Hyperparameters& from, ModelConfig& config);

/// Writes the same keys for ReadTransformer. Scaled RoPE is expressed by tensors of factors; an
/// original context that differs from the context says that there is one for each of the two.
/// Windows are written by their period, which `windowed` must have.
void WriteTransformer(const ModelConfig& config, GgufWriter& writer);

}  // namespace tilewright
