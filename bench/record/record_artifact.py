#!/usr/bin/env python3
"""Record what the artifact store costs and what a cold compilation takes, on a machine without a GPU.

    record_artifact.py --tilewright build/cli/tilewright --bench build/bench/artifact/artifact_bench

Cold: every kernel of the catalog of --arch, each compiled in a fresh process by NVRTC with its own
cache off and without precompiled headers: the time from loading NVRTC to the finished image. Keys,
handles, files, bundles and the opening of a store are measured inside one process, many times; see
bench/artifact/artifact_bench.cc. Layouts: the first use of a kernel in a new process, from each
place that may have it. Herd: 16 processes of 8 threads that all request the same 50 cold kernels.

NVRTC is found as by the library; TILEWRIGHT_NVRTC names another one. Writes
bench/results/NAME.json and NAME.md. Takes about 2 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

import common

LIMITS = {
    "cold_p95_ms": 400,
    "cold_max_ms": 1000,
    "key_us": 20,
    "find_ns": 100,
    "find_allocations": 0,
    "file_hit_us": 200,
    "bundle_miss_ns": 1000,
    "open_ms": 5,
}


def measure(arguments: argparse.Namespace, *words: str) -> dict[str, Any]:
    """Run one verb of artifact_bench."""
    return json.loads(common.run([str(arguments.bench), *words], timeout=1200))


def summarize_cold(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return quantiles of the total time, over all kernels and by family."""
    families: dict[str, list[dict[str, Any]]] = {}
    for kernel in kernels:
        families.setdefault(kernel["spec"].split(".")[0], []).append(kernel)
    return {name: quantiles(rows) for name, rows in [("all", kernels), *families.items()]}


def quantiles(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return p50, p95 and the highest, and which kernel that is."""
    times = sorted(kernel["total_ms"] for kernel in kernels)
    p95 = statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
    slowest = max(kernels, key=lambda kernel: kernel["total_ms"])
    return {
        "kernels": len(kernels),
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(p95, 1),
        "max_ms": round(times[-1], 1),
        "slowest": slowest["spec"],
    }


def limits_table(report: dict[str, Any]) -> str:
    """Return every figure that has a limit, together with the limit."""
    cold, key, find = report["cold"]["summary"]["all"], report["key"]["key_us"], report["find"]
    herd = report["herd"]

    def row(what: str, value: float, unit: str, limit: float) -> list[str]:
        return [what, f"{value:.3g} {unit}", f"{limit:g} {unit}", "yes" if value <= limit else "NO"]

    rows = [
        row(f"cold compile, fresh process, {cold['kernels']} kernels, p95", cold["p95_ms"], "ms", LIMITS["cold_p95_ms"]),
        row("cold compile, slowest", cold["max_ms"], "ms", LIMITS["cold_max_ms"]),
        row("both keys of a spec, median", key["median"], "us", LIMITS["key_us"]),
        row("spec to handle on a hit, median", find["find_ns"]["median"], "ns", LIMITS["find_ns"]),
        row("spec to handle, allocations", find["allocations"], "", LIMITS["find_allocations"]),
        row("file hit, 150 KB, median", report["file"]["file_hit_us"]["median"], "us", LIMITS["file_hit_us"]),
        row("bundle miss, median", report["bundle"]["bundle_miss_ns"]["median"], "ns", LIMITS["bundle_miss_ns"]),
        row("opening a store of 1,000 entries, median", report["open"]["open_ms"]["median"], "ms", LIMITS["open_ms"]),
        [
            f"{herd['processes']} processes x {herd['threads']} threads, {herd['kernels']} cold kernels: compiles",
            str(herd["compiles"]),
            str(herd["kernels"]),
            "yes" if herd["compiles"] == herd["kernels"] and herd["failures"] == 0 else "NO",
        ],
    ]
    return common.table(["what", "measured", "limit", "kept"], rows)


def layout_table(rows: list[dict[str, Any]]) -> str:
    """Return the first use of a kernel in a new process, by layout and place."""
    by_layout: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_layout.setdefault(row["layout"], {})[row["from"]] = row["result"]
    lines = []
    for layout, places in by_layout.items():
        lines.append(
            [layout, f"{places['cold']['first_us'] / 1e3:.0f} ms"]
            + [f"{places[place]['first_us']:.0f} us" for place in ("file", "bundle")]
            + [f"{places['file']['memory_ns']:.0f} ns"]
        )
    known = statistics.median(row["result"]["compiler_us"] for row in rows if row["from"] == "file") / 1e3
    return (
        common.table(["layout", "cold", "file", "bundle", "memory"], lines)
        + f"\n\nCold and file hits need to know which compiler is here: {known:.1f} ms once a process, not in the table."
    )


def cold_table(summary: dict[str, dict[str, Any]]) -> str:
    """Return the quantiles by family."""
    rows = [
        [name, str(row["kernels"]), *(f"{row[key]:.0f} ms" for key in ("p50_ms", "p95_ms", "max_ms"))]
        for name, row in summary.items()
    ]
    return common.table(["family", "kernels", "p50", "p95", "max"], rows)


def make_text(arguments: argparse.Namespace, report: dict[str, Any]) -> str:
    """Return the page."""
    herd = report["herd"]
    return "\n\n".join(
        [
            f"Compiled kernels: the store and the compiler, {report['cold']['compiler']}",
            limits_table(report),
            f"Cold compile of the catalog of {', '.join(arguments.arch)}, each kernel in a process of its own",
            cold_table(report["cold"]["summary"]),
            "First use of one kernel in a new process (store opened, nothing in memory), and every later use",
            layout_table(report["layouts"]["layouts"]),
            f"The herd was done after {herd['wall_ms'] / 1e3:.1f} s.",
        ]
    )


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="our binary")
    parser.add_argument("--bench", type=Path, help="artifact_bench (default: beside the binary, ../bench/artifact/)")
    parser.add_argument("--arch", nargs="+", default=["sm_90a"], help="architectures of the cold compilations")
    parser.add_argument("--name", help="of the result (default: artifact-CPU)")
    arguments = parser.parse_args()
    beside = arguments.tilewright.absolute().parents[1] / "bench" / "artifact" / "artifact_bench"
    arguments.bench = arguments.bench or beside
    cpu = re.sub(r"\(R\)|\(TM\)|CPU|@.*|Processor", "", common.cpu_model())
    arguments.name = arguments.name or "artifact-" + re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-")
    common.need_files(parser, arguments.tilewright, arguments.bench)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    common.warn_if_loaded()
    device = common.run_json([arguments.tilewright, "doctor", "--json"])["device"]
    # The measurements must neither use nor fill the user's store.
    os.environ.pop("TILEWRIGHT_CACHE_DIR", None)
    quiet = common.Quiet()
    report: dict[str, Any] = {verb: measure(arguments, verb) for verb in ("key", "find", "file", "open", "bundle")}
    report["cold"] = measure(arguments, "cold", *arguments.arch)
    report["cold"]["summary"] = summarize_cold(report["cold"]["kernels"])
    report["layouts"] = measure(arguments, "layouts")
    report["herd"] = measure(arguments, "herd")
    head = {"provenance": common.provenance(arguments.tilewright, device), "quiet": quiet.report(), "limits": LIMITS}
    report = {**head, **report}
    common.write(arguments.name, report, make_text(arguments, report))


if __name__ == "__main__":
    main()
