#!/usr/bin/env python3
"""Record those of our own GEMM kernels that the library chooses and oneDNN's, alternating in one run.

    record_gemm.py [SHAPES.csv] --tilewright build/cli/tilewright --onednn build/bench/onednn_bench

SHAPES.csv has the columns name, n, k (default: bench/shapes/smollm2_llama1b.csv); every shape is
measured with the rows of --m and the weight types of --types. Ours is what `tilewright bench gemm`
chooses from our own kernels after `tilewright tune` (--tune 0: without), oneDNN is bench/onednn_bench: matmul with weights
packed in oneDNN's own layout, its threads left to the system or bound to cores, whichever is faster. A shape
is measured by both in turn, and the ratio is the median of the rounds', since a machine can change its speed
within seconds. Both rotate over copies of the weights, as many bytes together (`cold_bytes` of `doctor --json`).

Block formats multiply in int8 and are compared with oneDNN's u8 x s8 matmul, which has no block
scales and reads 8 bits per weight: neither the same work nor the same bytes, so that column is a
yardstick, not a race. With --precision w8a8 all types are compared with it: ours then also reads f32,
rounds it and applies scales.

Percent of peak: multiplications and additions against a loop over registers (int8 for block
formats, bf16 for kernels that round to it); percent of bandwidth: bytes of the weights against reading memory; both measured in each
round. More than 100 % of the bandwidth means that the weights stayed in the cache.

Writes bench/results/NAME.json and NAME.md. Takes some minutes; --budget ends it after the round
that exceeds it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common


Key = tuple[str, int, int, int]  # type, m, n, k

OWN = ["--providers", "own"]  # oneDNN's kernels are among ours too
FREE = {"OMP_PROC_BIND": "false"}
BOUND = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}


def read_shapes(path: Path) -> dict[tuple[int, int], str]:
    """Return the names of n and k of all rows, each pair once."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "#"]
    shapes: dict[tuple[int, int], str] = {}
    for row in csv.DictReader(lines):
        shapes.setdefault((int(row["n"]), int(row["k"])), row["name"])
    if not shapes:
        common.fail(f"{path}: no shapes")
    return shapes


