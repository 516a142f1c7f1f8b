#!/usr/bin/env python3
"""Record what became of damaged models of every architecture.

    record_mutations.py --tests build-asan/tests/fuzz --count 300000

Runs `mutated_models` (tests/fuzz/mutated_models.cc) over the models that `model_seeds` writes: a
copy of one of them is changed at random, loaded as every architecture with and without merged
weights and, where it still is a model, runs a pass. The count is divided into parts with seeds of
their own, so that a run that is stopped goes on with the next part (--state keeps what was done).
Of a build with a sanitizer (preset `asan`) every report of it counts as a crash.

--fuzz-log records what the fuzzer of the same loader has said (preset `fuzz`, under sanitizers; it runs no pass):

    build-fuzz/fuzz/model_fuzz -runs=300000 -timeout=20 -print_final_stats=1 CORPUS build-fuzz/corpus/model_fuzz 2> LOG

Writes bench/results/NAME.json and NAME.md: files and those that ran, by architecture. Exits with 1
where a file crashed or hung, with the command that repeats it. 300,000 take some hours on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

OF_SEED = re.compile(r"^(\S+): (\d+) files, (\d+) ran$", re.MULTILINE)
SUMMARY = re.compile(r"^(\d+) mutated files of \d+ models, (\d+) ran, the slowest took ([\d.]+) s$", re.MULTILINE)
# How a model scales RoPE and whether it has experts, behind the name of its architecture.
VARIANT = re.compile(r"_(linear|yarn|longrope|llama3|)(_sparse)?$")
STRICT = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:abort_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def fuzzer_of(log: Path) -> dict[str, Any]:
    """Return the counts of a fuzzer that ended well; exit where it did not."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = dict(re.findall(r"^stat::(\w+):\s*(\d+)$", text, re.MULTILINE))
    if not re.search(r"^Done \d+ runs", text, re.MULTILINE) or "SUMMARY:" in text or not found:
        common.fail(f"{log}: not the output of a fuzzer that ended well")
    return {
        "files": int(found["number_of_executed_units"]),
        "slowest_s": int(found["slowest_unit_time_sec"]),
        "sanitizers": "address,undefined",
    }


def sanitizers_of(build: Path) -> str:
    """Return what the build folder was configured with, such as `address,undefined`."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^TILEWRIGHT_SANITIZE:\w+=(.*)$", cache, re.MULTILINE)
    return found.group(1) if found and found.group(1) else "none"


def run_part(arguments: argparse.Namespace, seeds: Path, number: int, count: int) -> dict[str, Any]:
    """Run one part; exit where it fails."""
    start = time.monotonic()
    command = [arguments.tests / "mutated_models", seeds, count, number]
    result = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, errors="replace", check=False, env={**os.environ, **STRICT}
    )
    summary = SUMMARY.search(result.stdout)
    if result.returncode != 0 or summary is None:
        common.fail(f"exit {result.returncode} of: {' '.join(map(str, command))}\n{result.stderr.strip()}")
    return {
        "seed": number,
        "files": count,
        "by_model": {name: [int(files), int(ran)] for name, files, ran in OF_SEED.findall(result.stdout)},
        "slowest_s": float(summary.group(3)),
        "seconds": round(time.monotonic() - start),
    }


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build-asan"
    parser.add_argument("--tests", type=Path, default=build / "tests" / "fuzz", help="folder of mutated_models and model_seeds")
    parser.add_argument("--tilewright", type=Path, default=common.ROOT / "build" / "cli" / "tilewright", help="for its version")
    parser.add_argument("--count", type=int, default=300000)
    parser.add_argument("--part", type=int, default=10000, help="files of a part")
    parser.add_argument("--seed", type=int, default=1, help="of the first part; those of the others follow")
    parser.add_argument("--state", type=Path, help="file that keeps the parts that are done")
    parser.add_argument("--fuzz-log", type=Path, help="output of model_fuzz, to be recorded too")
    parser.add_argument("--name", default="mutations")
    arguments = parser.parse_args()
    fuzzer = fuzzer_of(arguments.fuzz_log) if arguments.fuzz_log else None
    parts: list[dict[str, Any]] = []
    if arguments.state and arguments.state.exists():
        parts = json.loads(arguments.state.read_text())
    with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
        seeds = Path(folder) / "seeds"
        common.run([arguments.tests / "model_seeds", seeds])
        while (left := arguments.count - sum(part["files"] for part in parts)) > 0:
            parts.append(run_part(arguments, seeds, arguments.seed + len(parts), min(arguments.part, left)))
            print(f"{arguments.count - left + parts[-1]['files']} of {arguments.count} files", file=sys.stderr, flush=True)
            if arguments.state:
                arguments.state.write_text(json.dumps(parts))
    totals: dict[str, list[int]] = {}
    for part in parts:
        for name, counts in part["by_model"].items():
            total = totals.setdefault(VARIANT.sub("", name), [0, 0])
            total[0] += counts[0]
            total[1] += counts[1]
    count = sum(part["files"] for part in parts)
    sanitizers = sanitizers_of(arguments.tests.parents[1])
    report = {
        "provenance": common.provenance(arguments.tilewright, "any"),
        "sanitizers": sanitizers,
        "files": count,
        "ran": sum(ran for _, ran in totals.values()),
        "crashes": 0,
        "hangs": 0,
        "slowest_s": max(part["slowest_s"] for part in parts),
        "parts": parts,
        "fuzzer": fuzzer,
    }
    rows = [[name, f"{files:,}", f"{ran:,}"] for name, (files, ran) in sorted(totals.items())]
    rows.append(["all", f"{count:,}", f"{report['ran']:,}"])
    text = (
        f"{count:,} damaged models, no crash, none that took 20 s (the slowest {report['slowest_s']:.1f} s); sanitizers: {sanitizers}\n\n"
        + common.table(["architecture", "files", "of which ran a pass"], rows)
    )
    if fuzzer:
        text += (
            f"\n\nmodel_fuzz, which only loads: {fuzzer['files']:,} files under {fuzzer['sanitizers']}, no report, none that took 20 s "
            f"(the slowest {fuzzer['slowest_s']} s)"
        )
    common.write(arguments.name, report, text)


if __name__ == "__main__":
    main()
