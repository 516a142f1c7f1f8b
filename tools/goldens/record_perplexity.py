#!/usr/bin/env python3
"""Record llama.cpp's perplexities and divergences as tests/data/goldens/llama_perplexity.json.

    words="-m f32.gguf -f tests/data/perplexity.txt -c 256 -b 256 -ub 256 -fa off -ctk f32 -ctv f32 --kl-divergence-base base.kld"
    llama-perplexity $words > base.txt 2>&1
    llama-perplexity $words --override-kv llama.rope.freq_base=float:30000 --kl-divergence > other.txt 2>&1
    record_perplexity.py --base base.txt --other other.txt --f32 f32.gguf --freq-base 30000 --window 256 \
        --ids tests/data/goldens/perplexity.json --output tests/data/goldens/llama_perplexity.json

f32.gguf is the f32 expansion (expand_f32.py) of SmolLM2-135M-Instruct Q4_1; llama-perplexity is a target of the build that
tools/baseline/build_llama_cpp.sh leaves. The other model has the same weights and turns its keys by other angles, so that the
test can make it of the same file. `printed` is what llama-perplexity prints. It keeps the base's logits in 16 bits and leaves
out tokens with a logarithm of their probability below -16, so that its divergences are too small by some 0.3 %; `divergence`
is computed in float64 from the logits that llama.cpp gives for both.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
from pathlib import Path

import numpy as np

import llama

_NUMBER = r"\s*(-?[0-9.]+)"
_PATTERNS = {
    "perplexity": r"Mean PPL\(Q\)\s*:" + _NUMBER,
    "perplexity_error": r"Mean PPL\(Q\)\s*:\s*[0-9.]+\s*±" + _NUMBER,
    "same_top_percent": r"Same top p:" + _NUMBER,
    "same_top_error_percent": r"Same top p:\s*[0-9.]+\s*±" + _NUMBER,
}


def log_probabilities(path: Path, ids: list[int], window: int) -> np.ndarray:
    """Return the logarithms of what follows the second half of every full window, in float64."""
    model = llama.Model(path)
    context = model.context(window, 2)
    rows = []
    for start in range(0, len(ids) - window + 1, window):
        context.clear()
        logits = context.evaluate(ids[start : start + window], every_position=True)
        rows.append(logits[window // 2 : window - 1].astype(np.float64))
    context.close()
    model.close()
    logits = np.concatenate(rows)
    highest = logits.max(axis=1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))


def with_freq_base(source: Path, target: Path, value: float) -> None:
    """Write a copy of a model with another base of its rotations."""
    data = bytearray(source.read_bytes())
    key = b"llama.rope.freq_base"
    at = data.index(key) + len(key)
    if data[at : at + 4] != struct.pack("<I", 6):
        raise SystemExit("llama.rope.freq_base is no f32")
    data[at + 4 : at + 8] = struct.pack("<f", value)
    target.write_bytes(data)


def divergence(f32: Path, freq_base: float, ids: list[int], window: int) -> dict[str, float]:
    """Return the statistics of the divergence of the changed model from the base."""
    changed = f32.with_suffix(".changed.gguf")
    with_freq_base(f32, changed, freq_base)
    base, other = log_probabilities(f32, ids, window), log_probabilities(changed, ids, window)
    changed.unlink()
    kl = (np.exp(base) * (base - other)).sum(axis=1)
    starts = range(0, len(ids) - window + 1, window)
    targets = np.array([token for start in starts for token in ids[start + window // 2 + 1 : start + window]])
    difference = base[np.arange(len(targets)), targets] - other[np.arange(len(targets)), targets]
    spread = (len(kl) - 1) ** 0.5
    return {
        "log_ratio": difference.mean(),
        "log_ratio_error": difference.std() / spread,
        "kl_mean": kl.mean(),
        "kl_error": kl.std() / spread,
        "kl_median": np.quantile(kl, 0.5),
        "kl_p99": np.quantile(kl, 0.99),
        "kl_max": kl.max(),
    }


def main() -> None:
    """Parse both logs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--f32", type=Path, required=True)
    parser.add_argument("--ids", type=Path, required=True)
    parser.add_argument("--freq-base", type=float, required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    final = re.search(r"Final estimate: PPL =" + _NUMBER + r"\s*\+/-" + _NUMBER, arguments.base.read_text())
    if not final:
        raise SystemExit(f"{arguments.base}: no final estimate")
    other = arguments.other.read_text()
    values = {}
    for key, pattern in _PATTERNS.items():
        match = re.search(pattern, other)
        if not match:
            raise SystemExit(f"{arguments.other}: no {key}")
        values[key] = float(match[1])
    ids = json.loads(arguments.ids.read_text())["ids"]
    found = divergence(arguments.f32, arguments.freq_base, ids, arguments.window)
    document = {
        "made_by": {"tool": "tools/goldens/record_perplexity.py", "llama_cpp_python": "0.3.36"},
        "window": arguments.window,
        "base": {"perplexity": float(final[1]), "perplexity_error": float(final[2])},
        "freq_base": arguments.freq_base,
        "printed": values,
        "divergence": {key: float(f"{value:.8g}") for key, value in found.items()},
    }
    arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
