#!/usr/bin/env python3
"""Golden blocks of the GGUF formats, decoded and encoded by gguf-py's reference code.

Writes text, one case a line, bytes as hexadecimal, f32 little endian:

    decode TYPE BLOCK VALUES     the values that BLOCK holds
    encode TYPE VALUES BLOCK     the block that VALUES become (gguf-py cannot encode q6_k and q4_k)

Blocks to decode are random bits under finite random scales, and all-ones and all-zero codes. Deterministic.

    make_blocks.py tests/data/goldens/blocks.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

TYPES = {
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q6_k": gguf.GGMLQuantizationType.Q6_K,
    "q4_k": gguf.GGMLQuantizationType.Q4_K,
}
# Byte offsets of the f16 fields of a block.
SCALES = {"q4_0": [0], "q4_1": [0, 2], "q8_0": [0], "q6_k": [208], "q4_k": [0, 2]}
CASES = 6


def random_block(rng: np.random.Generator, name: str, fill: int | None) -> np.ndarray:
    """One block of random bits, or of bytes `fill`, with finite random scales."""
    size = gguf.GGML_QUANT_SIZES[TYPES[name]][1]
    block = rng.integers(0, 256, size, dtype=np.uint8) if fill is None else np.full(size, fill, dtype=np.uint8)
    for offset in SCALES[name]:
        block[offset:offset + 2] = np.frombuffer(np.float16(rng.normal(0, 0.05)).tobytes(), dtype=np.uint8)
    return block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(20261121)
    lines = []
    for name, kind in TYPES.items():
        for fill in [None] * CASES + [0x00, 0xFF]:
            block = random_block(rng, name, fill)
            values = gguf.dequantize(block, kind).astype("<f4")
            lines.append(f"decode {name} {block.tobytes().hex()} {values.tobytes().hex()}")
        if name in ("q6_k", "q4_k"):
            continue
        for scale in [1.0, 0.02, 1e-4] * (CASES // 3):
            values = rng.normal(0, scale, 32).astype("<f4")
            block = gguf.quantize(values, kind)
            lines.append(f"encode {name} {values.tobytes().hex()} {block.tobytes().hex()}")
    arguments.output.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
