#!/usr/bin/env python3
"""Record the speed of a model beside llama.cpp's and OpenVINO's, alternating in one run.

    record_model.py --tilewright build/cli/tilewright --model MODEL.gguf --llama DEST

DEST is what tools/baseline/build_llama_cpp.sh built (or DEST/variant-NAME). --llama may be repeated
for other builds; FOLDER,NAME=VALUE sets an environment variable (--llama DEST,KMP_BLOCKTIME=0). All take
part with flash attention off and on; the baseline is the best median of them all, for prompt and
decode separately. --openvino PYTHON adds OpenVINO GenAI (tools/baseline/bench_openvino.py, run by that
interpreter) in each of its settings, as a row of its own. --isa avx512 caps our instruction set
(TILEWRIGHT_ISA), to be compared with a build of llama.cpp without AMX. --batch 8 also decodes that many
sequences at once with ours. --first-token N compares whole processes, from their start to the first
token behind a prompt of N tokens, with llama.cpp's setting that was faster in the prompt.

First `tilewright tune` fills the records (--tune 0: not). Then each round measures ours once and
each baseline once, in an order that rotates with the round, so that clock changes and busy
neighbours affect all. The first repetition of each is a warm-up. Ours also measures memory read
bandwidth and peak arithmetic in each round, which give the floor.

Writes bench/results/NAME.json (all samples, provenance, how busy the machine was) and NAME.md.
Takes about 2 minutes; --budget ends it after the round that exceeds it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import common

sys.path.insert(0, str(common.ROOT / "tools" / "baseline"))
import bench_llama_cpp  # noqa: E402  (needs the line above)

KINDS = ("prompt", "decode")
FIRST_TOKEN_ROUNDS = 7

# Settings of OpenVINO's CPU plugin: as it comes, and with activations rounded for every 32 of a row, as blocks of weights are.
OPENVINO_SETTINGS = {"default": [], "groups_of_32": ["DYNAMIC_QUANTIZATION_GROUP_SIZE=32"]}


class Baseline:
    """One build of llama.cpp, optionally with its own environment variables."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        settings = "".join(f",{name}={value}" for name, value in environment.items())
        self.name = common.shown(folder) + settings
        self.samples: dict[str, dict[str, list[float]]] = {kind: {"fa_off": [], "fa_on": []} for kind in KINDS}
        self.commit = ""

    def measure(self, arguments: argparse.Namespace) -> None:
        """Run llama-bench once with both settings of flash attention."""
        command = [self.folder / "bin" / "llama-bench", "-m", arguments.model, "-t", arguments.threads]
        command += ["-p", arguments.prompt, "-n", arguments.decode, "-r", 1, "-fa", "0,1", "-o", "jsonl"]
        for line in common.run(command, self.environment).splitlines():
            if not line.startswith("{"):
                continue
            record = json.loads(line)
            self.commit = record["build_commit"]
            kind = "prompt" if record["n_prompt"] else "decode"
            # Newer versions write on, off or auto; older ones wrote a number.
            on = str(record["flash_attn"]).lower() in ("1", "on", "true", "enabled")
            self.samples[kind]["fa_on" if on else "fa_off"] += record["samples_ts"]

    def report(self) -> dict[str, Any]:
        """Return the build and its figures."""
        report: dict[str, Any] = {
            "name": self.name,
            "llama_cpp_commit": self.commit,
            "build": bench_llama_cpp.build_info(self.folder),
            "environment": self.environment,
        }
        for kind in KINDS:
            report[kind] = {name: common.summarize(values) for name, values in self.samples[kind].items() if values}
        return report


