#!/usr/bin/env python3
"""Record what comes before the kernels: first byte of output, resident memory, lookup and call time.

    record_startup.py --tilewright build/cli/tilewright --model MODEL.gguf --lookup build/bench/lookup_bench

First byte: `tilewright run` with a prompt of 8 tokens is started --runs times; the time from just
before the process is created to the first byte on its standard output. The file's pages and the caches
of tuning records are warm: `tilewright tune` (--tune 0: skip) and warm-up runs come first.

Memory: right after the first byte the process is stopped and its VmRSS and VmHWM are read, in separate
runs. The limits are those of the project: 1.3 times the file + KV cache + 80 MiB after the
load, 2.2 times the file + KV cache + 80 MiB at the peak; the KV cache counts as it is allocated
(--context positions in f16), and for comparison as far as it was touched.

Lookup: what bench/lookup_bench prints, 0 allocations. Call: what bench/prepared_bench prints, the
cost of a prepared product over the bare kernel, 0 allocations.

Writes bench/results/NAME.json and NAME.md. Takes about 20 s.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import common

MIB = 1 << 20
PROMPT = "The capital of France is the city of"
PROMPT_TOKENS = 8
LIMITS = {"first_byte_ms": 500, "lookup_ns": 100, "lookup_allocations": 0, "prepared_over_ns": 100}


def start(arguments: argparse.Namespace, count: int) -> tuple[subprocess.Popen[bytes], float]:
    """Start a generation of `count` tokens; return the process and the ms until its first byte."""
    command = [arguments.tilewright, "run", arguments.model, "-p", arguments.prompt, "-n", count, "--temp", 0]
    command += ["-c", arguments.context, "--threads", arguments.threads, "--ignore-eos"]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    took = (time.perf_counter() - begin) * 1e3
    if not first:
        _, error = process.communicate()
        common.fail(f"no output, exit {process.returncode}: {error.decode(errors='replace').strip()}")
    return process, took


def measure_first_byte(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the times of all runs."""
    samples = []
    for run in range(arguments.runs + 2):
        process, took = start(arguments, 2)
        process.communicate()
        if run >= 2:  # the first ones warm up
            samples.append(took)
    report = common.summarize(samples, digits=1)
    report["p95"] = round(statistics.quantiles(samples, n=20, method="inclusive")[-1], 1)
    return report


