"""Common to all recordings: where and on what it ran, how it was built, and how quiet the machine was."""

from __future__ import annotations

import argparse
import atexit
import datetime
import hashlib
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"

# A recording is marked as busy if others used more than this much of a core.
FOREIGN_CORES_LIMIT = 0.15


def fail(message: str) -> None:
    """Exit with a one-line error message."""
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def shown(path: str | Path) -> str:
    """Return `path` as shown in result files: relative to the repository if inside it, else the last part."""
    resolved = Path(os.path.abspath(path))
    return str(resolved.relative_to(ROOT)) if resolved.is_relative_to(ROOT) else resolved.name


def shown_command(command: list[str]) -> str:
    """Return the command line without the folders of this machine."""

    def part(word: str) -> str:
        name, separator, path = word.rpartition("=")
        return name + separator + shown(path) if os.sep in path and Path(path).exists() else word

    return " ".join(",".join(part(piece) for piece in word.split(",")) for word in command)


def run(command: list[str], env: dict[str, str] | None = None, timeout: float = 300) -> str:
    """Run a command and return its standard output; exit with its error if it fails."""
    words = [str(word) for word in command]
    try:
        result = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **(env or {})}
        )
    except subprocess.TimeoutExpired:
        fail(f"no end after {timeout:.0f} s: {' '.join(words)}")
    if result.returncode != 0:
        fail(f"exit {result.returncode} of: {' '.join(words)}\n{result.stderr.strip()}")
    return result.stdout


def seconds_of(command: list[Any], env: dict[str, str] | None = None) -> float:
    """Run a command and return how long it took; exit with its error if it fails."""
    start = time.monotonic()
    run(command, env)
    return time.monotonic() - start


def in_turns(measure: dict[str, Callable[[], float]], count: int) -> dict[str, list[float]]:
    """Call each `count` times, in turns of changing order, and once before that does not count; return what they returned."""
    samples: dict[str, list[float]] = {name: [] for name in measure}
    for turn in range(count + 1):
        for name in sorted(measure, reverse=turn % 2 == 1):
            sample = measure[name]()
            if turn > 0:
                samples[name].append(sample)
    return samples


def run_json(command: list[str], env: dict[str, str] | None = None, timeout: float = 300) -> dict[str, Any]:
    """Run a command that prints one JSON object."""
    return json.loads(run(command, env, timeout))


def summarize(samples: list[float], digits: int = 2) -> dict[str, Any]:
    """Return median, lowest and highest of `samples`, and the samples."""
    ordered = sorted(samples)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {
        "median": round(median, digits),
        "min": round(ordered[0], digits),
        "max": round(ordered[-1], digits),
        "samples": [round(sample, digits) for sample in samples],
    }


def spread(figures: dict[str, Any], digits: int = 0, unit: str = "") -> str:
    """Return what summarize() made of samples as text: the median and, in brackets, the lowest and the highest."""
    return f"{figures['median']:.{digits}f}{unit} ({figures['min']:.{digits}f}-{figures['max']:.{digits}f})"


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def need_files(parser: argparse.ArgumentParser, *paths: Path | None) -> None:
    """End with a message of the parser unless all paths that are given exist."""
    for path in paths:
        if path is not None and not path.exists():
            parser.error(f"no such file: {path}")


