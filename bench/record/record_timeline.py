#!/usr/bin/env python3
"""Record the timeline of one generated token on a GPU: when each kernel ran, and what lay between.

    record_timeline.py [--models llama-3.1-8b:q4_k,smollm2-135m:q4_1] [--device cuda:0]

Every model is a shape with random weights that are in no file (`tilewright bench model --synth`), at
--depth positions. bench/gpu/timeline.cc, loaded by the driver, records the kernels by CUPTI; kernels
that start early (programmatic dependent launch) overlap in it as they do without it. Of the tokens
the one of the median time counts: from the start of its first kernel to that of the next token's.

Recording costs: CUPTI adds a microsecond or two to every kernel, so that a token takes longer than it
does otherwise, most of all one of many short kernels. The table says both times. The order of the
kernels and how far they overlap is what to look at; for the time of each see record_gpu_model.py.

Writes bench/results/NAME.md and NAME.json with the sums by
kernel, and NAME_MODEL.trace.json, a Chrome trace of that token (open it with Perfetto).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import common
from record_gpu_model import BOARD, query

Event = dict[str, Any]


def tokens(events: list[Event], first: str) -> list[list[Event]]:
    """Return the kernels of each token: every one begins with a kernel of the family `first`."""
    begins = [i for i, event in enumerate(events) if event["name"].startswith(first)]
    return [events[begin:end] for begin, end in zip(begins, begins[1:])]


def busy(events: list[Event]) -> float:
    """Return the time in us in which at least one kernel ran."""
    total, until = 0.0, float("-inf")
    for event in events:
        end = event["ts"] + event["dur"]
        total += max(0.0, end - max(until, event["ts"]))
        until = max(until, end)
    return total


def family(event: Event) -> str:
    """Return the family of a kernel: "gemv_q" for "tw_gemv_q_504279d06d0ad7ca"."""
    return event["name"].removeprefix("tw_").rpartition("_")[0] or event["name"]


def measure(arguments: argparse.Namespace, model: str, folder: Path) -> tuple[dict[str, Any], list[Event]]:
    """Run a model and return what its median token does, and the events of that token."""
    preset, _, quant = model.partition(":")
    trace = folder / "trace.json"
    command = [arguments.tilewright, "bench", "model", "--synth", preset, "--quant", quant, "--device", arguments.device]
    command += ["-p", "0", "-n", "16", "-d", arguments.depth, "--repeat", "2", "--json"]
    words = [str(word) for word in command]
    common.run_json(words)  # compiles what is not in the store
    plain = common.run_json(words)["rows"][0]["tok_s_median"]
    common.run_json(words, {"CUDA_INJECTION64_PATH": str(arguments.timeline), "TIMELINE_FILE": str(trace)})
    if not trace.exists():
        common.fail("no timeline was written: is CUPTI where the loader finds it (LD_LIBRARY_PATH)?")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    # Tokens after the warming up; a prompt's passes have other numbers of kernels.
    found = tokens(events, "tw_embedding")
    usual = statistics.mode(len(token) for token in found)
    found = [token for token in found if len(token) == usual]
    spans = [after[0]["ts"] - token[0]["ts"] for token, after in zip(found, found[1:])]
    order = sorted(range(len(spans)), key=spans.__getitem__)
    middle = order[len(order) // 2]
    token, span = found[middle], spans[middle]
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in token:
        kernels[family(event)].append(event["dur"])
    return {
        "model": model,
        "us_unrecorded": round(1e6 / plain, 3),
        "tokens": len(spans),
        "span_us": round(span, 3),
        "busy_us": round(busy(token), 3),
        "kernels": len(token),
        "families": {name: {"count": len(us), "us": round(sum(us), 3)} for name, us in kernels.items()},
    }, token


def rows_of(model: dict[str, Any]) -> list[list[str]]:
    """Return the table rows of one model."""
    span = model["span_us"]
    rows = [[model["model"], "token, not recorded", str(model["kernels"]), f"{model['us_unrecorded']:.1f}"],
            ["", "token, recorded", "", f"{span:.1f}"],
            ["", "of that, no kernel runs", "", f"{span - model['busy_us']:.1f}"]]
    for name, sums in sorted(model["families"].items(), key=lambda item: -item[1]["us"]):
        rows.append(["", name, str(sums["count"]), f"{sums['us']:.1f}"])
    return rows


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright")
    parser.add_argument("--timeline", type=Path, default=build / "bench" / "gpu" / "libtilewright_timeline.so")
    parser.add_argument("--models", default="llama-3.1-8b:q4_k,smollm2-135m:q4_1", help="PRESET:TYPE, with commas between")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("-d", "--depth", default="512", help="positions of the sequence before the generated ones")
    parser.add_argument("--name", help="of the result (default: timeline_BOARD)")
    arguments = parser.parse_args()
    common.need_files(parser, arguments.tilewright, arguments.timeline)
    arguments.tilewright, arguments.timeline = arguments.tilewright.absolute(), arguments.timeline.absolute()
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    board = query(arguments.device, BOARD)
    device = common.run_json([arguments.tilewright, "doctor", "--json", "--device", arguments.device])["device"]
    quiet = common.Quiet()
    name = (arguments.name or "timeline_" + board.partition(",")[0].lower().replace(" ", "-"))
    models = []
    for model in arguments.models.split(","):
        with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
            found, events = measure(arguments, model, Path(folder))
        models.append(found)
        trace = common.RESULTS / f"{name}_{model.replace(':', '-')}{os.environ.get('TILEWRIGHT_RECORD_SUFFIX', '')}.trace.json"
        common.RESULTS.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
        trace.write_text(f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines}\n]}}\n', encoding="utf-8")
    report = {
        "provenance": {**common.provenance(arguments.tilewright, device), "driver": board},
        "quiet": quiet.report(),
        "models": models,
    }
    text = (
        f"One token at {arguments.depth} positions, random weights; {board} ({BOARD})\n\n"
        + common.table(["model", "what", "kernels", "us"], [row for model in models for row in rows_of(model)],
                       left=(0, 1))
        + "\n\nRecording adds to every kernel. Kernels that start early overlap, so that the sum of their times can exceed the token's."
    )
    common.write(name, report, text)


if __name__ == "__main__":
    main()
