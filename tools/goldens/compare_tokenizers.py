#!/usr/bin/env python3
"""Compare the tokenizers with llama.cpp's on random texts, for every kind of vocabulary, and write the table of results.

    compare_tokenizers.py --test build/src/model/tokenizer/tokenizer_golden_test --model SmolLM2.gguf \\
        --table docs/tokenizers.md [--count 300000] [--name-count 20000] [--seed 1]

Vocabularies: every one in tests/data, SmolLM2's, 1,000 random SentencePiece ones together, and one for each further name
that llama.cpp has for a pre-tokenizer (read from src/model/tokenizer/pre_split_families.cc, so that none is forgotten; they
get `--name-count` texts, but for starcoder, the name that files use most). Texts, ids and the test that compares are those
of make_random_cases.py. The table stands between two comments in the page, with the seed of each row; the program fails if
any text differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import corpus
import llama
import make_random_cases
import tiny_vocab

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "src/model/tokenizer/pre_split_families.cc"
BEGIN, END = "<!-- table of comparisons -->\n", "<!-- end of table -->\n"
RESULT = re.compile(r"^\S+: (\d+) texts, (\d+) differ$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of one kind of vocabulary."""

    name: str
    like: str  # the family whose splits it has, by another name; or what it is
    texts: int
    differ: int


def names_of_families() -> list[tuple[str, str]]:
    """Return (name, family) of each further name of a pre-tokenizer."""
    names = re.findall(r'Alias\{"([^"]+)", "([^"]+)"\}', FAMILIES.read_text(encoding="utf-8"))
    if not names:
        raise RuntimeError(f"no names in {FAMILIES}")
    return names


def compare(test: Path, folder: Path) -> tuple[int, int]:
    """Run the test on the cases in `folder`; return how many texts there were and how many of them differ."""
    environment = {**os.environ, "TILEWRIGHT_TOKENIZER_CASES": str(folder)}
    command = [str(test), "--gtest_filter=TokenizerRandomCases.*"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = RESULT.findall(done.stdout)
    texts, differ = sum(int(texts) for texts, _ in found), sum(int(differ) for _, differ in found)
    if done.returncode != 0 or not found:
        print(done.stdout[-4000:] + done.stderr[-1000:], file=sys.stderr, flush=True)
        if differ == 0:
            raise RuntimeError(f"{test} failed")
    return texts, differ


def run_kind(name: str, like: str, arguments: argparse.Namespace) -> Row:
    """Make the cases of one kind in a folder that goes away, and compare."""
    folder = Path(tempfile.mkdtemp(prefix="tokenizer_cases_"))
    try:
        if name == "random SentencePiece":
            for index in range(arguments.piece_vocabularies):
                path = folder / f"pieces-{index}.gguf"
                make_random_cases.random_piece_vocabulary(path, arguments.seed * 100000 + index)
                make_random_cases.write_cases(path, folder, arguments.count // arguments.piece_vocabularies, arguments.seed)
        elif like in {spec.pre for spec in tiny_vocab.SPECS}:
            spec = next(spec for spec in tiny_vocab.SPECS if spec.pre == like)
            path = folder / f"vocab_{name}.gguf"
            tiny_vocab.write_vocab(dataclasses.replace(spec, pre=name), corpus.TRAINING_TEXT, path)
            count = arguments.count if name == "starcoder" else arguments.name_count
            make_random_cases.write_cases(path, folder, count, arguments.seed)
        else:
            path = arguments.model if name == "SmolLM2" else ROOT / f"tests/data/vocab_{name}.gguf"
            make_random_cases.write_cases(path, folder, arguments.count, arguments.seed)
        texts, differ = compare(arguments.test, folder)
    finally:
        shutil.rmtree(folder)
    print(f"{name}: {texts} texts, {differ} differ", flush=True)
    family = like in {spec.pre for spec in tiny_vocab.SPECS}
    return Row(name, f"as {like}" if family else like, texts, differ)


def merged(page: str, rows: list[Row], seed: int) -> str:
    """Return `page` with `rows` in its table: in place of those of the same name, else behind them."""
    before, rest = page.split(BEGIN)
    old, after = rest.split(END)
    lines = {line.split("|")[1].strip(): line for line in old.splitlines(keepends=True)[2:]}
    for row in rows:
        cells = (row.name, row.like, f"{row.texts:,}", str(seed), llama.version(), str(row.differ))
        lines[row.name] = f"| {' | '.join(cells)} |\n"
    heading = "| vocabulary | kind | texts | seed | llama-cpp-python | of which differ |\n|---|---|---|---|---|---|\n"
    return before + BEGIN + heading + "".join(lines.values()) + END + after


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", type=Path, required=True, help="tokenizer_golden_test")
    parser.add_argument("--model", type=Path, required=True, help="SmolLM2-135M-Instruct")
    parser.add_argument("--table", type=Path, help="the page whose table gets the rows")
    parser.add_argument("--count", type=int, default=300000, help="texts of each kind")
    parser.add_argument("--name-count", type=int, default=20000, help="texts of each further name of a pre-tokenizer")
    parser.add_argument("--piece-vocabularies", type=int, default=1000, help="random SentencePiece vocabularies")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these vocabularies, not all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    kinds = [("SmolLM2", "a real vocabulary (smollm)")]
    kinds += [(spec.pre, "byte-level BPE") for spec in tiny_vocab.SPECS]
    kinds += [(spec.name, "SentencePiece BPE") for spec in tiny_vocab.PIECE_SPECS]
    kinds += [("random SentencePiece", f"SentencePiece BPE, {arguments.piece_vocabularies:,} vocabularies")]
    kinds += names_of_families()
    if arguments.only:
        kinds = [kind for kind in kinds if kind[0] in arguments.only]
    # A process each: llama.cpp holds the interpreter while it works.
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(run_kind, *zip(*kinds), [arguments] * len(kinds)))
    if arguments.table:
        page = arguments.table.read_text(encoding="utf-8")
        arguments.table.write_text(merged(page, rows, arguments.seed), encoding="utf-8")
    return 1 if any(row.differ for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
