"""Tables of figures that a device is held to, each read from a recording: what cpu_table.py and gpu_table.py have in common."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import common

Recording = dict[str, Any]


@dataclass
class Figure:
    """A row: what is asked for, and how it is read from the first of some recordings that is there."""

    what: str
    limit: float  # at least, or at most
    goal: float
    unit: str  # "x", "%", or of a rate
    names: tuple[str, ...]
    read: Callable[[Recording], float]
    at_most: bool = False

    def text(self, value: float) -> str:
        """Return a value as the table shows it."""
        if self.unit == "%":
            return f"{value:.1f} %" if self.limit < 10 else f"{value:.0f} %"
        if self.unit == "x":
            return f"{value:.2f}x"
        return f"{value:.2f} {self.unit}" if value < 10 else f"{value:,.0f} {self.unit}"

    def asked(self, value: float) -> str:
        """Return what is asked for."""
        text = f"{value:g}x" if self.unit == "x" else self.text(value).replace(".0 %", " %")
        return f"at most {text}" if self.at_most else text

    def kept(self, value: float) -> bool:
        """Return whether a value is as good as asked for, at the digits that the table shows."""
        shown = round(value, 2) if self.unit == "x" else value
        return shown <= self.limit if self.at_most else shown >= self.limit


@dataclass
class Column:
    """Recordings of one machine."""

    name: str
    heading: str
    suffix: str  # the end of their names
    judged: bool = True  # whether what is asked for is asked of this machine


def find(figure: Figure, suffix: str) -> tuple[str, float] | None:
    """Return the recording that has the figure, and the figure."""
    for name in figure.names:
        path = common.RESULTS / f"{name}{suffix}.json"
        if not path.exists():
            continue
        try:
            return path.stem, figure.read(json.loads(path.read_text(encoding="utf-8")))
        except (KeyError, IndexError, StopIteration):
            continue  # another part of that recording
    return None


def write(name: str, figures: Sequence[Figure], columns: Sequence[Column], processor: str, command: str, note: str = "") -> None:
    """Write bench/results/NAME.json and NAME.md; `processor` heads the column of devices."""
    rows, cells, used = [], [], []
    for figure in figures:
        found = {column.name: find(figure, column.suffix) for column in columns}
        used += [one[0] for one in found.values() if one and one[0] not in used]
        texts = []
        for column in columns:
            one = found[column.name]
            missed = one is not None and column.judged and not figure.kept(one[1])
            texts.append("" if one is None else figure.text(one[1]) + (" *" if missed else ""))
        rows.append([figure.what, figure.asked(figure.limit), figure.asked(figure.goal), *texts])
        limit = "most" if figure.at_most else "least"
        cells.append({"what": figure.what, limit: figure.limit, "goal": figure.goal, "unit": figure.unit, "cells": {
            key: {"recording": one[0], "value": round(one[1], 3)} for key, one in found.items() if one}})
    sources = []
    for recording in sorted(used):
        report = json.loads((common.RESULTS / f"{recording}.json").read_text(encoding="utf-8"))
        source = report["provenance"]
        busy = ", busy" if report.get("quiet", {}).get("busy") else ""
        sources.append([recording, source["commit"][:12], source["date"], source["device_class"].split("/")[1] + busy])
    header = ["", "at least", "goal", *(column.heading for column in columns)]
    text = common.table(header, rows) + "\n\n" + common.table(["recording", "commit", "date", processor], sources, left=(0, 1, 2, 3))
    text += f"\n\n\"*\": not as asked for at least. {note}Command: `{command}`\n"
    report = {"columns": {column.name: column.suffix for column in columns}, "figures": cells}
    (common.RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (common.RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
