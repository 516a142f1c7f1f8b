#!/usr/bin/env python3
"""Record what compute-sanitizer says of a small case of every family of CUDA kernels.

    record_sanitizers.py --tests build/tests/device/dependent_launch_gpu_test

The case of a family is its test in tests/device/dependent_launch_gpu_test.cc: one or two of its
kernels, eager and in a graph, behind a kernel that writes their operands late. memcheck looks for
accesses outside of allocations, racecheck for races in shared memory, synccheck for barriers that
not all threads reach. A family passes where its test does and the tool reports no error.

Prints a row for each family and tool, and writes bench/results/NAME.json and NAME.md. Exits with 1
where something was found, and with 77, writing nothing, where the tool refuses the machine or there
is no GPU. Takes some minutes: racecheck is up to 50 times as slow as the kernels.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
from record_gpu_model import BOARD, query

TOOLS = ("memcheck", "racecheck", "synccheck")
SKIPPED = 77
# The last line of a tool's report, and how many errors it tells of. Warnings of racecheck are hazards
# that cannot change a result.
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) error")


def skip(message: str) -> None:
    """Exit as a test that could not run does."""
    print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(SKIPPED)


def cases(tests: Path) -> dict[str, str]:
    """Return the tests by family, in the order of the program."""
    listed = common.run([str(tests), "--gtest_list_tests"])
    found: dict[str, str] = {}
    suite = ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if not line.startswith(" ") and name.endswith("."):
            suite = name
        elif line.startswith("  ") and suite:
            family = name.strip().rpartition("/")[2]
            # Families have lower-case names; the test of the late writer itself has not.
            if family == family.lower():
                found[family] = suite + name.strip()
    return found


def judge(output: str, status: int) -> tuple[str, int]:
    """Return a word and the number of errors of one run."""
    summary = SUMMARY.search(output)
    if summary is None:
        return "refused", 0
    errors = int(summary.group(1) or summary.group(2))
    if errors > 0:
        return "errors", errors
    if "[  SKIPPED ]" in output:
        return "skipped", 0
    return ("ok" if status == 0 and "[  PASSED  ] 1 test" in output else "failed"), 0


def reason(output: str) -> str:
    """Return the tool's own words for not running, or the first of the program's."""
    words = [line.lstrip("= ") for line in output.splitlines() if line.startswith("=========")]
    for line in words:
        if re.search(r"not supported|unable|error|refus", line, re.IGNORECASE):
            return line
    return " ".join(words[-2:]) or output.strip().partition("\n")[0] or "no output"


def check(arguments: argparse.Namespace, tool: str, test: str) -> dict[str, Any]:
    """Run one test under one tool."""
    command = [arguments.sanitizer, "--tool", tool, "--report-api-errors", "no", "--print-limit", "10"]
    command += [str(arguments.tests), f"--gtest_filter={test}"]
    begin = time.monotonic()
    # A session of its own: the tool starts the test as a child, which must not outlive a timeout.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=arguments.timeout)
        word, errors = judge(output, process.returncode)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        word, errors = "timeout", 0
    said = [line for line in output.splitlines() if line.startswith("=========")]
    return {
        "result": word,
        "errors": errors,
        "seconds": round(time.monotonic() - begin, 1),
        # Of a clean run the summary; else the first report, and the test's own words.
        "said": said[-1:] if word == "ok" else said[:30] + output.splitlines()[-5:],
        "output": output,
    }


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    parser.add_argument("--tests", type=Path, default=build / "tests" / "device" / "dependent_launch_gpu_test")
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="for its version")
    parser.add_argument("--sanitizer", default=shutil.which("compute-sanitizer") or "compute-sanitizer")
    parser.add_argument("--tools", default=",".join(TOOLS), help="with commas between")
    parser.add_argument("--families", default="", help="with commas between (default: all)")
    parser.add_argument("--jobs", type=int, default=4, help="checks at a time")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one family and tool")
    parser.add_argument("--device", default="cuda:0", help=argparse.SUPPRESS)
    parser.add_argument("--name", help="of the result (default: sanitizers_BOARD)")
    arguments = parser.parse_args()
    common.need_files(parser, arguments.tests, arguments.tilewright)
    arguments.tests = arguments.tests.absolute()
    arguments.tilewright = arguments.tilewright.absolute()
    for tool in arguments.tools.split(","):
        if tool not in TOOLS:
            parser.error(f"--tools {tool}: one of {', '.join(TOOLS)}")
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    tests = cases(arguments.tests)
    wanted = arguments.families.split(",") if arguments.families else list(tests)
    for family in wanted:
        if family not in tests:
            common.fail(f"--families {family}: one of {', '.join(tests)}")
    if shutil.which(arguments.sanitizer) is None:
        skip(f"no {arguments.sanitizer} (part of the CUDA toolkit; --sanitizer names it)")
    cases_wanted = [(tool, family) for tool in arguments.tools.split(",") for family in wanted]
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        checks = pool.map(lambda case: check(arguments, case[0], tests[case[1]]), cases_wanted)
        for (tool, family), found in zip(cases_wanted, checks):
            output = found.pop("output")
            if found["result"] in ("refused", "skipped"):
                pool.shutdown(wait=False, cancel_futures=True)
            if found["result"] == "refused":
                skip(f"{tool} refuses this machine: {reason(output)}")
            if found["result"] == "skipped":
                words = output[output.find(": Skipped") :].splitlines()[1:2]
                skip(f"the tests cannot use a GPU here: {' '.join(words)}")
            rows.append({"family": family, "tool": tool, **found})
            print(f"{family:16} {tool:10} {found['result']:8} {found['errors']:4} errors {found['seconds']:7.1f} s",
                  flush=True)
    device = query(arguments.device, BOARD)
    version = common.run([arguments.sanitizer, "--version"]).strip().splitlines()
    report = {
        "provenance": {**common.provenance(arguments.tilewright, device.partition(",")[0]), "driver": device},
        "sanitizer": next((line for line in version if "ersion" in line), "unknown"),
        "tests": common.shown(arguments.tests),
        "rows": rows,
    }
    text = f"{report['sanitizer']}; {device} ({BOARD})\n\n" + common.table(
        ["family", "tool", "result", "errors", "s"],
        [[row["family"], row["tool"], row["result"], str(row["errors"]), f"{row['seconds']:.1f}"] for row in rows],
        left=(0, 1, 2),
    )
    name = arguments.name or "sanitizers_" + device.partition(",")[0].lower().replace(" ", "-")
    common.write(name, report, text)
    bad = [row for row in rows if row["result"] != "ok"]
    if bad:
        sys.exit(f"{len(bad)} of {len(rows)} are not clean: see bench/results/{name}.json")


if __name__ == "__main__":
    main()
