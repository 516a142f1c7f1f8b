#!/usr/bin/env python3
"""Measure llama.cpp, the baseline: prompt and decode speed of a GGUF model.

    bench_llama_cpp.py MODEL [--threads 2] [-p 512] [-n 128] [--repeat 5] [--json] [-- ARGUMENTS]

Runs the llama-bench that build_llama_cpp.sh built (--llama, default $TILEWRIGHT_LLAMA_DIR, else
build/llama) with flash attention off and on, turn by turn: in each of the --repeat rounds each
setting is measured once after a warm-up, so that a busy neighbour hits both alike. Reported are
the median, lowest and highest tok/s of each setting, and as the baseline the better median of
the two settings, for prompt and decode separately.

The prompt speed is that of -p tokens in one batch with an empty KV cache, the decode speed that of
-n tokens one by one from an empty KV cache, both as llama-bench defines them; ARGUMENTS go to
llama-bench (-- -d 1024: after 1,024 tokens). If the CPU has AMX the
build must use it: otherwise the tool fails, since such a baseline would be a fifth of what it can be.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

KINDS = ("prompt", "decode")


def run_llama_bench(arguments: argparse.Namespace, flash_attention: int) -> list[dict[str, Any]]:
    """Run llama-bench once and return its records, one per test."""
    command = [arguments.llama / "bin" / "llama-bench", "-m", arguments.model, "-t", str(arguments.threads)]
    command += ["-p", str(arguments.prompt), "-n", str(arguments.decode), "-r", "1", "-fa", str(flash_attention)]
    command += ["-o", "jsonl", *arguments.llama_bench_arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"llama-bench failed ({result.returncode}):\n{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def summarize(samples: list[float]) -> dict[str, float]:
    """Return median, lowest and highest of `samples`."""
    return {
        "median": round(statistics.median(samples), 2),
        "min": round(min(samples), 2),
        "max": round(max(samples), 2),
    }


def build_info(llama: Path) -> dict[str, str]:
    """Return what build_llama_cpp.sh recorded about the build."""
    path = llama / "build_info.txt"
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    info = {"version": lines[0]}
    for line in lines[1:]:
        key, separator, value = line.partition(":")
        if separator:
            info[key.strip().lower() if key != "CPU " else "features"] = value.strip(" |")
    return info


def check_amx(llama: Path) -> None:
    """Exit if the CPU has AMX and the build does not use it."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    if "amx_int8" in flags and "AMX_INT8 = 1" not in build_info(llama).get("features", ""):
        sys.exit("this CPU has AMX and the build of llama.cpp does not use it: not a fair baseline")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure both settings and return the report."""
    samples: dict[str, dict[str, list[float]]] = {kind: {"fa_off": [], "fa_on": []} for kind in KINDS}
    record: dict[str, Any] = {}
    for _ in range(arguments.repeat):
        for flash_attention, name in ((0, "fa_off"), (1, "fa_on")):
            for record in run_llama_bench(arguments, flash_attention):
                samples["prompt" if record["n_prompt"] else "decode"][name] += record["samples_ts"]
    report: dict[str, Any] = {
        "model": arguments.model.name,
        "model_type": record.get("model_type"),
        "model_bytes": record.get("model_size"),
        "threads": arguments.threads,
        "prompt_tokens": arguments.prompt,
        "decode_tokens": arguments.decode,
        "repeat": arguments.repeat,
        "llama_cpp_commit": record.get("build_commit"),
        "build": build_info(arguments.llama),
        "backend": record.get("backends"),
        "cpu": record.get("cpu_info"),
    }
    for kind in KINDS:
        settings = {name: summarize(values) for name, values in samples[kind].items() if values}
        if settings:
            best = max(settings, key=lambda name: settings[name]["median"])
            report[kind] = {"best": best, **settings[best], "settings": settings}
    return report


def print_report(report: dict[str, Any]) -> None:
    """Print the report for a reader."""
    build = report["build"]
    print(f"{report['model']} ({report['model_type']}), {report['threads']} threads, {report['repeat']} rounds")
    print(f"llama.cpp {report['llama_cpp_commit']}, {build.get('version')}, {build.get('compiler')}")
    print(f"{report['cpu']}: {build.get('features')}")
    for kind, count in (("prompt", report["prompt_tokens"]), ("decode", report["decode_tokens"])):
        for name, speed in report.get(kind, {}).get("settings", {}).items():
            mark = " *" if name == report[kind]["best"] else ""
            median, low, high = speed["median"], speed["min"], speed["max"]
            print(f"  {kind} {count:>5}  {name:<6}  {median:9.1f} tok/s  ({low:.1f} to {high:.1f}){mark}")


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens (0: none)")
    parser.add_argument("-n", "--decode", type=int, default=128, help="decoded tokens (0: none)")
    parser.add_argument("--repeat", type=int, default=5, help="rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    default = os.environ.get("TILEWRIGHT_LLAMA_DIR", "build/llama")
    parser.add_argument("--llama", type=Path, default=Path(default), help="folder made by build_llama_cpp.sh")
    own = sys.argv[1:]
    split = own.index("--") if "--" in own else len(own)
    arguments = parser.parse_args(own[:split])
    arguments.llama_bench_arguments = own[split + 1 :]
    if not arguments.model.exists():
        parser.error(f"no such file: {arguments.model}")
    if not (arguments.llama / "bin" / "llama-bench").exists():
        parser.error("no llama-bench; run build_llama_cpp.sh and give its folder by --llama or TILEWRIGHT_LLAMA_DIR")
    check_amx(arguments.llama)
    report = measure(arguments)
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
