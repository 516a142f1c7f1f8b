#!/usr/bin/env python3
"""Record how near to the memory's bandwidth one row times weights of every format runs, and how long a file takes to its first token.

    record_formats.py --bench build/bench/gemm_int8_bench --threads 2
                      [--model MODEL.gguf ... --tilewright build/cli/tilewright --llama DEST]

Each round measures every format by the int8 kernels of each instruction set of --isa, 1 x 4096 x 14336, weights cold in the
caches, right after the read bandwidth, and how fast weights are packed. For each --model the time of a whole process
to the first token, `tilewright run` beside llama-bench of DEST (tools/baseline/build_llama_cpp.sh) in turns, without tuning
records: both load the file, evaluate one token and end. The first round of these is a warm-up, and before each
process the file is read and memory touched that is then free, while the recorder holds what a process cannot need.

Writes bench/results/NAME.json and NAME.md. Takes seven minutes.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import os
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import common

LINE = re.compile(
    r"^gemm_int8/(?P<type>\w+)/.*?\s(?P<us>[\d.]+) us .*? peak\s+(?P<gb_s>[\d.]+) GB/s.*?packs\s+(?P<pack>[\d.]+) GB/s", re.MULTILINE
)
READ = re.compile(r"read ([\d.]+) GB/s")
DEVICE = re.compile(r"^(\S.*?) threads \d+ peak", re.MULTILINE)
FIGURES = ("us", "gb_s", "pack", "share")


def measure_formats(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return samples by instruction set and format, and the device class."""
    command = [arguments.bench, "--threads", arguments.threads, "--m", 1, "--shapes", "4096x14336"]
    every = common.run([*command, "--types", "all", "--isa", arguments.isa[0], "--seconds", 0.01])
    names = [found["type"] for found in LINE.finditer(every)]
    if not names:
        common.fail(f"no kernels of {arguments.isa[0]} can run here")
    samples: dict[str, Any] = {isa: {name: {of: [] for of in FIGURES} for name in names} for isa in arguments.isa}
    device = ""
    for _ in range(arguments.rounds):
        # A run for each format, which measures the bandwidth right before it: the memory's changes within seconds.
        for isa, name in itertools.product(arguments.isa, names):
            output = common.run([*command, "--types", name, "--isa", isa, "--seconds", 0.3])
            device = DEVICE.search(output).group(1)
            found, figures = LINE.search(output), samples[isa][name]
            for of in ("us", "gb_s", "pack"):
                figures[of].append(float(found[of]))
            figures["share"].append(float(found["gb_s"]) / float(READ.search(output).group(1)))
    return samples, device


def touch(size: int) -> mmap.mmap:
    """Return that many bytes of memory, all of it there."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def free_bytes() -> int:
    """Return how much memory nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE


def warm_memory(model: Path) -> None:
    """Read the file, and touch and free most of the memory that is free.

    A virtual machine may have to ask its host for memory that was free for a while, which takes longer than to load a model.
    """
    with model.open("rb") as file:
        while file.read(1 << 24):
            pass
    touch(free_bytes() * 3 // 4).close()


def measure_loads(arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return the seconds to the first token of each model, ours and llama.cpp's."""
    loads: dict[str, dict[str, list[float]]] = {}

    def load(model: Path, command: list[Any]) -> float:
        warm_memory(model)
        with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
            return common.seconds_of(command, {"TILEWRIGHT_CACHE_DIR": folder})

    for model in arguments.model or []:
        bench = arguments.llama / "bin" / "llama-bench"
        ours = [arguments.tilewright, "run", model, "--tokens", 1, "-n", 1, "--temp", 0, "--threads", arguments.threads]
        theirs = [bench, "-m", model, "-p", 0, "-n", 1, "-r", 1, "--no-warmup", "-t", arguments.threads]
        # What is free must be little, or a process gets other memory than what was touched before it.
        held = touch(max(mmap.PAGESIZE, free_bytes() - 4 * model.stat().st_size))
        each = {"tilewright": partial(load, model, ours), "llama.cpp": partial(load, model, theirs)}
        loads[model.name] = common.in_turns(each, arguments.loads)
        held.close()
    return loads


def tables(summary: dict[str, Any], loads: dict[str, Any]) -> str:
    """Return the tables for a reader."""
    parts = []
    for isa, formats in summary.items():
        rows = [
            [name, *(f"{figures[of]['median']:.{digits}f}" for of, digits in (("us", 0), ("gb_s", 1))),
             f"{100 * figures['share']['median']:.0f} % ({100 * figures['share']['min']:.0f}-{100 * figures['share']['max']:.0f})",
             f"{figures['pack']['max']:.1f}"]
            for name, figures in formats.items()
        ]
        header = [isa, "us", "GB/s", "of read bandwidth", "packs, GB/s a thread"]
        parts.append(common.table(header, rows))
    if loads:
        rows = [
            [name, *(common.spread(of, 2) for of in (figures["tilewright"], figures["llama.cpp"])),
             f"{figures['llama.cpp']['median'] / figures['tilewright']['median']:.2f}x"]
            for name, figures in loads.items()
        ]
        parts.append(common.table(["file to first token, s", "tilewright", "llama.cpp", "ratio"], rows))
    return "\n\n".join(parts)


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    parser.add_argument("--bench", type=Path, default=build / "bench" / "gemm_int8_bench")
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright")
    parser.add_argument("--llama", type=Path, default=build / "llama", help="folder of a build of llama.cpp")
    parser.add_argument("--model", type=Path, action="append", help="GGUF file; may be repeated")
    parser.add_argument("--isa", nargs="+", default=["avx512vnni", "avx2"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", type=int, default=9, help="times that each file is loaded")
    parser.add_argument("--name", default="formats")
    arguments = parser.parse_args()
    common.warn_if_loaded()
    quiet = common.Quiet()
    samples, device = measure_formats(arguments)
    loads = measure_loads(arguments)
    summary = {
        isa: {name: {of: common.summarize(values, 3) for of, values in figures.items()} for name, figures in formats.items()}
        for isa, formats in samples.items()
    }
    seconds = {name: {of: common.summarize(values, 3) for of, values in figures.items()} for name, figures in loads.items()}
    report = {
        "provenance": common.provenance(arguments.tilewright, device),
        "quiet": quiet.report(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "unit": "us and GB/s of a product of 1 x 4096 x 14336, share of the read bandwidth of the same run; GB/s of a file that a "
        "thread packs, the best; seconds of a process to the first token",
        "formats": summary,
        "first_token_s": seconds,
    }
    title = f"1 x 4096 x 14336, weights of every format, {arguments.threads} threads, medians of {arguments.rounds} rounds (lowest-highest)"
    common.write(arguments.name, report, f"{title}\n\n{tables(summary, seconds)}")


if __name__ == "__main__":
    main()