def memory_of(pid: int) -> dict[str, int]:
    """Return the bytes that /proc tells of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(":")
        if key in ("VmRSS", "VmHWM", "RssAnon", "RssFile"):
            fields[key] = int(value.split()[0]) * 1024
    return fields


def measure_memory(arguments: argparse.Namespace, runs: int = 3) -> list[dict[str, int]]:
    """Return the memory after the load of a few processes."""
    samples = []
    for _ in range(runs):
        process, _ = start(arguments, arguments.context // 2)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.02)
        samples.append(memory_of(process.pid))
        process.kill()
        process.communicate()
    return samples


def kv_bytes_per_position(arguments: argparse.Namespace) -> int:
    """Return the size of one position of the KV cache in f16, from the model's metadata."""
    if arguments.kv_bytes:
        return arguments.kv_bytes
    values: dict[str, int] = {}
    for key, value in read_integers(arguments.model).items():
        values[key.partition(".")[2]] = value
    heads = values["attention.head_count"]
    head_dim = values.get("attention.key_length", values["embedding_length"] // heads)
    return values["block_count"] * values.get("attention.head_count_kv", heads) * head_dim * 2 * 2


def read_integers(model: Path) -> dict[str, int]:
    """Return the integers of the model's shape in a GGUF file's metadata."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    string, array = 8, 9
    integers = {}
    with model.open("rb") as file:

        def number(size: int) -> int:
            return int.from_bytes(file.read(size), "little")

        def skip(kind: int) -> int:
            if kind == string:
                return file.seek(number(8), os.SEEK_CUR)
            if kind != array:
                return number(sizes[kind])
            element, count = number(4), number(8)
            if element in sizes:
                return file.seek(sizes[element] * count, os.SEEK_CUR)
            for _ in range(count):
                skip(element)
            return 0

        if file.read(4) != b"GGUF":
            common.fail(f"{model}: not a GGUF file")
        number(4)
        number(8)
        for _ in range(number(8)):
            key = file.read(number(8)).decode("utf-8", "replace")
            kind = number(4)
            value = skip(kind)
            if kind in (4, 5, 10, 11):
                integers[key] = value
    return integers


def check_prompt(arguments: argparse.Namespace) -> None:
    """End if the prompt is not as long as the figure's name says."""
    command = [arguments.tilewright, "run", arguments.model, "-p", arguments.prompt, "-n", 1, "--temp", 0]
    tokens = common.run_json([*command, "--json"])["prompt_tokens"]
    if len(tokens) != PROMPT_TOKENS:
        common.fail(f"the prompt has {len(tokens)} tokens with this model, must have {PROMPT_TOKENS}: give --prompt")


def memory_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the memory beside its limits."""
    samples = measure_memory(arguments)
    file = arguments.model.stat().st_size
    position = kv_bytes_per_position(arguments)
    kv, touched = position * arguments.context, position * (PROMPT_TOKENS + 1)
    report: dict[str, Any] = {"file_bytes": file, "kv_bytes": kv, "kv_bytes_touched": touched, "samples": samples}
    for name, key, factor in (("after_load", "VmRSS", 1.3), ("peak", "VmHWM", 2.2)):
        report[name] = {
            "bytes": max(sample[key] for sample in samples),
            "limit_bytes": round(factor * file) + kv + 80 * MIB,
            "limit_bytes_kv_touched": round(factor * file) + touched + 80 * MIB,
        }
    return report


def make_table(arguments: argparse.Namespace, report: dict[str, Any]) -> str:
    """Return the table of all figures and their limits."""
    first, memory, lookup = report["first_byte_ms"], report["memory"], report["lookup"]

    def row(what: str, value: str, limit: str, good: bool) -> list[str]:
        return [what, value, limit, "yes" if good else "NO"]

    rows = [
        row("first byte, median", f"{first['median']:.0f} ms", "500 ms", first["median"] <= LIMITS["first_byte_ms"]),
        row("first byte, p95", f"{first['p95']:.0f} ms", "500 ms", first["p95"] <= LIMITS["first_byte_ms"]),
    ]
    for name, key in (("memory after load", "after_load"), ("memory, peak of load", "peak")):
        used, limit = memory[key]["bytes"], memory[key]["limit_bytes"]
        tight = memory[key]["limit_bytes_kv_touched"]
        rows.append(row(name, f"{used / MIB:.0f} MiB", f"{limit / MIB:.0f} MiB", used <= limit))
        rows.append(row(f"{name}, KV as touched", f"{used / MIB:.0f} MiB", f"{tight / MIB:.0f} MiB", used <= tight))
    for key in ("find", "lower_bound", "floor_bound"):
        if key in lookup:
            ns, made = lookup[key]["ns_median"], lookup[key]["allocations"]
            good = ns <= LIMITS["lookup_ns"] and made == LIMITS["lookup_allocations"]
            rows.append(row(f"lookup, {key}", f"{ns:.0f} ns, {made} allocations", "100 ns, 0", good))
    call = report["prepared"]
    over, made = call["over_ns"]["median"], call["allocations"]
    good = over <= LIMITS["prepared_over_ns"] and made == 0
    rows.append(row("prepared product over the kernel", f"{over:.0f} ns, {made} allocations", "100 ns, 0", good))
    title = f"{arguments.model.name}, prompt of {PROMPT_TOKENS} tokens, context {arguments.context}, {arguments.runs} runs"
    return f"{title}, {arguments.threads} threads\n\n{common.table(['what', 'measured', 'limit', 'kept'], rows)}"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    model = build / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="our binary")
    parser.add_argument("--model", type=Path, default=model, help="GGUF file")
    parser.add_argument("--lookup", type=Path, help="lookup_bench (default: beside the binary, ../bench/)")
    parser.add_argument("--prepared", type=Path, help="prepared_bench (default: beside lookup_bench)")
    parser.add_argument("--prompt", default=PROMPT, help=f"a text of {PROMPT_TOKENS} tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--context", type=int, default=2048, help="positions of the KV cache")
    parser.add_argument("--kv-bytes", type=int, default=0, help="of a position (default: f16, from the metadata)")
    parser.add_argument("--runs", type=int, default=20)
    common.add_tuning(parser, "10s")
    parser.add_argument("--name", help="of the result (default: startup-FILE)")
    arguments = parser.parse_args()
    arguments.lookup = arguments.lookup or arguments.tilewright.absolute().parents[1] / "bench" / "lookup_bench"
    arguments.prepared = arguments.prepared or arguments.lookup.with_name("prepared_bench")
    arguments.name = arguments.name or "startup-" + arguments.model.stem.lower().replace(".", "-")
    common.need_files(parser, arguments.tilewright, arguments.model, arguments.lookup, arguments.prepared)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    check_prompt(arguments)
    common.warn_if_loaded()
    tuned = common.tune(arguments, [[arguments.model]])
    device = common.run_json([arguments.tilewright, "doctor", "--json"])["device"]
    quiet = common.Quiet()
    report = {
        "first_byte_ms": measure_first_byte(arguments),
        "memory": memory_report(arguments),
        "lookup": common.run_json([arguments.lookup]),
        "prepared": common.run_json([arguments.prepared]),
        "limits": LIMITS,
        "model": common.model_identity(arguments.model),
        "tuned": tuned,
        "threads": arguments.threads,
        "context": arguments.context,
    }
    report = {"provenance": common.provenance(arguments.tilewright, device), "quiet": quiet.report(), **report}
    common.write(arguments.name, report, make_table(arguments, report))


if __name__ == "__main__":
    main()
