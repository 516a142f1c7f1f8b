#!/usr/bin/env python3
"""Reports how many of some tests the last run of ctest skipped, and why what they need is missing.

Usage: skipped_tests.py BUILD_FOLDER FILE_OF_NAMES WHY [REASON_FILE]

Reads tests.xml (ctest --output-junit) and the log of the run. Prints one line, "N tests skipped because WHY (reason)", or nothing. A test of several cases counts by the cases that GoogleTest shows as skipped, any other as one.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree


def skipped_cases(log, name):
    """How many cases of a test the log shows as skipped."""
    start = log.find(f' Test: {name}\n')
    block = log[start:log.find('\n<end of output>', start)] if start >= 0 else ''
    return len(re.findall(r'^\[  SKIPPED \] \S+ \(\d+ ms\)$', block, re.MULTILINE))


def main():
    build, names_file, why = sys.argv[1:4]
    names = set(pathlib.Path(names_file).read_text().splitlines())
    report = pathlib.Path(build, 'tests.xml')
    if not report.exists():
        return
    skipped = {case.get('name') for case in xml.etree.ElementTree.parse(report).iter('testcase') if case.find('skipped') is not None}
    log = pathlib.Path(build, 'Testing/Temporary/LastTest.log').read_text(errors='replace')
    count = sum(skipped_cases(log, name) or 1 for name in skipped & names)
    if count == 0:
        return
    reason = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    lines = '; '.join(reason.read_text().splitlines()) if reason and reason.exists() else ''
    more = f' ({lines})' if lines else ''
    print(f'-- {count} {"test" if count == 1 else "tests"} skipped because {why}{more}')


if __name__ == '__main__':
    main()