class OpenVino:
    """OpenVINO GenAI in an interpreter that has it."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.samples: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in OPENVINO_SETTINGS} for kind in KINDS}
        self.version = ""
        self.name = "openvino"

    def measure(self, arguments: argparse.Namespace) -> None:
        """Measure every setting once."""
        script = common.ROOT / "tools" / "baseline" / "bench_openvino.py"
        for name, words in OPENVINO_SETTINGS.items():
            command = [self.python, script, arguments.model, "-p", arguments.prompt, "-n", arguments.decode]
            command += ["--threads", arguments.threads, "--repeat", 1, *(part for word in words for part in ("--set", word))]
            report = json.loads(common.run(command).splitlines()[-1])
            self.version = report["version"]
            for kind in KINDS:
                self.samples[kind][name] += report[kind]

    def report(self) -> dict[str, Any]:
        """Return the version and its figures."""
        figures = {kind: {name: common.summarize(values) for name, values in self.samples[kind].items()} for kind in KINDS}
        return {"version": self.version, "settings": OPENVINO_SETTINGS, **figures}


def first_token(arguments: argparse.Namespace, baseline: Baseline, flash_attention: str) -> dict[str, Any]:
    """Return the seconds of whole processes to the first token behind a prompt, ours and llama.cpp's in turns."""
    count, threads = arguments.first_token, arguments.threads
    ids = ",".join(str(1000 + 7 * i) for i in range(count))
    bench = [baseline.folder / "bin" / "llama-bench", "-m", arguments.model, "-p", count, "-n", 0, "-r", 1]
    bench += ["--no-warmup", "-t", threads, "-fa", int(flash_attention == "fa_on")]
    run = [arguments.tilewright, "run", arguments.model, "--tokens", ids, "-n", 1, "--temp", 0, "--threads", threads]
    ours, theirs = partial(common.seconds_of, run), partial(common.seconds_of, bench, baseline.environment)
    samples = common.in_turns({"tilewright": ours, "llama.cpp": theirs}, FIRST_TOKEN_ROUNDS)
    return {name: common.summarize(values, 4) for name, values in samples.items()}


def find_baselines(arguments: argparse.Namespace) -> list[Baseline]:
    """Return the builds that --llama names."""
    found = []
    for word in arguments.llama:
        folder, *settings = word.split(",")
        if wrong := [setting for setting in settings if "=" not in setting]:
            common.fail(f"--llama {word}: '{wrong[0]}' is not NAME=VALUE")
        environment = dict(setting.split("=", 1) for setting in settings)
        if not (Path(folder) / "bin" / "llama-bench").exists():
            common.fail(f"no llama-bench in {folder}/bin; run tools/baseline/build_llama_cpp.sh {folder}")
        found.append(Baseline(Path(folder).absolute(), environment))
    if arguments.isa is None:
        for baseline in found:
            bench_llama_cpp.check_amx(baseline.folder)
    return found


class Ours:
    """The samples of tilewright."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.floors: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.batch: list[float] = []  # of decoding --batch sequences, tokens a second of all
        self.read_gb_s: list[float] = []
        self.hand_over_ns: list[float] = []  # before and after each round
        self.peak_gop_s: list[float] = []
        self.device_class = ""
        self.peak_instruction = ""

    def measure(self, arguments: argparse.Namespace) -> None:
        """Run `bench model` once."""
        command = [arguments.tilewright, "bench", "model", arguments.model, "--json", "--repeat", 1]
        command += ["--threads", arguments.threads, *arguments.tilewright_arguments]
        report = common.run_json([*command, "-p", arguments.prompt, "-n", arguments.decode])
        self.device_class = report["device"]
        self.peak_instruction = report["peak_instruction"]
        self.read_gb_s.append(report["read_gb_s"])
        self.hand_over_ns += [ns for ns in (report["hand_over_ns_before"], report["hand_over_ns_after"]) if ns > 0]
        self.peak_gop_s.append(report["peak_gop_s"])
        for row in report["rows"]:
            kind = "prompt" if row["test"].startswith("pp") else "decode"
            self.samples[kind].append(row["tok_s_median"])
            self.floors[kind].append(row["floor_tok_s"])
        if arguments.batch:
            more = common.run_json([*command, "-p", 0, "-n", arguments.decode, "--batch", arguments.batch])
            self.batch.append(more["rows"][0]["tok_s_median"])

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        report: dict[str, Any] = {kind: common.summarize(self.samples[kind]) for kind in KINDS if self.samples[kind]}
        for kind in report:
            report[kind]["floor_median"] = common.summarize(self.floors[kind])["median"]
            shares = [rate / floor for rate, floor in zip(self.samples[kind], self.floors[kind])]
            report[kind]["of_floor"] = common.summarize(shares, 3)
        if self.batch:
            report["batch"] = common.summarize(self.batch)
        report["read_gb_s"] = common.summarize(self.read_gb_s)
        if self.hand_over_ns:
            report["hand_over_ns"] = common.summarize(self.hand_over_ns)
        report["peak_gop_s"] = common.summarize(self.peak_gop_s) | {"instruction": self.peak_instruction}
        return report


def best_of(baselines: list[Baseline] | list[OpenVino], kind: str) -> tuple[str, dict[str, Any]]:
    """Return the fastest baseline's name and figures."""
    settings = [
        (f"{baseline.name} {name}", common.summarize(values))
        for baseline in baselines
        for name, values in baseline.samples[kind].items()
        if values
    ]
    return max(settings, key=lambda setting: setting[1]["median"])


