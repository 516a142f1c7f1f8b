#!/usr/bin/env python3
"""Record what many tuning records cost: `explain` and the first byte of `run`, with and without them.

    record_records.py --tilewright before=OLD/cli/tilewright --tilewright after=build/cli/tilewright \\
        --model MODEL.gguf --rows 0,100000,1000000

The rows are made by the formula of docs/records.md, without the measured program: for this
machine's scope and existing kernels, over problems of the requested type and, one row in ten, of
the same group. Each binary and size takes turns, --runs times; the file's pages are
warm. Writes bench/results/records.json and records.md. Takes about 3 minutes for a million rows, and
some 800 MB in the temporary folder.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

import common

COLUMNS = (
    "id op problem device libraries policy kernel fingerprint spec verdict evidence samples median_us low_us high_us "
    "predicted_us chosen unix_ms extra"
).split()
REALS = {"median_us", "low_us", "high_us", "predicted_us"}
INTEGERS = {"samples", "chosen", "unix_ms"}
ASKED = {"m": 1, "n": 576, "k": 576}
LIMITS = {100_000: 0.3, 1_000_000: 2.0}  # seconds more than with none


def row_id(row: dict[str, Any]) -> str:
    """Return the checksum of a row as docs/records.md defines it."""
    text = b""
    for column in COLUMNS[1:]:
        value = row[column]
        if column in REALS:
            value = struct.unpack("<Q", struct.pack("<d", value or 0.0))[0]
        part = str(value).encode()
        text += str(len(part)).encode() + b":" + part
    return hashlib.sha256(text).hexdigest()[:32]


def explain_words(shape: dict[str, int]) -> list[str]:
    """Return the command that is measured."""
    words = ["explain", "gemm", "--type-b", "q4_1", "--json"]
    for name, value in shape.items():
        words += [f"--{name}", str(value)]
    return words


def make_rows(count: int, problem: str, scope: dict[str, str], kernels: list[dict[str, str]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of one scope. `problem` is the key of ASKED."""
    rest = problem.split(" ", 3)[3]
    for i in range(count):
        kernel = kernels[i % len(kernels)]
        # One in ten is of the group asked for, the others of tens of thousands of groups.
        n, k = (ASKED["n"], ASKED["k"]) if i % 10 == 0 else (64 + 32 * (i // 512 % 997), 32 * (1 + i // 7 % 41))
        median = 1.0 + i % 1000
        row = {
            "op": "gemm", "problem": f"m={1 + i % 512} n={n} k={k} {rest.replace('pack_b=any', 'pack_b=' + kernel['pack_b'])}",
            "device": scope["device"],
            "libraries": scope["libraries"], "policy": scope["policy"], "kernel": kernel["kernel"],
            "fingerprint": kernel["fingerprint"], "spec": "swizzle=0 splits=1", "verdict": "ok", "evidence": "",
            "samples": 20, "median_us": median, "low_us": 0.99 * median, "high_us": 1.01 * median,
            "predicted_us": 0.8 * median, "chosen": int(i % 20 == 0), "unix_ms": 1_700_000_000_000 + i, "extra": "",
        }
        yield (row_id(row), *(row[column] for column in COLUMNS[1:]))


def make_file(path: Path, rows: Iterator[tuple[Any, ...]]) -> None:
    """Write a file of tuning records."""
    kinds = {column: "REAL" if column in REALS else "INTEGER" if column in INTEGERS else "TEXT" for column in COLUMNS}
    columns = ", ".join(f"{c} {kinds[c]}{' PRIMARY KEY' if c == 'id' else ''} NOT NULL" for c in COLUMNS)
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")  # of a file that nobody will miss
        db.execute(f"CREATE TABLE measurement({columns})")
        db.execute("PRAGMA application_id=0x74776c72")
        db.execute("PRAGMA user_version=1")
        db.executemany(f"INSERT OR IGNORE INTO measurement VALUES({','.join('?' * len(COLUMNS))})", rows)
    db.close()


def seconds_until_output(command: list[str], env: dict[str, str], first_byte: bool) -> float:
    """Return the time until the first byte, or until the end, of a command."""
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, bufsize=0) as process:
        assert process.stdout is not None
        output = process.stdout.read(1)
        took = time.perf_counter() - begin
        output += process.stdout.read()
        process.wait()
        if process.returncode != 0 or not output:
            common.fail(f"exit {process.returncode} of: {' '.join(command)}")
        return took if first_byte else time.perf_counter() - begin


def binary(text: str) -> tuple[str, Path]:
    """Parse NAME=PATH."""
    name, _, path = text.partition("=")
    return name, Path(path).resolve()


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=binary, action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--model", type=Path, help="GGUF file; without one only explain is measured")
    parser.add_argument("--rows", default="0,100000,1000000")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--name", default="records")
    arguments = parser.parse_args()
    sizes = [int(text) for text in arguments.rows.split(",")]
    common.warn_if_loaded()
    quiet = common.Quiet()
    newest = arguments.tilewright[-1][1]
    explained = common.run_json([str(newest), *explain_words(ASKED)])
    scope = common.run_json([str(newest), "cache", "explain", "--json"])
    kernels = [k for k in common.run_json([str(newest), "kernels", "--json"])["kernels"]
               if k["op"] == "gemm" and k["feasible"] and not k["reference"] and "q4_1" in k["type_b"].split()]
    folder = Path(tempfile.mkdtemp(prefix="tilewright-records-"))
    results = []
    try:
        samples: dict[tuple[str, str, int], list[float]] = {}
        for size in sizes:
            make_file(folder / str(size) / "tilewright" / "records.sqlite",
                      make_rows(size, explained["problem"], scope, kernels))
        for turn in range(arguments.runs + 1):
            for name, path in arguments.tilewright:
                for size in sizes:
                    env = {"XDG_CACHE_HOME": str(folder / str(size)), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
                    commands = {"explain": [str(path), *explain_words(ASKED)]}
                    if arguments.model:
                        commands["first_byte"] = [str(path), "run", str(arguments.model), "-p", "The capital of", "-n",
                                                  "1", "--temp", "0"]
                    for what, command in commands.items():
                        took = seconds_until_output(command, env, what == "first_byte")
                        if turn > 0:  # the first one warms up
                            samples.setdefault((name, what, size), []).append(took)
        for (name, what, size), took in samples.items():
            base = min(samples[(name, what, sizes[0])])
            results.append({"binary": name, "what": what, "rows": size, "seconds": common.summarize(took, digits=3),
                            "more_seconds": round(min(took) - base, 3), "limit": LIMITS.get(size)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = {"provenance": common.provenance(newest, explained["device"]), "quiet": quiet.report(), "results": results}
    rows = []
    for result in results:
        seconds = result["seconds"]
        rows.append([result["binary"], result["what"].replace("_", " "), f"{result['rows']:,}",
                     f"{seconds['median']} ({seconds['min']}-{seconds['max']})", str(result["more_seconds"]),
                     str(result["limit"] or "-")])
    header = ["binary", "what", "records", "s, median (lowest-highest)", "more than with none", "limit"]
    common.write(arguments.name, report, common.table(header, rows, left=(0, 1)))


if __name__ == "__main__":
    main()
