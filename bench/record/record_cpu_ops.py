#!/usr/bin/env python3
"""Record single operations on the CPU: the choice beside the whole registry, shares of the bf16 peak, attention.

    record_cpu_ops.py [--shapes bench/shapes/smollm2_llama1b.csv] [--threads 2] [--parts tuned,tiles,attention]

tuned: after `tilewright tune`, every launch of every kernel of each product (--shapes, --m, --types) is timed in turn, weights cold,
and then the four fastest, the choice and what a machine without records would run again in turn (`tilewright bench op gemm --all
--again`): the least of many medians is too low by luck alone. That in several processes (--processes), since which of two launches
is ahead may depend on where a process has its memory and on what the machine does for seconds. Of each launch that was timed again
in most of them, the median of its time over the choice's: "kept" is the least, 1 where that is the choice; "guess" is the same over what
runs without records.

tiles: products of 512, 128 and 32 rows, 4096 x 4096, by the kernels of bf16 tiles (`gemm_amx_bench`), as the share of the peak of
bf16 tiles on live data, which is measured before each sample. Left out where there is no AMX.

attention: a causal prompt of 2,048 positions, head dimension 128, as the share of the bf16 peak measured in the same
process; operations are those that are of use, so without the masked half.

Writes bench/results/NAME.json and NAME.md. Takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import common
from record_gemm import read_shapes

PARTS = "tuned,tiles,attention"
TILE_ROWS = (512, 128, 32)
ATTENTION = "rows=2048 sequences=1 context=2048 heads=32 kv_heads=8 head_dim=128 type_q=f32"
TILE_LINE = re.compile(r"^(?P<type>\w+) m=(?P<m>\d+) \S+ \S+ +(?P<kernel>\S+) +(?P<us>[\d.]+) us .* (?P<share>[\d.]+) %$", re.MULTILINE)
TILE_PEAK = re.compile(r"peak of bf16 tiles (\d+) GFLOP/s")

Row = dict[str, Any]


def bench_op(arguments: argparse.Namespace, operation: str, problems: list[str], *more: Any) -> dict[str, Any]:
    """Time every launch of each problem in one process."""
    command = [arguments.tilewright, "bench", "op", operation, *problems, "--all", "--json", *more]
    return common.run_json([*command, "--repeat", arguments.samples, "--threads", arguments.threads], timeout=600)


def compare(runs: list[Row]) -> Row:
    """Return the choice beside the launch that is fastest in most processes."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for one in run["launches"]:
            if one.get("again") and one["us_median"] is not None:
                ratios.setdefault((one["kernel"], one["spec"]), []).append(one["us_median"] / run["us_median"])
    often = {launch: statistics.median(found) for launch, found in ratios.items() if 2 * len(found) > len(runs)}
    (kernel, spec), kept = min(often.items(), key=lambda item: item[1])
    guess = statistics.median(run["first_guess_us"] / run["us_median"] for run in runs)
    row = {name: runs[0][name] for name in ("kernel", "spec", "provenance", "model_rank", "candidates", "floor_us")}
    us = statistics.median(run["us_median"] for run in runs)
    row |= {"us": us, "kept": round(kept, 4), "guess": round(kept / guess, 4)}
    return row | {"fastest": {"kernel": kernel, "spec": spec, "us": round(us * kept, 3)}}


def record_tuned(arguments: argparse.Namespace) -> list[Row]:
    """Return a row for each product."""
    rows = []
    start = time.monotonic()
    for type_name in arguments.types.split(","):
        for m in arguments.m.split(","):
            if time.monotonic() - start > arguments.budget:
                print("warning: the budget ended before all products were timed", file=sys.stderr)
                return rows
            shapes = read_shapes(arguments.shapes)
            problems = [f"m={m} n={n} k={k} type_b={type_name}" for n, k in shapes]
            processes = [bench_op(arguments, "gemm", problems, "--again", arguments.again)["rows"] for _ in range(arguments.processes)]
            for (n, k), *runs in zip(shapes, *processes):
                rows.append({"type": type_name, "m": int(m), "n": n, "k": k, **compare(runs)})
    return rows


