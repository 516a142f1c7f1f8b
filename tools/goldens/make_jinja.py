#!/usr/bin/env python3
"""Make tests/data/goldens/jinja.json: what Python's jinja2 renders, in the environment that chat templates are written for.

    make_jinja.py --output tests/data/goldens/jinja.json

The file has `made_by`; `templates`, those of the families by name; `variables`, sets of them by name; and `cases`, one a
line, each with `name`, `template` (a text, or the name of a family), `variables` (the name of a set), perhaps
`add_generation_prompt`, and either `rendered` or `fails` (the kind of error). Every case of `jinja_cases.py` is one
feature; the families' templates there are our own texts that write what those of the families write, with the same
constructs.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox

import jinja_cases

# What strftime_now formats; the test renders at the same time.
NOW = datetime.datetime(2024, 2, 9, 15, 4, 5)


class Refusal(Exception):
    """What raise_exception raises."""


class Generation(jinja2.ext.Extension):
    """`generation` marks what an assistant wrote; it renders as what it contains."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Parse the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: jinja2.runtime.Macro) -> str:
        return caller()


def refuse(message: str) -> None:
    """Be the templates' raise_exception."""
    raise Refusal(message)


def to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, separators: tuple[str, str] | None = None,
            sort_keys: bool = False) -> str:
    """Be the templates' tojson, which escapes nothing for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> jinja2.Environment:
    """Return the environment in which templates of language models are run."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = NOW.strftime
    return made


def rendered(template: str, variables: dict[str, object]) -> dict[str, str]:
    """Return the text, or the kind of failure: `refused` by the template, `wrong` for anything else."""
    try:
        return {"rendered": environment().from_string(template).render(**variables)}
    except Refusal as refusal:
        return {"fails": "refused", "message": str(refusal)}
    except Exception:  # noqa: BLE001 - whatever Python raises
        return {"fails": "wrong"}


def main() -> None:
    """Run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    given = {"common": jinja_cases.VARIABLES, **jinja_cases.conversations()}
    cases, unexpected = [], []
    for case in jinja_cases.all_cases():
        template = jinja_cases.FAMILIES.get(case["template"], case["template"])
        extra = {key: case[key] for key in ("add_generation_prompt",) if key in case}
        result = rendered(template, {**given[case["variables"]], **extra})
        # A family may have no words for a conversation.
        expected = result.get("fails") == "wrong"
        if case["template"] not in jinja_cases.FAMILIES and case["name"].startswith("wrong") != expected:
            unexpected.append(f"{case['name']}: {result}")
        cases.append({**case, **result})
    if unexpected:
        raise SystemExit("\n".join(unexpected))
    head = {
        "made_by": {"tool": "tools/goldens/make_jinja.py", "jinja2": jinja2.__version__},
        "templates": jinja_cases.FAMILIES,
        "variables": given,
    }
    lines = [f'"{key}": {json.dumps(value, ensure_ascii=False)}' for key, value in head.items()]
    lines.append('"cases": [\n' + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]")
    arguments.output.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
