#!/usr/bin/env python3
"""Record the speed of models on a GPU, where its time goes, and how soon the first token comes.

    record_gpu_model.py [--models llama-3.1-8b:q4_k,smollm2-135m:q4_1] [--device cuda:0]

Speed: every model is a shape with random weights that are in no file (`tilewright bench model --synth`),
since speed does not depend on the values. Decode generates --generate tokens after --depth positions
that are not timed; a prompt of --prompts tokens is one pass (--ubatch). Each with the library's own
kernels and with all providers' apart. Figures are medians of --repeat runs after one for warming up,
with the lowest and highest; the floor is what the board's memory and tensor cores would allow by their
clocks. Weights that exceed the L2 cache are read from memory in every pass. Kernels are compiled before
anything is timed.

Kernels: the time of every kind of step of a pass (`--profile`), beside its bytes or operations, in a
file of its own.

First token: from exec until the first byte of the text, of --first-model with a prompt of 8 tokens: with
a store that has the kernels, and with an installed bundle of them and an empty cache, where no compiler
may be loaded. The start of the GPU's driver is in it.

llama.cpp: with --llama, what `tools/baseline/build_llama_cpp.sh DEST --no-venv -- -DGGML_CUDA=ON
-DCMAKE_CUDA_ARCHITECTURES=90` built, it runs the same on a file of each of --llama-models (`tilewright synth`, the same
weights), with flash attention off and on, after ours. The better median counts.

Launch: what bench/gpu/prepared_launch_bench prints, a prepared launch over the bare driver entry, with
the same attributes; the median of --launches processes, since each has its code and data elsewhere.

Writes bench/results/NAME.json, NAME.md and NAME_kernels.md. Takes about a minute for a model of 8 G
parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import common

DEFAULT = "smollm2-135m:q4_1,llama-3.1-8b:q4_k,llama-3.1-8b:q4_k_m,llama-3.1-8b:q8_0,llama-3.1-8b:bf16,llama-3.2-1b:bf16"
BOARD = "name,driver_version,clocks.max.sm,clocks.max.mem,power.limit"
LOAD = "clocks.sm,clocks.mem,power.draw"
LIMITS = {"first_token_ms": 2000, "launch_over_ns": 100, "launch_allocations": 0}
# What is asked of the products of a layer in a row, on an H200: their bytes at this rate, and so much more for each.
CHAIN_TB_S, CHAIN_US = 4.1, 1.3
RUNS = 5


def query(device: str, fields: str) -> str:
    """Return what the driver says of the board."""
    index = device.rpartition(":")[2]
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-i", index]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown (no nvidia-smi)"


class Clocks:
    """Samples the clocks and the power of the board until it is stopped."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.samples: list[list[float]] = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    def _sample(self) -> None:
        while not self.stopped.wait(0.5):
            try:
                self.samples.append([float(word) for word in query(self.device, LOAD).split(",")])
            except ValueError:
                return

    def stop(self) -> dict[str, Any]:
        """Return lowest, median and highest of the second half, when the weights are there."""
        self.stopped.set()
        self.thread.join()
        late = self.samples[len(self.samples) // 2:]
        report = {}
        for i, name in enumerate(LOAD.split(",")):
            values = sorted(sample[i] for sample in late)
            if values:
                report[name] = [values[0], values[len(values) // 2], values[-1]]
        return report


def bench(arguments: argparse.Namespace, model: str, providers: str, words: list[str]) -> dict[str, Any]:
    """Run one benchmark of a model."""
    preset, _, quant = model.partition(":")
    command = [arguments.tilewright, "bench", "model", "--synth", preset, "--quant", quant, "--json", "--profile"]
    command += ["--device", arguments.device, "--providers", providers, "--repeat", arguments.repeat]
    clocks = Clocks(arguments.device)
    result = common.run_json([str(word) for word in [*command, *arguments.bundle_words, *words]])
    result["clocks"] = clocks.stop()
    result["providers"] = providers
    return result


def measure(arguments: argparse.Namespace, model: str) -> list[dict[str, Any]]:
    """Return the results of one model: decode and prompt, with each set of providers."""
    results = []
    for providers in arguments.providers.split(","):
        decode = ["-p", "0", "-n", arguments.generate, "-d", arguments.depth, "--batch", arguments.batch]
        results.append(bench(arguments, model, providers, decode))
        if arguments.prompts != "0":
            prompt = ["-p", arguments.prompts, "-n", "0", "--ubatch", arguments.ubatch]
            results.append(bench(arguments, model, providers, prompt))
        print(f"{model}, {providers}: done", file=sys.stderr)
    return results


def llama_bench(arguments: argparse.Namespace, file: Path, words: list[str]) -> list[dict[str, Any]]:
    """Run llama-bench with flash attention off and on; a record for each test and setting."""
    folder = arguments.llama / "bin"
    command = [folder / "llama-bench", "-m", file, "-ngl", 99, "-fa", "off,on", "-r", arguments.repeat, "-o", "jsonl", *words]
    env = {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    lines = common.run([str(word) for word in command], env).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def measure_llama(arguments: argparse.Namespace, model: str, folder: Path) -> dict[str, Any]:
    """Return what llama.cpp makes of the file of a model: decode of one sequence at the depth, and prompts."""
    preset, _, quant = model.partition(":")
    file = folder / f"{preset}.{quant}.gguf"
    common.run([str(word) for word in [arguments.tilewright, "synth", "--preset", preset, "--quant", quant, "-o", file]])
    tests = [llama_bench(arguments, file, ["-p", 0, "-n", arguments.generate, "-d", arguments.depth])]
    if arguments.prompts != "0":
        tests.append(llama_bench(arguments, file, ["-p", arguments.prompts, "-n", 0, "-b", arguments.ubatch, "-ub", arguments.ubatch]))
    file.unlink()
    rows = []
    for records in tests:
        for name in sorted({(record["n_prompt"], record["n_gen"]) for record in records}):
            of_test = [record for record in records if (record["n_prompt"], record["n_gen"]) == name]
            settings = {{"0": "off", "1": "on"}.get(str(record["flash_attn"]), "auto"): record["samples_ts"] for record in of_test}
            prompt, generated = name
            rows.append({"test": f"pp{prompt}" if prompt else f"tg{generated} @ d{arguments.depth}", "samples": settings})
    print(f"{model}, llama.cpp: done", file=sys.stderr)
    build = arguments.llama / "build_info.txt"
    info = build.read_text(encoding="utf-8").splitlines() if build.exists() else []
    return {"model": f"{preset} {quant}", "build": info, "rows": rows}


def llama_table(results: list[dict[str, Any]], baselines: list[dict[str, Any]]) -> str:
    """Return the table of ours beside llama.cpp's better setting."""
    lines = []
    for baseline in baselines:
        ours = {row["test"]: row for result in results if result["model"] == baseline["model"] and result["providers"] == "own"
                for row in result["rows"] if row["batch"] == 1}
        for row in baseline["rows"]:
            settings = {name: common.summarize(samples, 1) for name, samples in row["samples"].items()}
            best = max(settings, key=lambda name: settings[name]["median"])
            theirs, own = settings[best], ours.get(row["test"])
            if own is None:
                continue
            lines.append([
                baseline["model"], row["test"], f"{own['tok_s_median']:.0f} ({own['tok_s_min']:.0f}-{own['tok_s_max']:.0f})",
                common.spread(theirs), best, f"{own['tok_s_median'] / theirs['median']:.2f}x",
            ])
    return common.table(["model", "test", "own tok/s", "llama.cpp tok/s", "its flash attention", "gain"], lines, left=(0, 1, 4))


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """Return the table rows of one benchmark."""
    clock = result["clocks"].get("clocks.sm")
    rows = []
    for row in result["rows"]:
        share = row["tok_s_median"] / row["floor_tok_s"]
        rows.append([
            result["model"], result["providers"], row["test"], str(row["batch"]), f"{row['tok_s_median']:.0f}",
            f"{row['tok_s_min']:.0f}", f"{row['tok_s_max']:.0f}", f"{row['floor_tok_s']:.0f}", f"{100 * share:.0f} %",
            f"{clock[1]:.0f}" if clock else "?",
        ])
    return rows


def chain_table(results: list[dict[str, Any]]) -> str:
    """Return the table of the products of a layer, one after another."""
    lines = []
    for result in results:
        for row in result["rows"]:
            chain = row.get("chain")
            if chain is None:
                continue
            layers = chain["layers"]
            law = chain["bytes"] / CHAIN_TB_S / 1e6 + chain["products"] * CHAIN_US
            lines.append([
                result["model"], str(row["batch"]), f"{chain['products'] / layers:.0f}", f"{chain['bytes'] / layers / 1e6:.1f}",
                f"{chain['us'] / layers:.1f}", f"{law / layers:.1f}", f"{chain['us'] / law:.2f}x", f"{chain['bytes'] / chain['us'] / 1e6:.2f}",
            ])
    header = ["products of a layer", "rows", "launches", "MB", "us", f"MB / {CHAIN_TB_S} TB/s + {CHAIN_US} us each", "over", "TB/s"]
    return common.table(header, lines, left=(0,))


def kernels_text(results: list[dict[str, Any]]) -> str:
    """Return a table of time by kernel for every figure."""
    parts = [
        "Steps that do the same work by the same kernel, as they come in every layer, timed one kind after the other; the\n"
        "floor is that of their bytes at the memory's rate or their operations at the peak, by the board's clocks.\n"
    ]
    header = ["step", "count", "us each", "us", "of pass", "MB", "Gop", "GB/s", "Top/s", "of floor", "kernel"]
    for result in results:
        for row in result["rows"]:
            steps = row["steps"]
            lines = []
            for group in sorted(steps["groups"], key=lambda group: -group["count"] * group["us"]):
                us = group["us"]
                lines.append([
                    f"{group['operation']} {group['first']}", str(group["count"]), f"{us:.2f}", f"{group['count'] * us:.1f}",
                    f"{100 * group['count'] * us / steps['pass_us']:.1f} %", f"{group['bytes'] / 1e6:.2f}",
                    f"{group['operations'] / 1e9:.2f}", f"{group['bytes'] / us / 1e3:.0f}",
                    f"{group['operations'] / us / 1e6:.1f}", f"{100 * group['floor_us'] / us:.0f} %",
                    f"{group['kernel']} {group['spec']}".strip(),
                ])
            parts.append(f"\n## {result['model']}, providers {result['providers']}: {row['test']}, batch {row['batch']}\n")
            parts.append(f"A pass takes {steps['pass_us']:.1f} us, its steps one kind at a time {steps['sum_us']:.1f} us.\n")
            parts.append(common.table(header, lines, left=(0, 10)))
    return "\n".join(parts) + "\n"


def first_token(command: list[Any], env: dict[str, str]) -> tuple[float, bool]:
    """Return the ms from exec to the first byte of the text, and whether a compiler was loaded by then."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env={**os.environ, **env}
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    took = (time.perf_counter() - begin) * 1e3
    if not first:
        _, error = process.communicate()
        common.fail(f"no output, exit {process.returncode}: {error.decode(errors='replace').strip()}")
    process.send_signal(signal.SIGSTOP)
    maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace")
    process.kill()
    process.communicate()
    return took, "libnvrtc" in maps


def measure_first_token(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure the first token with a warm store, and with an installed bundle and an empty cache."""
    preset, _, quant = arguments.first_model.partition(":")
    model = folder / "first.gguf"
    common.run([arguments.tilewright, "synth", "--preset", preset, "--quant", quant, "-o", model])
    words = ["run", model, "--tokens", "1,2,3,4,5,6,7,8", "-n", "256", "--temp", "0", "--ignore-eos", "--device", arguments.device]
    store = {"TILEWRIGHT_CACHE_DIR": str(folder / "store")}
    samples = [first_token([arguments.tilewright, *words], store) for _ in range(RUNS + 2)]
    report: dict[str, Any] = {
        "model": arguments.first_model,
        "cold_ms": round(samples[0][0], 1),
        "warm_store_ms": common.summarize([took for took, _ in samples[2:]], digits=1),
    }
    # As installed: the command in bin/, the bundle in share/.
    for name in ("bin", "share/tilewright"):
        (folder / "prefix" / name).mkdir(parents=True)
    installed = folder / "prefix" / "bin" / "tilewright"
    shutil.copy2(arguments.tilewright, installed)
    bundle = folder / "prefix" / "share" / "tilewright" / "tilewright.twb"
    common.run([arguments.tilewright, "bundle", "build", "--model", model, "--arch", arguments.arch, "-o", bundle])
    samples = []
    for i in range(RUNS + 1):
        samples.append(first_token([installed, *words], {"TILEWRIGHT_CACHE_DIR": str(folder / f"empty{i}")}))
    report["bundle_ms"] = common.summarize([took for took, _ in samples[1:]], digits=1)
    report["bundle_loads_compiler"] = any(loaded for _, loaded in samples)
    return report


def architecture(device_class: str) -> str:
    """Return the architecture that kernels are compiled for on a device class: "sm_90a" for ".../sm_90/..."."""
    arch = next(part for part in device_class.split("/") if part.startswith("sm_"))
    return arch + ("a" if arch in ("sm_90", "sm_100") else "")


def measure_launch(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a prepared launch over the bare driver entry: medians of processes, all allocations together."""
    command = [arguments.launch, "--device", arguments.device]
    runs = [common.run_json(command) for _ in range(arguments.launches)]
    return {
        "over_ns": common.summarize([run["over_ns"]["median"] for run in runs], 1),
        "allocations": sum(run["allocations"] for run in runs),
        "runs": runs,
    }


def limits_table(first: dict[str, Any], launch: dict[str, Any]) -> str:
    """Return the table of the figures that have limits on any GPU."""

    def row(what: str, value: str, limit: str, good: bool) -> list[str]:
        return [what, value, limit, "yes" if good else "NO"]

    rows = []
    for name, key in (("store that has the kernels", "warm_store_ms"), ("installed bundle, empty cache", "bundle_ms")):
        ms, limit = first[key], LIMITS["first_token_ms"]
        value = common.spread(ms, unit=" ms")
        rows.append(row(f"first token of {first['model']}, {name}", value, f"{limit} ms", ms["median"] <= limit))
    loaded = first["bundle_loads_compiler"]
    rows.append(row("compiler with the installed bundle", "loaded" if loaded else "not loaded", "not loaded", not loaded))
    over, made = launch["over_ns"]["median"], launch["allocations"]
    good = over <= LIMITS["launch_over_ns"] and made <= LIMITS["launch_allocations"]
    low, high = launch["over_ns"]["min"], launch["over_ns"]["max"]
    value = f"{over:.0f} ns ({low:.0f}-{high:.0f}), {made} allocations"
    rows.append(row("prepared launch over the driver's entry", value, f"{LIMITS['launch_over_ns']} ns, 0", good))
    return common.table(["what", "measured", "limit", "kept"], rows)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=Path, default=common.ROOT / "build" / "cli" / "tilewright")
    parser.add_argument("--launches", type=int, default=5, help="processes that time launches")
    parser.add_argument("--launch", type=Path, help="prepared_launch_bench (default: beside the binary, ../bench/gpu/)")
    parser.add_argument("--models", default=DEFAULT, help="PRESET:TYPE, with commas between")
    parser.add_argument("--first-model", default="smollm2-135m:q4_1", help="PRESET:TYPE of the first token")
    parser.add_argument("--providers", default="own,all", help="sets of kernels to choose from, with commas between")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--bundle", action="append", default=[], help="compiled kernels for the speeds; may be repeated")
    parser.add_argument("-p", "--prompts", default="2048", help="lengths of prompts, with commas between; 0: none")
    parser.add_argument("-n", "--generate", default="128", help="tokens to generate")
    parser.add_argument("-d", "--depth", default="512", help="positions of a sequence before the generated ones")
    parser.add_argument("--batch", default="1,32", help="sequences that generate together")
    parser.add_argument("--ubatch", default="2048", help="rows of one pass over a prompt")
    parser.add_argument("--repeat", default=str(RUNS))
    parser.add_argument("--llama", type=Path, help="build of llama.cpp for this GPU, of tools/baseline/build_llama_cpp.sh")
    parser.add_argument("--llama-models", default="llama-3.1-8b:q4_k,llama-3.1-8b:q8_0,llama-3.1-8b:bf16", help="PRESET:TYPE of --models")
    parser.add_argument("--name", help="of the result (default: gpu_model_BOARD)")
    arguments = parser.parse_args()
    arguments.tilewright = arguments.tilewright.absolute()
    if arguments.launch is None:
        arguments.launch = arguments.tilewright.parents[1] / "bench" / "gpu" / "prepared_launch_bench"
    arguments.bundle_words = [word for file in arguments.bundle for word in ("--bundle", file)]
    common.need_files(parser, arguments.tilewright, arguments.launch)
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    board = query(arguments.device, BOARD)
    device = common.run_json([arguments.tilewright, "doctor", "--json", "--device", arguments.device])["device"]
    arguments.arch = architecture(device)
    quiet = common.Quiet()
    with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
        first = measure_first_token(arguments, Path(folder))
    launch = measure_launch(arguments)
    name = arguments.name or "gpu_model_" + board.partition(",")[0].lower().replace(" ", "-")
    report = {
        "provenance": {**common.provenance(arguments.tilewright, device), "driver": board},
        "quiet": {},
        "first_token": first,
        "launch": launch,
        "limits": LIMITS,
        "models": [],
        "llama": [],
    }
    # Written after every model, so that a machine that is taken away leaves what it had.
    for model in arguments.models.split(","):
        report["models"] += measure(arguments, model)
        if arguments.llama and model in arguments.llama_models.split(","):
            with tempfile.TemporaryDirectory(prefix="tilewright-record-") as folder:
                report["llama"].append(measure_llama(arguments, model, Path(folder)))
        report["quiet"] = quiet.report()
        write(name, report, f"Random weights, {arguments.repeat} runs each; {board} ({BOARD})\n\n")


def write(name: str, report: dict[str, Any], title: str) -> None:
    """Write the three files of a recording."""
    results = report["models"]
    header = ["model", "providers", "test", "batch", "tok/s", "min", "max", "floor", "of floor", "SM MHz"]
    rows = [row for result in results for row in rows_of(result)]
    limits = limits_table(report["first_token"], report["launch"])
    tables = [common.table(header, rows, left=(0, 1, 2)), chain_table(results), limits]
    if report["llama"]:
        tables.insert(0, llama_table(results, report["llama"]))
    common.write(name, report, title + "\n\n".join(tables))
    kernels = common.RESULTS / f"{name}{os.environ.get('TILEWRIGHT_RECORD_SUFFIX', '')}_kernels.md"
    kernels.write_text(kernels_text(results), encoding="utf-8")
    print(f"Time by kernel: {common.shown(kernels)}")


if __name__ == "__main__":
    main()