def measure(arguments: argparse.Namespace, baselines: list[Baseline], openvino: list[OpenVino]) -> tuple[Ours, int]:
    """Run the rounds; return our samples and how many rounds there were."""
    ours = Ours()
    contenders: list[Ours | Baseline | OpenVino] = [ours, *baselines, *openvino]
    start = time.monotonic()
    done = 0
    for done in range(1, arguments.rounds + 1):
        shift = done % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            contender.measure(arguments)
        print(f"round {done} of {arguments.rounds}, {time.monotonic() - start:.0f} s", file=sys.stderr)
        if time.monotonic() - start > arguments.budget:
            break
    return ours, done


def make_table(
    arguments: argparse.Namespace, ours: Ours, baselines: list[Baseline], openvino: list[OpenVino], first: dict[str, Any] | None
) -> str:
    """Return the table of ours, the best baselines and the ratios."""
    rows = []
    for kind, count in (("prompt", arguments.prompt), ("decode", arguments.decode)):
        if not ours.samples[kind]:
            continue
        mine, report = common.summarize(ours.samples[kind]), ours.report()[kind]
        for others in (baselines, openvino):
            if not others:
                continue
            name, theirs = best_of(others, kind)
            floor = [f"{report['floor_median']:.0f}", f"{100 * report['of_floor']['median']:.0f} %"]
            rows.append([f"{kind} {count}", common.spread(mine), common.spread(theirs), f"{mine['median'] / theirs['median']:.2f}x", *floor, name])
    if ours.batch:
        many, one = common.summarize(ours.batch), common.summarize(ours.samples["decode"])
        ratio = f"{many['median'] / one['median']:.2f}x"
        rows.append([f"decode {arguments.decode}, {arguments.batch} sequences", common.spread(many), common.spread(one), ratio, "", "", "one sequence, ours"])
    if first:
        mine, theirs = first["tilewright"], first["llama.cpp"]
        ratio = f"{theirs['median'] / mine['median']:.2f}x"
        rows.append([f"s, prompt of {arguments.first_token} to first token", common.spread(mine, 3), common.spread(theirs, 3), ratio, "", "", "llama.cpp, process"])
    header = ["tok/s", "tilewright", "other", "ratio", "floor", "of floor", "fastest of the others"]
    title = f"{arguments.model.name}, {arguments.threads} threads, medians (lowest-highest)"
    if arguments.isa:
        title += f", ours capped at {arguments.isa}"
    read = common.summarize(ours.read_gb_s)
    floor = f"Floor: {common.spread(read, 1, ' GB/s read')}, "
    floor += f"{common.summarize(ours.peak_gop_s)['median']:.0f} Gop/s {ours.peak_instruction}, measured in each round."
    if ours.hand_over_ns:
        seen = common.summarize(ours.hand_over_ns)
        floor += f" A worker saw what another wrote after {common.spread(seen, 0, ' ns')}."
    return f"{title}\n\n{common.table(header, rows, left=(0, 6))}\n\n{floor}"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = common.ROOT / "build"
    model = build / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    llama = os.environ.get("TILEWRIGHT_LLAMA_DIR", str(build / "llama"))
    parser.add_argument("--tilewright", type=Path, default=build / "cli" / "tilewright", help="our binary")
    parser.add_argument("--model", type=Path, default=model, help="GGUF file")
    parser.add_argument("--llama", action="append", help="folder of builds (default: $TILEWRIGHT_LLAMA_DIR, else build/llama)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens (0: none)")
    parser.add_argument("-n", "--decode", type=int, default=128, help="decoded tokens (0: none)")
    parser.add_argument("--openvino", type=Path, metavar="PYTHON", help="interpreter that has openvino_genai (default: without OpenVINO)")
    parser.add_argument("--isa", help="cap our instruction set, as TILEWRIGHT_ISA; any build of llama.cpp may then be the baseline")
    parser.add_argument("--batch", type=int, default=0, help="also decode so many sequences at once (0: not)")
    parser.add_argument("--first-token", type=int, default=0, metavar="N", help="also time processes to the first token behind N tokens (0: not)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=90, help="seconds after which no new round begins")
    common.add_tuning(parser, "20s")
    parser.add_argument("--name", help="of the result (default: model-FILE)")
    parser.add_argument("tilewright_arguments", nargs="*", help="after --: for `tilewright bench model`")
    arguments = parser.parse_args()
    arguments.llama = arguments.llama or [llama]
    arguments.name = arguments.name or "model-" + arguments.model.stem.lower().replace(".", "-")
    common.need_files(parser, arguments.tilewright, arguments.model, arguments.openvino)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    if arguments.isa:
        os.environ["TILEWRIGHT_ISA"] = arguments.isa
    baselines = find_baselines(arguments)
    openvino = [OpenVino(arguments.openvino)] if arguments.openvino else []
    common.warn_if_loaded()
    tuned = common.tune(arguments, [[arguments.model]])
    quiet = common.Quiet()
    ours, rounds = measure(arguments, baselines, openvino)
    first = None
    if arguments.first_token:
        name, _ = best_of(baselines, "prompt" if arguments.prompt else "decode")
        builds = {f"{baseline.name} {setting}": (baseline, setting) for baseline in baselines for setting in ("fa_off", "fa_on")}
        first = first_token(arguments, *builds[name])
    best = {kind: best_of(baselines, kind) for kind in KINDS if ours.samples[kind]}
    report = {
        "provenance": common.provenance(arguments.tilewright, ours.device_class),
        "quiet": quiet.report(),
        "model": common.model_identity(arguments.model),
        "tuned": tuned,
        "threads": arguments.threads,
        "rounds": rounds,
        "unit": "tokens a second; medians over rounds",
        "tilewright": ours.report(),
        "baseline": {kind: {"name": name, "median": figures["median"]} for kind, (name, figures) in best.items()},
        "ratio": {
            kind: round(common.summarize(ours.samples[kind])["median"] / figures["median"], 3)
            for kind, (_, figures) in best.items()
        },
        "llama_cpp": [baseline.report() for baseline in baselines],
    }
    if arguments.batch:
        many, one = common.summarize(ours.batch), common.summarize(ours.samples["decode"])
        report["batch"] = {"sequences": arguments.batch, "ratio": round(many["median"] / one["median"], 3)}
    for other in openvino:
        report["openvino"] = other.report()
        medians = {kind: best_of(openvino, kind)[1]["median"] for kind in KINDS}
        report["openvino"]["ratio"] = {
            kind: round(common.summarize(ours.samples[kind])["median"] / medians[kind], 3) for kind in KINDS if ours.samples[kind]
        }
    if first:
        ratio = round(first["llama.cpp"]["median"] / first["tilewright"]["median"], 3)
        report["first_token_s"] = {"prompt": arguments.first_token, **first, "ratio": ratio}
    common.write(arguments.name, report, make_table(arguments, ours, baselines, openvino, first))


if __name__ == "__main__":
    main()
