#!/usr/bin/env python3
"""Make tests/data/goldens/families.json: what llama.cpp computes for tiny models of each architecture.

    make_families.py --tilewright build/cli/tilewright --output tests/data/goldens/families.json

The models are not kept: `tilewright synth --preset PRESET --quant f32 --seed SEED` writes the same bytes everywhere.
The document holds `made_by` and `cases`, each with

    name       of the case
    preset     of `synth`; its seed is the document's `seed`
    keys       metadata added to the model or put in place of its own; integers are u32, other numbers f32
    context    positions of the session, which decides between long and short RoPE factors
    prompt     token ids
    greedy     the ids that follow, each the most likely one
    gaps       how far the logit of each lay above the second best
    logits     all of the last position of the prompt, and all of the last of `greedy`, to 7 digits
    made_by    of a case that was added with --new, in place of the document's

Logits are computed with an f32 KV cache and without flash attention. ggml looks gelu up in a table of f16, which is off by
up to 5e-4, so the cases of Gemma need a llama.cpp built with `tools/baseline/build_llama_cpp.sh --gelu exact`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import expand_f32
import gguf
import llama
import numpy as np

SEED = 12
GREEDY = 12

LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
GEMMA2_OTHER = {
    "attention.sliding_window": 7,
    "attention.sliding_window_pattern": 3,
    "attn_logit_softcapping": 0.75,
    "final_logit_softcapping": 1.25,
}
GEMMA3_OTHER = {
    "attention.sliding_window": 9,
    "attention.sliding_window_pattern": 2,
    "rope.freq_base_swa": 500.0,
    "final_logit_softcapping": 1.5,
}

# llama.cpp scales blocks with a window by the factor even where the type is none.
UNSCALED = {"rope.scaling.type": "none", "rope.scaling.factor": 1.0}
GPT_OSS_OTHER = {"attention.sliding_window": 5, "attention.sliding_window_pattern": 3, "expert_used_count": 6}

# Name, preset, metadata, context, tokens of the prompt. All prompts of scaled models go beyond the original
# context, but for the one that shows which factors are used within it.
CASES: list[tuple[str, str, dict[str, Any], int, int]] = [
    ("llama", "tiny-test", {}, 256, 24),
    ("llama, linear", "tiny-test", LINEAR, 256, 40),
    ("llama, linear as old files have it", "tiny-test", {"rope.scale_linear": 2.0}, 256, 40),
    ("llama, scaling switched off", "tiny-test", {**YARN, "rope.scaling.type": "none"}, 256, 40),
    ("llama, yarn", "tiny-test", YARN, 256, 60),
    ("llama, yarn, magnitude", "tiny-test", {**YARN, "rope.scaling.attn_factor": 0.75}, 256, 60),
    ("llama, factors", "tiny-test-llama3", {}, 256, 60),
    ("qwen2", "tiny-test-qwen2", {}, 256, 24),
    ("qwen2, yarn", "tiny-test-qwen2", YARN, 256, 60),
    ("qwen3", "tiny-test-qwen3", {}, 256, 24),
    ("qwen3, yarn", "tiny-test-qwen3", {**YARN, "rope.scaling.factor": 16.0}, 256, 60),
    ("phi3, short factors", "tiny-test-phi3", {"rope.scaling.original_context_length": 256}, 256, 40),
    ("phi3, long factors", "tiny-test-phi3", {}, 256, 90),
    ("phi3, short factors, part of a head", "tiny-test-phi3-partial", {}, 256, 40),
    ("phi3, long factors, part of a head", "tiny-test-phi3-partial", {}, 512, 270),
    ("gemma2", "tiny-test-gemma2", {}, 256, 60),
    ("gemma2, other windows and caps", "tiny-test-gemma2", GEMMA2_OTHER, 256, 70),
    ("gemma2, linear", "tiny-test-gemma2", LINEAR, 256, 40),
    ("gemma2, yarn", "tiny-test-gemma2", YARN, 256, 60),
    ("gemma2, the scale of 27B", "tiny-test-gemma2-27b", {}, 256, 40),
    ("gemma3", "tiny-test-gemma3", {}, 256, 60),
    ("gemma3, other windows, with a cap", "tiny-test-gemma3", GEMMA3_OTHER, 256, 70),
    ("gemma3, linear", "tiny-test-gemma3", LINEAR, 256, 60),
    ("gemma3, the scale of 27B", "tiny-test-gemma3-27b", {}, 256, 40),
    ("mixtral", "tiny-test-mixtral", {}, 256, 24),
    ("mixtral, one expert a row", "tiny-test-mixtral", {"expert_used_count": 1}, 256, 24),
    ("mixtral, all experts", "tiny-test-mixtral", {"expert_used_count": 5}, 256, 40),
    ("qwen2moe", "tiny-test-qwen2moe", {}, 256, 40),
    ("qwen2moe, yarn", "tiny-test-qwen2moe", YARN, 256, 60),
    ("qwen3moe", "tiny-test-qwen3moe", {}, 256, 40),
    ("qwen3moe, yarn", "tiny-test-qwen3moe", YARN, 256, 60),
    ("gpt-oss", "tiny-test-gpt-oss", {}, 256, 70),
    ("gpt-oss, a longer original context", "tiny-test-gpt-oss", {"rope.scaling.original_context_length": 128}, 256, 150),
    ("gpt-oss, linear", "tiny-test-gpt-oss", LINEAR, 256, 60),
    ("gpt-oss, without scaling", "tiny-test-gpt-oss", UNSCALED, 256, 40),
    ("gpt-oss, other windows", "tiny-test-gpt-oss", GPT_OSS_OTHER, 256, 60),
    ("gpt-oss, one expert a row", "tiny-test-gpt-oss", {"expert_used_count": 1}, 256, 24),
    ("exaone", "tiny-test-exaone", {}, 256, 60),
    ("exaone, linear", "tiny-test-exaone", LINEAR, 256, 40),
    ("internlm2", "tiny-test-internlm2", {}, 256, 40),
    ("internlm2, linear", "tiny-test-internlm2", LINEAR, 256, 60),
    ("ernie4_5", "tiny-test-ernie4_5", {}, 256, 40),
    ("ernie4_5, yarn", "tiny-test-ernie4_5", YARN, 256, 60),
    ("gemma", "tiny-test-gemma", {}, 256, 40),
    ("gemma, linear", "tiny-test-gemma", LINEAR, 256, 60),
]


def put_keys(source: Path, target: Path, keys: dict[str, Any]) -> None:
    """Write `target`, a copy of the f32 model `source` with other metadata."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field(gguf.Keys.General.ARCHITECTURE).contents())
    expand_f32.copy_metadata(reader, writer, {key: value for key, value in keys.items() if key in reader.fields})
    for key, value in keys.items():
        if key in reader.fields:
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_float32(key, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_case(case: tuple[str, str, dict[str, Any], int, int], index: int, tilewright: Path) -> dict[str, Any]:
    """Return the golden of one case."""
    name, preset, rope, context_size, length = case
    with tempfile.TemporaryDirectory() as folder:
        plain, edited = Path(folder) / "plain.gguf", Path(folder) / "edited.gguf"
        command = [tilewright, "synth", "--preset", preset, "--quant", "f32", "--seed", str(SEED), "-o", plain]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        prefix = gguf.GGUFReader(plain).get_field(gguf.Keys.General.ARCHITECTURE).contents()
        keys = {f"{prefix}.{key}": value for key, value in rope.items()}
        put_keys(plain, edited, keys)
        model = llama.Model(edited)
    context = model.context(context_size, 1)
    prompt = np.random.default_rng(index).integers(0, model.size, length).tolist()
    logits = context.evaluate(prompt)[0]
    first = logits
    greedy: list[int] = []
    gaps: list[float] = []
    while True:
        second, best = np.sort(np.partition(logits, -2)[-2:])
        greedy.append(int(np.argmax(logits)))
        gaps.append(float(best) - float(second))
        logits = context.evaluate(greedy[-1:])[0]
        if len(greedy) == GREEDY:
            break
    context.close()
    model.close()
    print(f"  {name}: smallest gap {min(gaps):.4f}")
    return {
        "name": name,
        "preset": preset,
        "keys": keys,
        "context": context_size,
        "prompt": prompt,
        "greedy": greedy,
        "gaps": [float(f"{gap:.4g}") for gap in gaps],
        "logits": [[float(f"{value:.7g}") for value in row] for row in (first, logits)],
    }


def main() -> None:
    """Command line entry point."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.UTC)
    today = (datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch else now).date().isoformat()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=Path, required=True, help="the command-line tool, for synth")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    parser.add_argument("--date", default=today, help="date to record")
    parser.add_argument("--new", action="store_true", help="make the cases that the file lacks, keep the others as they are")
    arguments = parser.parse_args()
    made_by = {
        "llama-cpp-python": llama.version(),
        "system_info": llama.system_info(),
        "date": arguments.date,
        "evaluation": {"kv_cache": "f32", "flash_attention": False},
    }
    old = json.loads(arguments.output.read_text()) if arguments.new else {"made_by": made_by, "cases": []}
    kept = {case["name"]: case for case in old["cases"]}
    mark = {"made_by": made_by} if arguments.new else {}
    document = {
        "made_by": old["made_by"],
        "seed": SEED,
        "cases": [
            kept.get(case[0]) or {**run_case(case, index, arguments.tilewright), **mark} for index, case in enumerate(CASES)
        ],
    }
    lines = [json.dumps(case) for case in document.pop("cases")]
    head = json.dumps(document, indent=1).removesuffix("\n}")
    arguments.output.write_text(head + ',\n "cases": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
