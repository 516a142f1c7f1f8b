#!/usr/bin/env python3
"""Collect the figures that the CPU device is held to, from recordings, in one table.

    cpu_table.py [--columns 2=-xeon-amx-2cores "2, Zen 4=-zen4-2cores"] [--name cpu-table]

Measures nothing: every cell is read from a recording in bench/results, NAME=SUFFIX names a column and the end of the names
of its recordings. A cell without a recording is empty. "*" marks a figure that is not as asked for at least. The list below the
table says which recording a figure comes from, its commit and date.

Writes bench/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
from typing import Callable

import common
from figures import Column, Figure, Recording, write


def ratio(kind: str) -> Callable[[Recording], float]:
    """Return a reader of ours over llama.cpp's."""
    return lambda report: report["ratio"][kind]


def of_floor(report: Recording) -> float:
    """Return decoding as percent of its floor."""
    decode = report["tilewright"]["decode"]
    return 100 * decode["of_floor"]["median"] if "of_floor" in decode else 100 * decode["median"] / decode["floor_median"]


def tile_share(rows: int) -> Callable[[Recording], float]:
    """Return a reader of the lesser share of the bf16 peak that 4-bit and bf16 weights reach, by tiles of bf16."""

    def read(report: Recording) -> float:
        products = [report["tiles"]["products"][f"{name} x {rows}"] for name in ("q4_0", "bf16")]
        if not all(product["kernel"].endswith(".abf16") for product in products):
            raise KeyError("products by int8")
        return min(product["percent_of_peak"] for product in products)

    return read


def over_onednn(report: Recording) -> float:
    """Return the geometric mean over all products."""
    return common.geometric_mean([row["onednn"]["ratio"] for row in report["rows"] if "onednn" in row])


SMOLLM2 = ("cpu-smollm2-135m-q4_1", "model-smollm2-135m-q4_1", "model-smollm2-135m-instruct-q4_1")
CAPPED = ("cpu-smollm2-135m-q4_1-avx512",)
Q4_0 = ("cpu-llama-1b-q4_0", "model-llama-1b-q4_0")

FIGURES = (
    Figure("SmolLM2-135M Q4_1, prompt 512, of llama.cpp", 3.3, 4.5, "x", SMOLLM2, ratio("prompt")),
    Figure("the same, of OpenVINO", 1.5, 2.1, "x", SMOLLM2, lambda report: report["openvino"]["ratio"]["prompt"]),
    Figure("its decoding, of llama.cpp", 1.35, 1.7, "x", SMOLLM2, ratio("decode")),
    Figure("Llama-1B, prompt 512, Q4_0", 3.8, 5.5, "x", Q4_0, ratio("prompt")),
    Figure("Q8_0", 3.8, 5.5, "x", ("model-llama-1b-q8_0",), ratio("prompt")),
    Figure("Q4_K_M", 3.8, 5.5, "x", ("model-llama-1b-q4_k_m",), ratio("prompt")),
    Figure("BF16", 6.0, 10.0, "x", ("model-llama-1b-bf16",), ratio("prompt")),
    Figure("Llama-1B, prompt 128, Q4_0", 3.0, 4.5, "x", ("model-llama-1b-q4_0-p128",), ratio("prompt")),
    Figure("Q8_0", 3.0, 4.5, "x", ("model-llama-1b-q8_0-p128",), ratio("prompt")),
    Figure("Llama-1B, prompt 32, Q4_0", 2.0, 3.0, "x", ("model-llama-1b-q4_0-p32",), ratio("prompt")),
    Figure("Q8_0", 2.0, 3.0, "x", ("model-llama-1b-q8_0-p32",), ratio("prompt")),
    Figure("Llama-1B, decoding, Q4_0, of the floor", 88, 94, "%", Q4_0, of_floor),
    Figure("Q8_0", 92, 96, "%", ("model-llama-1b-q8_0",), of_floor),
    Figure("BF16", 92, 96, "%", ("model-llama-1b-bf16",), of_floor),
    Figure("Llama-1B Q4_0, decoding 8 sequences over one", 4.5, 6.0, "x", Q4_0, lambda report: report["batch"]["ratio"]),
    Figure("SmolLM2 capped at AVX-512, prompt, of llama.cpp so", 3.8, 4.5, "x", CAPPED, ratio("prompt")),
    Figure("decoding", 2.4, 2.8, "x", CAPPED, ratio("decode")),
    Figure("bf16 tiles, 4096 x 4096, 512 rows, of the peak", 48, 60, "%", ("cpu-ops",), tile_share(512)),
    Figure("128 rows", 34, 48, "%", ("cpu-ops",), tile_share(128)),
    Figure("32 rows", 35, 42, "%", ("cpu-ops",), tile_share(32)),
    Figure("own bf16 products over oneDNN's", 1.15, 1.4, "x", ("gemm-dev-bf16",), over_onednn),
    Figure("own W8A8 products over oneDNN's int8", 1.0, 1.2, "x", ("gemm-dev-w8a8",), over_onednn),
    Figure("fastest of the registry over the tuned choice, worst", 0.97, 1.0, "x", ("cpu-ops",), lambda report: min(row["kept"] for row in report["tuned"])),
    Figure("causal prompt of 2,048, of the bf16 peak", 22, 35, "%", ("cpu-ops",), lambda report: report["attention"][0]["percent_of_peak"]["median"]),
    Figure("first token of a prompt of 32, SmolLM2, of llama.cpp", 1.0, 1.67, "x", SMOLLM2, lambda report: report["first_token_s"]["ratio"]),
    Figure("Llama-1B Q4_0", 1.0, 1.67, "x", Q4_0, lambda report: report["first_token_s"]["ratio"]),
)


def heading(name: str) -> str:
    """Return the heading of a column: "16, shared" is one of 16 threads on a host that others share."""
    threads, _, where = name.partition(", ")
    return f"{threads} threads" + {"": "", "shared": ", shared host"}.get(where, f", {where}")


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = ["2=-xeon-amx-2cores", "2, shared=-xeon-amx-2threads", "16, shared=-xeon-amx-16threads", "2, Zen 4=-zen4-2cores", "2, Zen 5=-zen5-2cores"]
    parser.add_argument("--columns", nargs="+", default=default, metavar="NAME=SUFFIX")
    parser.add_argument("--name", default="cpu-table", help="of the result")
    arguments = parser.parse_args()
    if wrong := [word for word in arguments.columns if "=" not in word]:
        parser.error(f"--columns: '{wrong[0]}' is not NAME=SUFFIX")
    columns = [Column(name, heading(name), suffix) for name, suffix in (word.split("=", 1) for word in arguments.columns)]
    write(arguments.name, FIGURES, columns, "processor", "python3 bench/record/cpu_table.py")


if __name__ == "__main__":
    main()