def record_tiles(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fastest AMX kernel of each product, and the peaks."""
    words = ["--threads", arguments.threads, "--types", "q4_0,q8_0,q4_k,bf16", "--kernels", ".amx."]
    words += ["--m", ",".join(str(rows) for rows in TILE_ROWS)]
    best: dict[str, Row] = {}
    peaks = []
    for _ in range(arguments.rounds):
        output = common.run([arguments.amx_bench, *words])
        peaks.append(float(TILE_PEAK.search(output).group(1)))
        for found in TILE_LINE.finditer(output):
            if not found["kernel"].endswith(".abf16"):
                continue
            key = f"{found['type']} x {found['m']}"
            share = float(found["share"])
            if key not in best or share > best[key]["percent_of_peak"]:
                best[key] = {"percent_of_peak": share, "us": float(found["us"]), "kernel": found["kernel"]}
    return {"peak_gflop_s": common.summarize(peaks), "products": best}


def record_attention(arguments: argparse.Namespace) -> list[Row]:
    """Return a row for each type of cache."""
    rows = []
    for type_kv in ("bf16", "f16"):
        shares = []
        for _ in range(arguments.rounds):
            report = bench_op(arguments, "attention", [f"{ATTENTION} type_kv={type_kv}"])
            row = report["rows"][0]
            rate = max(row["operations"] / one["us_median"] * 1e-3 for one in row["launches"] if one["us_median"] is not None)
            shares.append(100 * rate / report["peaks"]["bf16"]["gop_s"])
        rows.append({"type_kv": type_kv, "percent_of_peak": common.summarize(shares, 1), "kernel": row["kernel"], "us": row["us_median"]})
    return rows


def tables(report: dict[str, Any]) -> str:
    """Return the tables for a reader."""
    parts = []
    if tuned := report.get("tuned"):
        rows = []
        for type_name, m in dict.fromkeys((row["type"], row["m"]) for row in tuned):
            some = [row for row in tuned if (row["type"], row["m"]) == (type_name, m)]
            worst = min(some, key=lambda row: row["kept"])
            guesses = [row["guess"] for row in some]
            rows.append([
                type_name, str(m), f"{common.geometric_mean([row['kept'] for row in some]):.3f}", f"{worst['kept']:.3f} ({worst['n']} x {worst['k']})",
                f"{common.geometric_mean(guesses):.2f} ({min(guesses):.2f})", f"{statistics.median(row['candidates'] for row in some):.0f}",
            ])
        header = ["weights", "m", "fastest over choice", "worst", "fastest over first guess (worst)", "launches, median"]
        parts.append(common.table(header, rows, left=(0, 3)))
        median = statistics.median(row["candidates"] for row in tuned)
        parts.append(f"All products: {median:.0f} launches in the median, worst choice {min(row['kept'] for row in tuned):.3f}.")
    if tiles := report.get("tiles"):
        rows = [[name, f"{one['percent_of_peak']:.0f} %", f"{one['us']:.0f}", one["kernel"]] for name, one in tiles["products"].items()]
        parts.append(common.table(["4096 x 4096, rows", "of the bf16 peak", "us", "kernel"], rows, left=(0, 3)))
        parts.append(f"Peak of bf16 tiles: {common.spread(tiles['peak_gflop_s'], unit=' GFLOP/s')}.")
    if attention := report.get("attention"):
        rows = [[one["type_kv"], common.spread(one["percent_of_peak"], 1, " %"), one["kernel"]] for one in attention]
        parts.append(common.table(["causal prompt of 2,048, heads 32/8 of 128, cache", "of the bf16 peak", "kernel"], rows, left=(0, 2)))
    return "\n\n".join(parts)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    shapes = common.ROOT / "bench" / "shapes" / "smollm2_llama1b.csv"
    parser.add_argument("--shapes", type=Path, default=shapes, help="CSV file of n and k")
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="our binary")
    parser.add_argument("--amx-bench", type=Path, default=build / "bench" / "gemm_amx_bench")
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--m", default="1,8,32,128,512", help="numbers of rows")
    parser.add_argument("--types", default="q4_0,q8_0,bf16", help="weight types, separated by commas")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--samples", type=int, default=5, help="samples of each launch")
    parser.add_argument("--again", type=int, default=21, help="of the fastest few and the choice")
    parser.add_argument("--processes", type=int, default=3, help="that time each product")
    parser.add_argument("--rounds", type=int, default=3, help="of tiles and attention")
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no other product is timed")
    common.add_tuning(parser, "30s")
    parser.add_argument("--name", default="cpu-ops", help="of the result")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts.split(",")) - set(PARTS.split(",")):
        parser.error(f"--parts: {', '.join(sorted(unknown))}: not one of {PARTS}")
    common.need_files(parser, arguments.tilewright, arguments.shapes)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    parts = arguments.parts.split(",")
    common.warn_if_loaded()
    words = [["--shapes", arguments.shapes, "--m", arguments.m, "--type", name] for name in arguments.types.split(",")]
    tuned = common.tune(arguments, words if "tuned" in parts else [])
    quiet = common.Quiet()
    doctor = common.run_json([arguments.tilewright, "doctor", "--json", "--threads", arguments.threads])
    report: dict[str, Any] = {
        "provenance": common.provenance(arguments.tilewright, doctor["device"]),
        "tuning": tuned,
        "threads": arguments.threads,
        "unit": "microseconds, weights cold, medians; kept: the fastest launch's time over the choice's",
    }
    title = f"{arguments.threads} threads, medians of {arguments.samples} samples, then of {arguments.again}, in {arguments.processes} processes"
    # Written after each part, so that one that is stopped leaves the others.
    for part, record in (("tuned", record_tuned), ("tiles", record_tiles), ("attention", record_attention)):
        if part in parts and (part != "tiles" or "amx" in doctor["device"]):
            report[part] = record(arguments)
            report["quiet"] = quiet.report()
            common.write(arguments.name, report, f"{title}\n\n{tables(report)}")


if __name__ == "__main__":
    main()
