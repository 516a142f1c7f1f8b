#include <array>

#include "core/text.h"
#include "tilewright/synth.h"

namespace tilewright {
namespace {

constexpr std::array<SynthShape, 9> kPresets = {{
    {.name = "tiny-test",
     .layers = 2,
     .hidden = 64,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .ffn = 192,
     .vocab = 512,
     .context = 512,
     .rope_base = 10000,
     .tied = true,
     .tokens = SynthVocab::kSmolLm},
    {.name = "smollm2-135m",
     .layers = 30,
     .hidden = 576,
     .heads = 9,
     .kv_heads = 3,
     .head_dim = 64,
     .ffn = 1536,
     .vocab = 49152,
     .context = 8192,
     .rope_base = 100000,
     .tied = true,
     .tokens = SynthVocab::kSmolLm},
    {.name = "smollm2-360m",
     .layers = 32,
     .hidden = 960,
     .heads = 15,
     .kv_heads = 5,
     .head_dim = 64,
     .ffn = 2560,
     .vocab = 49152,
     .context = 8192,
     .rope_base = 100000,
     .tied = true,
     .tokens = SynthVocab::kSmolLm},
    {.name = "tinyllama-1.1b",
     .layers = 22,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 64,
     .ffn = 5632,
     .vocab = 32000,
     .context = 2048,
     .rope_base = 10000,
     .tokens = SynthVocab::kGpt2},
    {.name = "llama-3.2-1b",
     .layers = 16,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 64,
     .ffn = 8192,
     .vocab = 128256,
     .context = 131072,
     .rope_base = 500000,
     .rope_factor = 32,
     .tied = true,
     .tokens = SynthVocab::kLlama3},
    {.name = "llama-3.2-3b",
     .layers = 28,
     .hidden = 3072,
     .heads = 24,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 8192,
     .vocab = 128256,
     .context = 131072,
     .rope_base = 500000,
     .rope_factor = 32,
     .tied = true,
     .tokens = SynthVocab::kLlama3},
    {.name = "mistral-7b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 32768,
     .context = 32768,
     .rope_base = 1000000,
     .tokens = SynthVocab::kGpt2},  // version 0.3
    {.name = "llama-3.1-8b",
     .layers = 32,
     .hidden = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 128256,
     .context = 131072,
     .rope_base = 500000,
     .rope_factor = 8,
     .tokens = SynthVocab::kLlama3},
    {.name = "llama-3.1-70b",
     .layers = 80,
     .hidden = 8192,
     .heads = 64,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 28672,
     .vocab = 128256,
     .context = 131072,
     .rope_base = 500000,
     .rope_factor = 8,
     .tokens = SynthVocab::kLlama3},
}};

}  // namespace

std::span<const SynthShape> SynthPresets() { return kPresets; }

Result<SynthShape> FindSynthPreset(std::string_view name) {
  std::string names;
  for (const SynthShape& preset : kPresets) {
    if (preset.name == name) return preset;
    names += Format("{}{}", names.empty() ? "" : ", ", preset.name);
  }
  return Fail(ErrorCode::kNotFound,
              Format("preset \"{}\" is not known; there are {}", name, names));
}

}  // namespace tilewright
