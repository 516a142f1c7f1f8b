#!/usr/bin/env python3
"""Record what a change costs or gains: two builds of tilewright, alternating in one run.

    record_against.py --before OLD/cli/tilewright --tilewright build/cli/tilewright --model MODEL.gguf

Each build tunes into a folder of its own first (--tune 0: not). Then each round measures prompt and
decode speed, the time from exec to the first byte of output, memory right after that byte, and lookup
times (from the lookup_bench next to each binary), once for each build, in an order that rotates with
the round.

A ratio above 1 means that the new build is better; below --least, 0.98, the row says NO. Writes
bench/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import common
import record_model
import record_startup

MIB = 1 << 20


class Build:
    """One build, its folder of records and its samples."""

    def __init__(self, arguments: argparse.Namespace, binary: Path) -> None:
        self.arguments = argparse.Namespace(**{**vars(arguments), "tilewright": binary, "cache": None})
        self.startup = argparse.Namespace(**{**vars(self.arguments), "prompt": record_startup.PROMPT})
        self.tuned = common.tune(self.arguments, [[arguments.model]])
        self.cache = os.environ["TILEWRIGHT_CACHE_DIR"]
        self.speed = record_model.Ours()
        self.first_byte_ms: list[float] = []
        self.memory: list[dict[str, int]] = []
        self.lookup: dict[str, list[float]] = {"find": [], "lower_bound": [], "floor_bound": []}

    def measure(self) -> None:
        """Run one round."""
        os.environ["TILEWRIGHT_CACHE_DIR"] = self.cache
        self.speed.measure(self.arguments)
        for _ in range(3):
            process, took = record_startup.start(self.startup, 2)
            process.communicate()
            self.first_byte_ms.append(took)
        self.memory += record_startup.measure_memory(self.startup, 1)
        program = self.arguments.tilewright.parents[1] / "bench" / "lookup_bench"
        if program.exists():
            measured = common.run_json([program])
            for key, samples in self.lookup.items():
                samples.append(measured[key]["ns_median"])

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return every figure with its samples."""
        figures = {
            f"prompt {self.arguments.prompt}, tok/s": common.summarize(self.speed.samples["prompt"]),
            f"decode {self.arguments.decode}, tok/s": common.summarize(self.speed.samples["decode"]),
            "first byte, ms": common.summarize(self.first_byte_ms),
        }
        for name, key in (("memory after load, MiB", "VmRSS"), ("peak memory, MiB", "VmHWM")):
            figures[name] = common.summarize([sample[key] / MIB for sample in self.memory])
        for key, samples in self.lookup.items():
            if samples:
                figures[f"lookup {key}, ns"] = common.summarize(samples)
        return figures


def compare(before: Build, after: Build, least: float) -> list[dict[str, Any]]:
    """Return a row for every figure that both builds have."""
    old, new = before.figures(), after.figures()
    rows = []
    for name, figure in new.items():
        if name not in old:
            continue
        ratio = figure["median"] / old[name]["median"]
        if not name.endswith("tok/s"):
            ratio = 1 / ratio
        rows.append({"what": name, "before": old[name], "after": figure, "ratio": round(ratio, 3), "kept": ratio >= least})
    return rows


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    model = build / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--before", type=Path, required=True, help="binary of the build to compare with")
    parser.add_argument("--before-commit", default="unknown", help="the commit of that build, for the recording")
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="the new binary")
    parser.add_argument("--model", type=Path, default=model, help="GGUF file")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-p", "--prompt-tokens", dest="prompt", type=int, default=512, help="prompt tokens")
    parser.add_argument("-n", "--decode", type=int, default=128, help="decoded tokens")
    parser.add_argument("--context", type=int, default=2048, help="positions of the KV cache, for first byte and memory")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=240, help="seconds after which no new round begins")
    parser.add_argument("--tune", default="20s", help="budget of the preceding tuning; 0: none")
    parser.add_argument("--least", type=float, default=0.98, help="the lowest ratio that counts as no loss")
    parser.add_argument("--name", help="of the result (default: against-FILE)")
    parser.add_argument("tilewright_arguments", nargs="*", help="after --: for `tilewright bench model`")
    arguments = parser.parse_args()
    arguments.name = arguments.name or "against-" + arguments.model.stem.lower().replace(".", "-")
    for name in ("before", "tilewright", "model"):
        path = getattr(arguments, name).absolute()
        if not path.exists():
            parser.error(f"no such file: {path}")
        setattr(arguments, name, path)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    common.warn_if_loaded()
    builds = [Build(arguments, arguments.before), Build(arguments, arguments.tilewright)]
    quiet = common.Quiet()
    start = time.monotonic()
    rounds = 0
    for rounds in range(1, arguments.rounds + 1):
        for build in builds if rounds % 2 else reversed(builds):
            build.measure()
        print(f"round {rounds} of {arguments.rounds}, {time.monotonic() - start:.0f} s", file=sys.stderr)
        if time.monotonic() - start > arguments.budget:
            break
    rows = compare(builds[0], builds[1], arguments.least)
    report = {
        "provenance": common.provenance(arguments.tilewright, builds[1].speed.device_class),
        "before": {"commit": arguments.before_commit, "tuned": builds[0].tuned},
        "quiet": quiet.report(),
        "model": common.model_identity(arguments.model),
        "tuned": builds[1].tuned,
        "threads": arguments.threads,
        "rounds": rounds,
        "rows": rows,
    }
    table = common.table(
        ["what", "before", "after", "ratio", f">= {arguments.least}"],
        [
            [row["what"], common.spread(row["before"], 1), common.spread(row["after"], 1), f"{row['ratio']:.3f}",
             "yes" if row["kept"] else "NO"]
            for row in rows
        ],
    )
    title = f"{arguments.model.name}, {arguments.threads} threads, against {arguments.before_commit[:12]}, {rounds} rounds"
    common.write(arguments.name, report, f"{title}; medians (lowest-highest), ratio above 1 is better\n\n{table}")


if __name__ == "__main__":
    main()
