#!/usr/bin/env python3
"""Record prompt and decode speed of models on a GPU.

    record_gpu_model.py --tilewright build/cli/tilewright [--models llama-3.1-8b:q4_k,smollm2-135m:q4_1]

Every model is a shape with random weights (`tilewright synth`), written to a temporary folder and
removed again: speed does not depend on the values. Kernels are compiled, or come from a bundle,
before anything is timed. Decode starts at position 0.

Each figure is the median of --repeat runs after one for warming up, with the lowest and highest.
The floor is what the board's memory and tensor cores would allow by their clocks: every weight read
once a token, or every multiplication of the prompt done at the peak rate.

Writes bench/results/NAME.json and NAME.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

DEFAULT = "smollm2-135m:q4_1,llama-3.2-1b:q4_k,llama-3.1-8b:q4_k,llama-3.1-8b:q8_0,llama-3.1-8b:bf16"
CLOCKS = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit"


def board(device: str) -> str:
    """Return what the driver says of the board and its clocks."""
    index = device.rpartition(":")[2]
    query = ["nvidia-smi", f"--query-gpu={CLOCKS}", "--format=csv,noheader", "-i", index]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown (no nvidia-smi)"


def measure(arguments: argparse.Namespace, preset: str, quant: str, folder: Path) -> dict[str, Any]:
    """Make one model, measure it, remove it."""
    file = folder / f"{preset}.{quant}.gguf"
    common.run([arguments.tilewright, "synth", "--preset", preset, "--quant", quant, "-o", file], timeout=600)
    words = [arguments.tilewright, "bench", "model", file, "--device", arguments.device, "--json"]
    words += ["-p", arguments.prompts, "-n", arguments.generate, "--batch", arguments.batch]
    words += ["--ubatch", arguments.ubatch, "--repeat", arguments.repeat, "--context", arguments.context]
    result = common.run_json([str(word) for word in words])
    file.unlink()
    del result["model"]  # a temporary file
    return {"preset": preset, "quant": quant, **result, "board": board(arguments.device)}


def rows_of(model: dict[str, Any]) -> list[list[str]]:
    """Return the table rows of one model."""
    rows = []
    for row in model["rows"]:
        share = row["tok_s_median"] / row["floor_tok_s"]
        rows.append([
            f"{model['preset']} {model['quant']}", row["test"], str(row["batch"]), f"{row['tok_s_median']:.0f}",
            f"{row['tok_s_min']:.0f}", f"{row['tok_s_max']:.0f}", f"{row['floor_tok_s']:.0f}", f"{100 * share:.0f} %",
        ])
    return rows


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=Path, default=common.ROOT / "build" / "cli" / "tilewright")
    parser.add_argument("--models", default=DEFAULT, help="PRESET:TYPE, with commas between")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("-p", "--prompts", default="2048", help="lengths of prompts, with commas between")
    parser.add_argument("-n", "--generate", default="512", help="tokens to generate")
    parser.add_argument("--batch", default="1,32", help="sequences processed together")
    parser.add_argument("--ubatch", default="2048", help="rows of one pass over a prompt")
    parser.add_argument("--context", default="4096", help="positions of a sequence")
    parser.add_argument("--repeat", default="5")
    parser.add_argument("--name", help="of the result (default: gpu_model_BOARD)")
    arguments = parser.parse_args()
    arguments.tilewright = arguments.tilewright.absolute()
    if not arguments.tilewright.exists():
        parser.error(f"no such file: {arguments.tilewright}")
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    quiet = common.Quiet()
    models = []
    with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
        for model in arguments.models.split(","):
            preset, _, quant = model.partition(":")
            models.append(measure(arguments, preset, quant, Path(folder)))
            print(f"{model}: done", file=sys.stderr)
    name = arguments.name or "gpu_model_" + board(arguments.device).partition(",")[0].lower().replace(" ", "-")
    report = {
        "provenance": {**common.provenance(arguments.tilewright, models[0]["device"]), "driver": models[0]["board"]},
        "quiet": quiet.report(),
        "models": models,
    }
    header = ["model", "test", "batch", "tok/s", "min", "max", "floor", "of floor"]
    text = (
        f"Random weights, {arguments.repeat} runs each; {models[0]['board']} ({CLOCKS})\n\n"
        + common.table(header, [row for model in models for row in rows_of(model)], left=(0, 1))
    )
    common.write(name, report, text)


if __name__ == "__main__":
    main()
