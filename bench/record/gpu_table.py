#!/usr/bin/env python3
"""Collect the figures that a GPU is held to, from recordings, in one table.

    gpu_table.py [--columns H200=_nvidia-h200 "H100=_nvidia-h100-80gb-hbm3"] [--name gpu-table]

Measures nothing: every cell is read from a recording in bench/results, NAME=SUFFIX names a column and the end of the names
of its recordings. A cell without a recording is empty. What is asked for is asked of an H200; "*" marks a figure of it that is not so. The
list below the table says which recording a figure comes from, its commit and date.

Writes bench/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
from typing import Any, Callable

import common
from figures import Column, Figure, Recording, write
from record_gpu_ops import FEW_ROWS, LAW_TB_S, LAW_US, MANY_ROWS, best, is_vendors, own_best, rate

MODEL, OPS, SERVING, TIMELINE = ("gpu_model",), ("gpu_ops",), ("gpu_serving",), ("timeline",)
CHAIN_TB_S, CHAIN_US = 4.1, 1.3  # of the products of a layer one after another

Row = dict[str, Any]


def row_of(report: Recording, model: str, test: str, batch: int = 1) -> Row:
    """Return what a test of a model gave."""
    models = [one for one in report["models"] if one["model"] == model]
    return next(row for one in models for row in one["rows"] if row["test"].split(" ")[0] == test and row["batch"] == batch)


def tokens(model: str, test: str) -> Callable[[Recording], float]:
    """Return a reader of tokens a second."""
    return lambda report: row_of(report, model, test)["tok_s_median"]


def of_floor(model: str) -> Callable[[Recording], float]:
    """Return a reader of decoding as percent of the floor of the memory."""

    def read(report: Recording) -> float:
        row = row_of(report, model, "tg128")
        return 100 * row["tok_s_median"] / row["floor_tok_s"]

    return read


def together(report: Recording) -> float:
    """Return tokens a second of 32 sequences in Q8_0."""
    models = [one for one in report["throughput"] if one["model"] == "llama-3.1-8b q8_0"]
    return next(row["tok_s_median"] for one in models for row in one["rows"] if row["batch"] == 32)


def chain(model: str) -> Callable[[Recording], float]:
    """Return a reader of the time of a layer's products over the law of a chain."""

    def read(report: Recording) -> float:
        of = row_of(report, model, "tg128")["chain"]
        law_us = of["bytes"] / CHAIN_TB_S * 1e-6 + CHAIN_US * of["products"]
        return of["us"] / law_us

    return read


def gemv(report: Recording) -> float:
    """Return the worst time of GEMV over the law, with the memory's rate in proportion to an H200's."""
    law = LAW_TB_S * (1.0 if abs(report["memory_over_h200"] - 1) < 0.03 else report["memory_over_h200"])
    return max(own_best(row)["us_median"] / (LAW_US + row["bytes"] / law * 1e-6) for row in report["gemv"])


def over_vendor(row: Row, own: Callable[[Row], bool]) -> float:
    """Return the vendor's fastest time over the fastest of the launches that are wanted."""
    vendor, mine = best(row, is_vendors), best(row, own)
    if vendor is None or mine is None:
        raise KeyError("not timed")
    return vendor["us_median"] / mine["us_median"]


def products(rows: range) -> Callable[[Recording], float]:
    """Return a reader of the geometric mean of cuBLASLt's time over ours, over products of so many rows."""
    return lambda report: common.geometric_mean([over_vendor(row, lambda one: not is_vendors(one)) for row in report["gemm"] if row["m"] in rows])


def attention(at: int, unit: str) -> Callable[[Recording], float]:
    """Return a reader of an attention's rate."""
    return lambda report: rate(report["attention"][at], unit)


def gaps(report: Recording) -> float:
    """Return the most of a token's time in which no kernel runs, in percent."""
    return max(100 * (1 - one["busy_us"] / one["span_us"]) for one in report["models"])


