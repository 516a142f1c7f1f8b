#!/usr/bin/env python3
"""Keep the record of what the tests found right, from which the tables of the documentation are written.

    collect_verified.py RECORD FOLDER          put the results in FOLDER into RECORD (docs/verified.tsv)
    collect_verified.py --check RECORD FOLDER  exit 1 where they differ from RECORD, 77 where tests have not run

FOLDER holds the reports of the tests that say VERIFIES (build/test-results, GoogleTest's JSON), and `expected.txt` their
names, a line each. A test notes what it found right in the property `verified` (src/engine/verified_test_util.h); what a test
that failed or was skipped notes does not count. Each line of RECORD is

    operation  subject  device  how        (tab between)

sorted, and `ran  DEVICE  MACHINE  DATE` says where those of a device come from. The lines of a device are replaced as a whole
by a run on that device; those of devices that this machine lacks stay. --check looks at the devices that both sides know.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

Fact = tuple[str, str, str, str]
NOT_RUN = 77


def facts_of(report: Path) -> set[Fact]:
    """Return what the tests of one report found right."""
    facts: set[Fact] = set()
    for suite in json.loads(report.read_text())["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("result") != "COMPLETED" or test.get("failures"):
                continue
            for line in filter(None, test.get("verified", "").split(";")):
                operation, subject, device, how = line.split("|")
                facts.add((operation, subject, device, how))
    return facts


def failures_of(report: Path) -> int:
    """Return how many tests of one report failed."""
    return json.loads(report.read_text())["failures"]


def read_record(path: Path) -> tuple[set[Fact], dict[str, tuple[str, str]]]:
    """Return the facts of a record, and machine and date of each device."""
    facts: set[Fact] = set()
    ran: dict[str, tuple[str, str]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        words = line.split("\t")
        if line.startswith("#") or len(words) != 4:
            continue
        if words[0] == "ran":
            ran[words[1]] = (words[2], words[3])
        else:
            facts.add((words[0], words[1], words[2], words[3]))
    return facts, ran


def write_record(path: Path, facts: set[Fact], ran: dict[str, tuple[str, str]]) -> None:
    """Write a record."""
    lines = ["# What tests found right, by tools/docs/collect_verified.py: operation, subject, device, how; do not edit."]
    lines += ["\t".join(("ran", device, *where)) for device, where in sorted(ran.items())]
    lines += ["\t".join(fact) for fact in sorted(facts)]
    path.write_text("\n".join(lines) + "\n")


def machine_of(device: str) -> str:
    """Return the name of what tests of `device` ran on."""
    if device.startswith("sm_"):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()[0].strip()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def differences(record: set[Fact], found: set[Fact]) -> list[str]:
    """Return a line for each fact of a device that both sides know and only one has."""
    devices = {fact[2] for fact in found} & {fact[2] for fact in record}
    lost = {fact for fact in record if fact[2] in devices} - found
    new = {fact for fact in found if fact[2] in devices} - record
    return [f"no test shows any more: {', '.join(fact)}" for fact in sorted(lost)] + [
        f"the record lacks: {', '.join(fact)}" for fact in sorted(new)
    ]


def replaced(record: set[Fact], found: set[Fact], partial: bool) -> set[Fact]:
    """Return what of `record` gives way to `found`: all of its devices, or of these the operations that it has."""
    if partial:
        return {fact for fact in record if (fact[0], fact[2]) in {(new[0], new[2]) for new in found}}
    return {fact for fact in record if fact[2] in {new[2] for new in found}}


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--machine", help="name of the machine to record")
    parser.add_argument("--partial", action="store_true", help="reports of some tests, from a machine that ran only these; replaces their operations")
    parser.add_argument("record", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    reports = sorted(arguments.folder.glob("*.json"))
    if not arguments.partial:
        expected = (arguments.folder / "expected.txt").read_text().split()
        missing = sorted(set(expected) - {report.stem for report in reports})
        reports = [report for report in reports if report.stem in expected]
        if missing:
            print(f"collect_verified.py: not run yet: {', '.join(missing)}", file=sys.stderr)
            return NOT_RUN
    if failed := [report.stem for report in reports if failures_of(report)]:
        print(f"collect_verified.py: failed: {', '.join(failed)}", file=sys.stderr)
        if not arguments.partial:
            return 1
    found: set[Fact] = set().union(*(facts_of(report) for report in reports))
    record, ran = read_record(arguments.record)
    wrong = differences(record, found)
    if arguments.check:
        for line in wrong[:20]:
            print(line, file=sys.stderr)
        if wrong:
            print(f"{len(wrong)} differences from {arguments.record}: make tables", file=sys.stderr)
        return 1 if wrong else 0
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for device in {fact[2] for fact in found}:
        ran[device] = (arguments.machine or machine_of(device), today)
    write_record(arguments.record, record - replaced(record, found, arguments.partial) | found, ran)
    return 0


if __name__ == "__main__":
    sys.exit(main())