class Recording:
    """The samples of all rounds."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.ours: dict[Key, list[float]] = {}
        # The type is oneDNN's; threads left to the system, and bound.
        self.theirs: tuple[dict[Key, list[float]], dict[Key, list[float]]] = ({}, {})
        self.rows: dict[Key, dict[str, Any]] = {}
        self.implementations: dict[Key, str] = {}
        self.read_gb_s: list[float] = []
        self.peaks: dict[str, list[float]] = {"f32": [], "bf16": [], "int8": []}
        self.device = ""
        self.cold_bytes = 0

    def machine(self) -> None:
        """Measure what the floor is made of."""
        report = common.run_json([self.arguments.tilewright, "doctor", "--json", "--threads", self.arguments.threads])
        self.device = report["device"]
        self.cold_bytes = max(self.cold_bytes, int(report["cold_bytes"]))
        self.read_gb_s.append(report["read_gb_s"])
        self.peaks["f32"].append(report["f32_gflop_s"])
        self.peaks["int8"].append(report["i8_gop_s"])

    def measure_ours(self, type_name: str, name: str, n: int, k: int) -> None:
        """Measure one shape: one process."""
        a = self.arguments
        with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
            shape = Path(folder) / "shape.csv"
            shape.write_text(f"name,n,k\n{name},{n},{k}\n", encoding="utf-8")
            command = [a.tilewright, "bench", "gemm", "--shapes", shape, "--m", a.m, "--type", type_name, "--json"]
            command += ["--precision", a.precision, *OWN]
            report = common.run_json([*command, "--repeat", a.samples, "--threads", a.threads])
        if "bf16" in report["peaks"]:
            self.peaks["bf16"].append(report["peaks"]["bf16"]["gop_s"])
        for row in report["rows"]:
            key = (type_name, row["m"], row["n"], row["k"])
            self.ours.setdefault(key, []).append(row["us_median"])
            self.rows[key] = row

    def measure_theirs(self, type_name: str, n: int, k: int) -> None:
        """Measure one shape: two processes."""
        a = self.arguments
        command = [a.onednn, "--type", type_name, "--m", a.m, "--n", n, "--k", k, "--rotate", self.cold_bytes]
        for environment, found in zip((FREE, BOUND), self.theirs):
            for line in common.run([*command, "--samples", a.samples, "--threads", a.threads], environment).splitlines():
                row = json.loads(line)
                key = (type_name, row["m"], n, k)
                found.setdefault(key, []).append(row["us_median"])
                self.implementations[key] = row["implementation"]

    def report_row(self, key: Key) -> dict[str, Any]:
        """Return one row of the result."""
        type_name, m, n, k = key
        row = self.rows[key]
        us = common.summarize(self.ours[key])
        floats = type_name in ("f32", "f16", "bf16") and self.arguments.precision != "w8a8"
        peak = "bf16" if row["kernel"].endswith(".abf16") and self.peaks["bf16"] else "f32" if floats else "int8"
        gop_s = 2e-3 * m * n * k / us["median"]
        gb_s = 1e-3 * row["weight_bytes"] / us["median"]
        report = {"name": row["name"], "type": type_name, "m": m, "n": n, "k": k, "us": us}
        report |= {
            "gop_s": round(gop_s, 1),
            "percent_of_peak": round(100 * gop_s / common.summarize(self.peaks[peak])["median"], 1),
            "gb_s": round(gb_s, 2),
            "percent_of_bandwidth": round(100 * gb_s / common.summarize(self.read_gb_s)["median"], 1),
            "kernel": row["kernel"],
            "provenance": row["provenance"],
        }
        other = (baseline_of(type_name, self.arguments.precision), m, n, k)
        if other in self.theirs[0]:
            free, bound = (found[other] for found in self.theirs)
            theirs = min(free, bound, key=statistics.median)
            report["onednn"] = {
                "type": other[0],
                "us": common.summarize(theirs),
                "threads_bound": theirs is bound,
                "implementation": self.implementations[other],
                "ratio": round(statistics.median(t / o for t, o in zip(theirs, self.ours[key])), 3),
            }
        return report


def baseline_of(type_name: str, precision: str) -> str:
    """Return the type in which oneDNN multiplies."""
    if precision == "w8a8":
        return "int8"
    return type_name if type_name in ("f32", "bf16") else "int8"


def make_table(arguments: argparse.Namespace, rows: list[dict[str, Any]], recording: Recording) -> str:
    """Return a table of one line for each type and number of rows, and one for all of them."""
    lines = []
    all_m = [int(word) for word in arguments.m.split(",")]
    for type_name in arguments.types.split(","):
        for numbers in [*([m] for m in all_m), all_m]:
            some = [row for row in rows if row["type"] == type_name and row["m"] in numbers]
            if not some:
                continue

            def span(name: str) -> str:
                values = [row[name] for row in some]
                return f"{common.geometric_mean(values):.0f} ({min(values):.0f}-{max(values):.0f})"

            ratios = [row["onednn"]["ratio"] for row in some if "onednn" in row]
            gain = f"{common.geometric_mean(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})" if ratios else "-"
            other = "oneDNN " + baseline_of(type_name, arguments.precision) if ratios else "-"
            rate, peak, bandwidth = (span(name) for name in ("gop_s", "percent_of_peak", "percent_of_bandwidth"))
            m = str(numbers[0]) if len(numbers) == 1 else "all"
            lines.append([type_name, m, rate, peak, bandwidth, gain, other])
    header = ["weights", "m", "Gop/s", "% of peak", "% of bandwidth", "speed-up", "over"]
    read = common.summarize(recording.read_gb_s)["median"]
    peaks = ", ".join(f"{name} {common.summarize(found)['median']:.0f} Gop/s" for name, found in recording.peaks.items() if found)
    title = f"{len(read_shapes(arguments.shapes))} shapes of {arguments.shapes.name}, {arguments.threads} threads, "
    title += "geometric means (lowest-highest); each shape in the JSON"
    floor = f"Measured in each round: {read:.1f} GB/s read, {peaks}."
    return f"{title}\n\n{common.table(header, lines, left=(0, 6))}\n\n{floor}"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    shapes = common.ROOT / "bench" / "shapes" / "smollm2_llama1b.csv"
    parser.add_argument("shapes", type=Path, nargs="?", default=shapes, help="CSV file")
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="our binary")
    parser.add_argument("--onednn", type=Path, help="onednn_bench (default: beside the binary, ../bench/; none if absent)")
    parser.add_argument("--m", default="1,16,512", help="numbers of rows")
    parser.add_argument("--types", default="f32,q4_1,q8_0", help="weight types, separated by commas")
    parser.add_argument("--precision", default="auto", help="to which activations may be rounded, as `tilewright bench gemm --precision`")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--samples", type=int, default=5, help="samples of each row per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no new round begins")
    common.add_tuning(parser, "8s")
    parser.add_argument("--name", help="of the result (default: gemm-FILE)")
    arguments = parser.parse_args()
    arguments.onednn = arguments.onednn or arguments.tilewright.absolute().parents[1] / "bench" / "onednn_bench"
    arguments.name = arguments.name or "gemm-" + arguments.shapes.stem
    common.need_files(parser, arguments.tilewright, arguments.shapes)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    shapes = read_shapes(arguments.shapes)
    types = arguments.types.split(",")
    baselines = list(dict.fromkeys(baseline_of(name, arguments.precision) for name in types))
    if not arguments.onednn.exists():
        print(f"warning: no {arguments.onednn.name}: recorded without a baseline", file=sys.stderr)
        baselines = []
    common.warn_if_loaded()
    words = [["--shapes", arguments.shapes, "--m", arguments.m, "--type", name, "--activations", arguments.precision, *OWN] for name in types]
    tuned = common.tune(arguments, words)
    quiet = common.Quiet()
    recording = Recording(arguments)
    start = time.monotonic()
    done = 0
    for done in range(1, arguments.rounds + 1):
        recording.machine()
        for (n, k), name in shapes.items():
            for type_name in types:
                recording.measure_ours(type_name, name, n, k)
            for baseline in baselines:
                recording.measure_theirs(baseline, n, k)
        print(f"round {done} of {arguments.rounds}, {time.monotonic() - start:.0f} s", file=sys.stderr)
        if time.monotonic() - start > arguments.budget:
            break
    rows = [recording.report_row(key) for key in recording.ours]
    report = {
        "provenance": common.provenance(arguments.tilewright, recording.device),
        "quiet": quiet.report(),
        "tuned": tuned,
        "threads": arguments.threads,
        "precision": arguments.precision,
        "rounds": done,
        "unit": "microseconds of one call, weights cold; medians over rounds of the rounds' medians",
        "read_gb_s": common.summarize(recording.read_gb_s),
        "peak_f32_gflop_s": common.summarize(recording.peaks["f32"]),
        "peak_int8_gop_s": common.summarize(recording.peaks["int8"]),
        **({"peak_bf16_gflop_s": common.summarize(recording.peaks["bf16"])} if recording.peaks["bf16"] else {}),
        "rows": rows,
    }
    common.write(arguments.name, report, make_table(arguments, rows, recording))


if __name__ == "__main__":
    main()
