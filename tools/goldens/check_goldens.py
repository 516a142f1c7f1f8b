#!/usr/bin/env python3
"""Check goldens/generation.json and goldens/perplexity.json against a second, independent model.

    check_goldens.py --f32 MODEL-f32.gguf --data tests/data

The model is written out here in numpy in float64, from the definition of the Llama architecture, so
that a mistake of llama.cpp or of make_goldens.py would show. Prints the largest differences and
exits with 1 if a greedy token differs or a number is off by more than `--tolerance`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import gguf
import numpy as np


class Reference:
    """The Llama architecture in float64, without a KV cache."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)

        def value(key: str) -> float:
            return reader.get_field(f"llama.{key}").contents()

        self._weights = {t.name: np.array(t.data).reshape([int(n) for n in t.shape[::-1]]) for t in reader.tensors}
        self._layers = int(value("block_count"))
        self._heads = int(value("attention.head_count"))
        self._kv_heads = int(value("attention.head_count_kv"))
        self._size = int(value("rope.dimension_count"))
        self._base = float(value("rope.freq_base"))
        self._epsilon = float(value("attention.layer_norm_rms_epsilon"))
        self._embedding = self._weights["token_embd.weight"].astype(np.float64)

    def logits(self, ids: list[int], first: int = 0) -> np.ndarray:
        """Return the logits of all positions from `first` on."""
        count = len(ids)
        x = self._embedding[ids]
        mask = np.triu(np.full((count, count), -np.inf), 1)
        for layer in range(self._layers):
            h = self._norm(x, f"blk.{layer}.attn_norm")
            q = self._rope(self._project(h, f"blk.{layer}.attn_q").reshape(count, self._heads, self._size))
            k = self._rope(self._project(h, f"blk.{layer}.attn_k").reshape(count, self._kv_heads, self._size))
            v = self._project(h, f"blk.{layer}.attn_v").reshape(count, self._kv_heads, self._size)
            mixed = np.empty_like(q)
            for head in range(self._heads):
                shared = head * self._kv_heads // self._heads
                scores = q[:, head] @ k[:, shared].T / np.sqrt(self._size) + mask
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                mixed[:, head] = weights @ v[:, shared] / weights.sum(axis=-1, keepdims=True)
            x = x + self._project(mixed.reshape(count, -1), f"blk.{layer}.attn_output")
            h = self._norm(x, f"blk.{layer}.ffn_norm")
            gate = self._project(h, f"blk.{layer}.ffn_gate")
            up = self._project(h, f"blk.{layer}.ffn_up")
            x = x + self._project(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down")
        return self._norm(x[first:], "output_norm") @ self._embedding.T

    def _project(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T.astype(np.float64)

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self._epsilon) * self._weights[f"{name}.weight"]

    def _rope(self, x: np.ndarray) -> np.ndarray:
        frequencies = self._base ** (-np.arange(0, self._size, 2) / self._size)
        angles = (np.arange(len(x))[:, None] * frequencies)[:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
        out[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
        return out


def check_generation(model: Reference, path: Path) -> float:
    """Return the largest difference of a gap or a logit; infinity if a greedy token differs."""
    worst = 0.0
    for prompt in json.loads(path.read_text(encoding="utf-8"))["prompts"]:
        logits = model.logits(prompt["ids"] + prompt["greedy"][:-1], first=len(prompt["ids"]) - 1)
        if logits.argmax(axis=1).tolist() != prompt["greedy"]:
            print(f"{prompt['name']}: greedy tokens differ")
            return float("inf")
        best = np.sort(np.partition(logits, -2, axis=1)[:, -2:], axis=1)
        gaps = np.abs(best[:, 1] - best[:, 0] - np.array(prompt["gaps"])).max()
        top5 = max(abs(logits[0, token] - logit) for token, logit in prompt["top5"])
        print(f"{prompt['name']}: gaps within {gaps:.1e}, top 5 within {top5:.1e}")
        worst = max(worst, float(gaps), float(top5))
    return worst


def check_perplexity(model: Reference, path: Path) -> float:
    """Return the largest difference of a token's negative log likelihood."""
    golden = json.loads(path.read_text(encoding="utf-8"))
    losses = []
    for start, length, _ in golden["f32"]["windows"]:
        ids = golden["ids"][start : start + length]
        logits = model.logits(ids)[:-1]
        highest = logits.max(axis=1)
        sums = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
        losses.append(sums - logits[np.arange(length - 1), ids[1:]])
    every = np.concatenate(losses)
    worst = float(np.abs(every - np.array(golden["nll"])).max())
    print(f"perplexity {np.exp(every.mean()):.5f} ({golden['f32']['perplexity']}), nll within {worst:.1e}")
    return worst


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--f32", type=Path, required=True, help="the f32 expansion of SmolLM2-135M-Instruct")
    parser.add_argument("--data", type=Path, required=True, help="the folder tests/data")
    parser.add_argument("--tolerance", type=float, default=2e-4)
    arguments = parser.parse_args()
    model = Reference(arguments.f32)
    worst = max(
        check_perplexity(model, arguments.data / "goldens" / "perplexity.json"),
        check_generation(model, arguments.data / "goldens" / "generation.json"),
    )
    return int(worst > arguments.tolerance)


if __name__ == "__main__":
    sys.exit(main())
