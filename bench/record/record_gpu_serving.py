#!/usr/bin/env python3
"""Record how a GPU serves many sequences: speed by how many generate together, and requests that come and go.

    record_gpu_serving.py [--models llama-3.1-8b:q8_0] [--device cuda:0] [--sequences 64]

Throughput: --generate tokens of each of --batches sequences from --depth positions on, all of them together,
beside what the board's memory and tensor cores allow by their clocks. Serving (`tilewright bench serve`): clients
that each send one request after the other, with prompts in pieces beside the tokens of the others and with prompts in
passes of their own, in turn. Random weights that are in no file, own kernels only.

Writes bench/results/NAME.json and NAME.md. Takes about a minute for a model of 8 G parameters.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import common
from record_gpu_model import BOARD, Clocks, query


def run(arguments: argparse.Namespace, verb: str, model: str, words: list[str]) -> dict[str, Any]:
    """Run one benchmark of a model, with the clocks of the board."""
    preset, _, quant = model.partition(":")
    command = [arguments.tilewright, "bench", verb, "--synth", preset, "--quant", quant, "--json", "--device", arguments.device]
    clocks = Clocks(arguments.device)
    result = common.run_json([str(word) for word in [*command, "--providers", "own", *words]])
    result["clocks"] = clocks.stop()
    return result


def clock(result: dict[str, Any]) -> str:
    """Return the median clock of the multiprocessors while a benchmark ran."""
    sampled = result["clocks"].get("clocks.sm")
    return f"{sampled[1]:.0f}" if sampled else "?"


def throughput_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return a table row for each number of sequences."""
    return [[
        result["model"], row["test"], str(row["batch"]), f"{row['tok_s_median']:.0f}", f"{row['tok_s_min']:.0f}",
        f"{row['tok_s_max']:.0f}", f"{row['floor_tok_s']:.0f}", f"{100 * row['tok_s_median'] / row['floor_tok_s']:.0f} %", clock(result),
    ] for row in result["rows"]]


def serving_rows(result: dict[str, Any]) -> list[list[str]]:
    """Return a table row for each way to schedule."""
    return [[
        result["model"], row["prompts"], f"{row['tok_s_median']:.0f}", f"{row['tok_s_min']:.0f}", f"{row['tok_s_max']:.0f}",
        f"{row['all_tok_s_median']:.0f}", f"{row['rows_per_pass']:.0f}", f"{row['first_ms_median']:.0f}", f"{row['first_ms_p95']:.0f}",
        f"{row['next_ms_median']:.2f}", f"{row['next_ms_p95']:.2f}", f"{row['next_ms_p99']:.2f}", clock(result),
    ] for row in result["rows"]]


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=Path, default=common.ROOT / "build" / "cli" / "tilewright")
    parser.add_argument("--models", default="llama-3.1-8b:q8_0", help="PRESET:TYPE, with commas between")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64", help="sequences that generate together")
    parser.add_argument("-d", "--depth", default="512", help="positions of a sequence before the generated ones")
    parser.add_argument("-n", "--generate", default="64", help="tokens to generate")
    parser.add_argument("--sequences", default="64", help="clients of bench serve")
    parser.add_argument("--requests", default="128", help="of all clients together")
    parser.add_argument("--prompt", default="512", help="tokens of a prompt, on average")
    parser.add_argument("--answer", default="128", help="tokens that a request generates, on average")
    parser.add_argument("--ubatch", default="512", help="rows of one pass")
    parser.add_argument("--repeat", default="3")
    parser.add_argument("--name", help="of the result (default: gpu_serving_BOARD)")
    arguments = parser.parse_args()
    arguments.tilewright = arguments.tilewright.absolute()
    if not arguments.tilewright.exists():
        parser.error(f"no such file: {arguments.tilewright}")
    return arguments


def main() -> None:
    """Command line entry point."""
    a = parse()
    board = query(a.device, BOARD)
    device = common.run_json([a.tilewright, "doctor", "--json", "--device", a.device])["device"]
    quiet = common.Quiet()
    report: dict[str, Any] = {
        "provenance": {**common.provenance(a.tilewright, device), "driver": board},
        "quiet": {},
        "throughput": [],
        "serving": [],
    }
    name = a.name or "gpu_serving_" + board.partition(",")[0].lower().replace(" ", "-")
    # Written after every model, so that a machine that is taken away leaves what it had.
    for model in a.models.split(","):
        words = ["-p", "0", "-n", a.generate, "-d", a.depth, "--batch", a.batches, "--repeat", a.repeat]
        report["throughput"].append(run(a, "model", model, words))
        words = ["--sequences", a.sequences, "--requests", a.requests, "-p", a.prompt, "-n", a.answer, "--ubatch", a.ubatch]
        report["serving"].append(run(a, "serve", model, [*words, "--repeat", a.repeat]))
        report["quiet"] = quiet.report()
        throughput = common.table(
            ["model", "test", "sequences", "tok/s", "min", "max", "floor", "of floor", "SM MHz"],
            [row for result in report["throughput"] for row in throughput_rows(result)], left=(0, 1))
        serving = common.table(
            ["model", "prompts", "generated tok/s", "min", "max", "all tok/s", "rows a pass", "first ms", "95 %", "next ms", "95 %", "99 %", "SM MHz"],
            [row for result in report["serving"] for row in serving_rows(result)], left=(0, 1))
        head = f"Random weights, {a.repeat} runs each, own kernels; {board} ({BOARD})\n\n"
        clients = f"{a.sequences} clients, {a.requests} requests of about {a.prompt} + {a.answer} tokens:\n\n"
        common.write(name, report, f"{head}{throughput}\n\n{clients}{serving}")


if __name__ == "__main__":
    main()