class Quiet:
    """Reports how much of the machine others used while this process and its children measured."""

    def __init__(self) -> None:
        self.load_before = os.getloadavg()[0]
        self.start = time.monotonic()
        self.stat = self._stat()
        self.own = self._own()

    @staticmethod
    def _own() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    @staticmethod
    def _stat() -> tuple[float, float]:
        """Return the seconds that all cores were busy, and those taken by the host."""
        try:
            fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
        except OSError:
            return 0.0, 0.0
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in fields[:8])
        ticks = os.sysconf("SC_CLK_TCK")
        return (user + nice + system + irq + softirq) / ticks, steal / ticks

    def report(self) -> dict[str, Any]:
        """Return the report of the time since construction."""
        elapsed = time.monotonic() - self.start
        busy, steal = (after - before for after, before in zip(self._stat(), self.stat))
        foreign = max(0.0, busy - (self._own() - self.own)) / elapsed
        stolen = steal / elapsed
        return {
            "seconds": round(elapsed, 1),
            "load_before": round(self.load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "cores_taken_by_others": round(foreign, 2),
            "cores_taken_by_host": round(stolen, 2),
            "busy": foreign + stolen > FOREIGN_CORES_LIMIT,
        }


def warn_if_busy(quiet: dict[str, Any]) -> None:
    """Warn on standard error if the figures cannot be trusted."""
    if quiet["busy"]:
        taken = quiet["cores_taken_by_others"] + quiet["cores_taken_by_host"]
        print(
            f"warning: the machine was busy: others took {taken:.2f} cores (limit {FOREIGN_CORES_LIMIT}), load "
            f"{quiet['load_before']} before and {quiet['load_after']} after. Record again when it is quiet.",
            file=sys.stderr,
        )


def warn_if_loaded() -> None:
    """Warn before a measurement if the machine is busy."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: load average {load:.2f} before the start: the machine may be busy", file=sys.stderr)


def _git(*words: str) -> str:
    result = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""


def cpu_model() -> str:
    """Return the processor's name as reported by the system."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def provenance(tilewright: Path, device_class: str) -> dict[str, Any]:
    """Return what a reader needs to judge and reproduce the figures."""
    changed = _git("status", "--porcelain", "--", "src", "include", "cli", "cmake", "CMakeLists.txt", "bench")
    # Other results in the tree must not make a recording count as dirty.
    dirty = [line for line in changed.splitlines() if "bench/results/" not in line]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": "python3 " + shown_command(sys.argv),
        # The commit is passed in if the machine has a copy of the tree without its history.
        "commit": _git("rev-parse", "HEAD") or os.environ.get("TILEWRIGHT_COMMIT", "unknown"),
        "dirty": bool(dirty),
        "version": run([str(tilewright), "--version"]).strip(),
        "binary_sha256": hashlib.sha256(tilewright.read_bytes()).hexdigest(),
        "device_class": device_class,
        "cpu_model": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "driver": "none (CPU)",
        "system": " ".join(os.uname()[i] for i in (0, 2, 4)),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("TILEWRIGHT_", "OMP_", "KMP_"))
                        and os.sep not in v},
    }


def model_identity(model: Path) -> dict[str, Any]:
    """Return name, size and digest of a model file."""
    digest = hashlib.sha256()
    with model.open("rb") as file:
        for block in iter(lambda: file.read(1 << 22), b""):
            digest.update(block)
    return {"file": model.name, "bytes": model.stat().st_size, "sha256": digest.hexdigest()}


def add_tuning(parser: argparse.ArgumentParser, budget: str) -> None:
    """Add the options of tune()."""
    parser.add_argument("--tune", default=budget, help="budget of the preceding tuning, per weight type; 0: none")
    parser.add_argument("--cache", type=Path, help="folder of tuning records (default: a fresh one)")


def tune(arguments: argparse.Namespace, problems: list[list[Any]]) -> dict[str, Any]:
    """Tune before a recording, once for each list of words, and return the results.

    The records are in a folder of their own, so that neither what an earlier, busier hour measured
    nor what others tuned meanwhile is recorded. All that this process starts later uses it.
    """
    folder = arguments.cache
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="tilewright-record-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(folder.absolute())
    if arguments.tune == "0":
        return {"budget": "0", "records": "as found" if arguments.cache else "none"}
    start = time.monotonic()
    lines = []
    for words in problems:
        command = [arguments.tilewright, "tune", *words, "--budget", arguments.tune, "--threads", arguments.threads]
        lines += run(command).strip().splitlines()[-1:]
    return {"budget": arguments.tune, "seconds": round(time.monotonic() - start, 1), "summary": lines}


def table(header: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """Return a markdown table with aligned columns; all but the `left` ones are numbers."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for number, row in enumerate([header, *rows]):
        cells = [cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("| " + " | ".join(cells) + " |")
        if number == 0:
            rule = ["-" * width if i in left else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
            lines.append("| " + " | ".join(rule) + " |")
    return "\n".join(lines)


def write(name: str, report: dict[str, Any], text: str) -> None:
    """Write bench/results/NAME.json and NAME.md, and print the table. A report that has no times needs no "quiet".

    TILEWRIGHT_RECORD_SUFFIX is appended to the name, so that recordings of several machines can stand beside each other.
    """
    name += os.environ.get("TILEWRIGHT_RECORD_SUFFIX", "")
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    source, quiet = report["provenance"], report.get("quiet")
    state = ""
    if quiet:
        state = (
            f", {'busy machine: not a result' if quiet['busy'] else 'quiet machine'} (others took {quiet['cores_taken_by_others']} "
            f"cores, the host {quiet['cores_taken_by_host']}; load {quiet['load_before']} to {quiet['load_after']})"
        )
    note = (
        f"{source['date']}, {source['cpu_model']}, {source['device_class']}, commit {source['commit'][:12]}"
        f"{' with changes' if source['dirty'] else ''}{state}.\n"
        f"Command: `{source['command']}`\n"
    )
    (RESULTS / f"{name}.md").write_text(f"{text}\n\n{note}", encoding="utf-8")
    print(f"{text}\n")
    print(f"{note}Written: {shown(RESULTS / name)}.json and .md")
    if quiet:
        warn_if_busy(quiet)
