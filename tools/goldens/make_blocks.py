#!/usr/bin/env python3
"""Golden blocks of the GGUF formats, decoded and encoded by gguf-py's reference code.

Writes text, one case a line, bytes as hexadecimal, f32 little endian:

    decode TYPE BLOCK VALUES     the values that BLOCK holds; a NaN is written as 0x7fc00000
    encode TYPE VALUES BLOCK     the block that VALUES become (gguf-py encodes only the types of ENCODES)

Blocks to decode are random bits, in which every code occurs, under finite random scales, and all-ones and all-zero
codes; then random bits under scales that are NaN, the smallest and the largest subnormal, or the outermost powers of
two. Deterministic.

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
    "q5_0": gguf.GGMLQuantizationType.Q5_0,
    "q5_k": gguf.GGMLQuantizationType.Q5_K,
    "q2_k": gguf.GGMLQuantizationType.Q2_K,
    "q3_k": gguf.GGMLQuantizationType.Q3_K,
    "iq4_nl": gguf.GGMLQuantizationType.IQ4_NL,
    "iq4_xs": gguf.GGMLQuantizationType.IQ4_XS,
    "q5_1": gguf.GGMLQuantizationType.Q5_1,
    "mxfp4": gguf.GGMLQuantizationType.MXFP4,
}
# Byte offsets of the f16 fields of a block.
SCALES = {
    "q4_0": [0], "q4_1": [0, 2], "q8_0": [0], "q6_k": [208], "q4_k": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q5_k": [0, 2],
    "q2_k": [80, 82], "q3_k": [108], "iq4_nl": [0], "iq4_xs": [0], "mxfp4": [],
}
# Every byte is a scale: a block for each of these, the rest of its bits random.
POWERS = {"mxfp4": [0, 1, 2, 3, 126, 127, 128, 251, 252, 253, 254, 255]}
ENCODES = ["q4_0", "q4_1", "q8_0", "q5_0", "q5_1", "mxfp4"]
CASES = 6
# Long blocks hold every code several times: two say what six say.
FEW = ["q5_k", "q2_k", "q3_k", "iq4_xs"]
FEW_CASES = 2
SPECIAL_SCALES = [0x7E00, 0x0001, 0x83FF]


def random_block(rng: np.random.Generator, name: str, fill: int | None) -> np.ndarray:
    """One block of random bits, or of bytes `fill`, with finite random scales."""
    size = gguf.GGML_QUANT_SIZES[TYPES[name]][1]
    block = rng.integers(0, 256, size, dtype=np.uint8) if fill is None else np.full(size, fill, dtype=np.uint8)
    for offset in SCALES[name]:
        block[offset:offset + 2] = np.frombuffer(np.float16(rng.normal(0, 0.05)).tobytes(), dtype=np.uint8)
    return block


def decode_line(name: str, block: np.ndarray) -> str:
    """What `block` holds, in every bit but those of a NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = gguf.dequantize(block, TYPES[name]).astype("<f4")
    values[np.isnan(values)] = np.frombuffer(np.uint32(0x7FC00000).tobytes(), dtype="<f4")[0]
    return f"decode {name} {block.tobytes().hex()} {values.tobytes().hex()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(20261121)
    lines = []
    for name, kind in TYPES.items():
        fills = [None] * FEW_CASES if name in FEW else [None] * CASES + [0x00, 0xFF]
        lines += [decode_line(name, random_block(rng, name, fill)) for fill in fills]
        if name not in ENCODES:
            continue
        for scale in [1.0, 0.02, 1e-4] * (CASES // 3):
            values = rng.normal(0, scale, 32).astype("<f4")
            block = gguf.quantize(values, kind)
            lines.append(f"encode {name} {values.tobytes().hex()} {block.tobytes().hex()}")
    rng = np.random.default_rng(20261122)
    for name in TYPES:
        for power in POWERS.get(name, []):
            block = random_block(rng, name, None)
            block[0] = power
            lines.append(decode_line(name, block))
        for scale in SPECIAL_SCALES if SCALES[name] else []:
            block = random_block(rng, name, None)
            for offset in SCALES[name]:
                block[offset:offset + 2] = np.frombuffer(np.uint16(scale).tobytes(), dtype=np.uint8)
            lines.append(decode_line(name, block))
    arguments.output.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