Q4, Q8, BF16, SMOL = "llama-3.1-8b q4_k", "llama-3.1-8b q8_0", "llama-3.1-8b bf16", "smollm2-135m q4_1"
FIGURES = (
    Figure("Llama-3.1-8B, decoding at 512 positions, Q4_K", 650, 790, "tok/s", MODEL, tokens(Q4, "tg128")),
    Figure("Q8_0", 445, 480, "tok/s", MODEL, tokens(Q8, "tg128")),
    Figure("bf16", 258, 272, "tok/s", MODEL, tokens(BF16, "tg128")),
    Figure("Llama-3.2-1B, decoding, bf16, of the floor", 75, 85, "%", MODEL, of_floor("llama-3.2-1b bf16")),
    Figure("SmolLM2-135M, decoding, Q4_1", 2200, 4500, "tok/s", MODEL, tokens(SMOL, "tg128")),
    Figure("Llama-3.1-8B, prompt of 2,048, bf16", 32000, 37000, "tok/s", MODEL, tokens(BF16, "pp2048")),
    Figure("Q4_K", 26000, 32000, "tok/s", MODEL, tokens(Q4, "pp2048")),
    Figure("Q8_0", 26000, 32000, "tok/s", MODEL, tokens(Q8, "pp2048")),
    Figure("32 sequences together, Q8_0", 9000, 12000, "tok/s", SERVING, together),
    Figure("GEMV alone, time over 3 us + bytes / 4.4 TB/s, worst", 1.08, 1.0, "x", OPS, gemv, at_most=True),
    Figure("products of a layer, over bytes / 4.1 TB/s + 1.3 us each, Q4_K", 1.0, 0.87, "x", MODEL, chain(Q4), at_most=True),
    Figure("Q8_0", 1.0, 0.9, "x", MODEL, chain(Q8), at_most=True),
    Figure("bf16", 1.0, 0.91, "x", MODEL, chain(BF16), at_most=True),
    Figure("cuBLASLt's time over that of own bf16 products, 16 to 256 rows", 1.0, 1.1, "x", OPS, products(FEW_ROWS)),
    Figure("512 rows and more", 0.98, 1.05, "x", OPS, products(MANY_ROWS)),
    Figure("over that of the registry, worst", 0.98, 1.0, "x", OPS, lambda report: min(over_vendor(row, lambda _: True) for row in report["gemm"])),
    Figure("decode attention, 32 x 4,096", 3.8, 4.15, "TB/s", OPS, attention(0, "TB/s")),
    Figure("causal attention of a prompt of 4,096", 450, 620, "TFLOP/s", OPS, attention(1, "TFLOP/s")),
    Figure("of 16,384", 450, 620, "TFLOP/s", OPS, attention(2, "TFLOP/s")),
    Figure("RMSNorm, 4096 x 4096, bf16", 3.4, 4.0, "TB/s", OPS, lambda report: rate(report["norm"][0], "TB/s")),
    Figure("of a token's time no kernel runs", 4.0, 2.0, "%", TIMELINE, gaps, at_most=True),
)


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", nargs="+", default=["H200=_nvidia-h200", "H100=_nvidia-h100-80gb-hbm3"], metavar="NAME=SUFFIX")
    parser.add_argument("--name", default="gpu-table", help="of the result")
    arguments = parser.parse_args()
    if wrong := [word for word in arguments.columns if "=" not in word]:
        parser.error(f"--columns: '{wrong[0]}' is not NAME=SUFFIX")
    columns = [Column(name, name, suffix, judged="H200" in name) for name, suffix in (word.split("=", 1) for word in arguments.columns)]
    note = "It is asked of an H200: the memory of an H100 has 0.70 of its rate; the law of GEMV is in proportion to it. "
    write(arguments.name, FIGURES, columns, "board", "python3 bench/record/gpu_table.py", note)


if __name__ == "__main__":
    main()
