#!/usr/bin/env python3
"""Record single operations on a GPU: GEMV beside the memory floor, products beside cuBLASLt, attention, norm.

    record_gpu_ops.py [--shapes bench/shapes/gpu_gemm.csv] [--device cuda:0] [--parts copy,gemv,gemm,attention,norm]

Every launch of every kernel is timed (`tilewright bench op ... --all`), those of a problem in turn, with
weights and caches cold: "tuned" is the fastest of the library's own, "untuned" what a machine without
records picks, "vendor" the fastest of all algorithms that cuBLASLt offers, "guess" what the first guess of
the model takes over the fastest of all, and "rank" the model's rank of the fastest.

Copy: 1 GiB, the rate of the board's memory. GEMV: one row of bf16 times block formats, beside 3 us + bytes /
4.4 TB/s. Products: bf16, rows of --rows, vendor over own as geometric means over the shapes. Attention: 32
sequences at 4,096 positions, and causal prompts. Norm: 4096 x 4096. Limits are those of an H200, whose copy
reaches 4.26 TB/s; on another board limits of bytes a second are those in proportion to its copy.

Writes bench/results/NAME.json, with the fastest launches of each problem, and NAME.md. Takes some minutes, most of them for the products.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from pathlib import Path
from typing import Any, Callable

import common
from record_gpu_model import BOARD, Clocks, query

PARTS = "copy,gemv,gemm,attention,norm"
H200_COPY_TB_S = 4.26
LAW_US, LAW_TB_S = 3.0, 4.4
GEMV_TYPES = ("q4_k", "q8_0", "q6_k")
GEMV_SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
HEADS = "heads=32 kv_heads=8 head_dim=128 type_q=bf16 type_kv=bf16"
# What is asked of an H200, as in the issue of its speed: of times over the law at most, else at least.
LIMITS = {
    "gemv": 1.08, "gemm_few": 1.00, "gemm_many": 0.98, "decode_tb_s": 3.8, "prompt_tflop_s": 450.0, "norm_tb_s": 3.4,
    "launches": 25, "gemm_worst": 0.98,
}
FEW_ROWS, MANY_ROWS = range(16, 257), range(512, 1 << 30)

KEPT = 4  # launches of a problem in the file, of each kind

Row = dict[str, Any]


class Bench:
    """Runs `tilewright bench op`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.memory = 1.0  # the board's rate of copies over that of an H200

    def __call__(self, operation: str, problems: list[str], more: list[str] | None = None) -> list[Row]:
        """Return a row for each problem, with all launches."""
        a = self.arguments
        command = [a.tilewright, "bench", "op", operation, *problems, *(more or []), "--all", "--json"]
        return common.run_json([str(word) for word in [*command, "--repeat", a.repeat, "--device", a.device]])["rows"]


def is_vendors(launch: Row) -> bool:
    """Return whether a launch is of a vendor's library."""
    return ".cublaslt." in launch["kernel"]


def best(row: Row, wanted: Callable[[Row], bool]) -> Row | None:
    """Return the fastest of the launches that have a time and are wanted."""
    timed = [launch for launch in row["launches"] if launch["us_median"] is not None and wanted(launch)]
    return min(timed, key=lambda launch: launch["us_median"], default=None)


def shorten(row: Row) -> Row:
    """Return a row for the file, with the fastest launches, of the library's own and of the vendor's, and how many had a time."""
    timed = sorted((one for one in row["launches"] if one["us_median"] is not None), key=lambda one: one["us_median"])
    kept = [one for vendors in (False, True) for one in [each for each in timed if is_vendors(each) == vendors][:KEPT]]
    return {**row, "launches": kept, "launches_timed": len(timed)}


def own_best(row: Row) -> Row:
    """Return the fastest launch of the library's own."""
    found = best(row, lambda launch: not is_vendors(launch))
    if found is None:
        common.fail(f"no launch of {row['shape']} has a time")
    return found


def verdict(what: str, value: str, limit: str, kept: bool) -> list[str]:
    """Return a row of the first table."""
    return [what, value, limit, "yes" if kept else "NO"]


def copy(bench: Bench, report: Row) -> tuple[list[list[str]], str]:
    """The rate of the memory, which limits are in proportion to."""
    rows = bench("copy", ["rows=65536 cols=8192 type_src=bf16 type_dst=bf16"])
    tb_s = rate(rows[0], "TB/s")
    bench.memory = tb_s / H200_COPY_TB_S
    report["copy"], report["memory_over_h200"] = rows, bench.memory
    verdicts = [["copy of 1 GiB", f"{tb_s:.2f} TB/s", f"{H200_COPY_TB_S:.2f} TB/s is an H200's", ""]]
    return verdicts, rate_table(rows, "TB/s")


def limit_of(bench: Bench, key: str) -> tuple[float, str]:
    """Return a limit of TB/s on this board, and what is written of it: that of an H200 too, where it differs."""
    limit = LIMITS[key] * bench.memory
    if abs(bench.memory - 1) < 0.03:
        return LIMITS[key], f"{LIMITS[key]:.1f} TB/s"
    return limit, f"{limit:.2f} TB/s (H200: {LIMITS[key]:.1f})"


def gemv(bench: Bench, report: Row) -> tuple[list[list[str]], str]:
    """One row times block formats."""
    problems = [f"m=1 n={n} k={k} type_a=bf16 type_b={quant} type_c=bf16" for quant in GEMV_TYPES for n, k in GEMV_SHAPES]
    rows = bench("gemv", problems)
    report["gemv"] = rows
    lines, over = [], []
    tb_s = LAW_TB_S if abs(bench.memory - 1) < 0.03 else LAW_TB_S * bench.memory
    for row in rows:
        law = LAW_US + row["bytes"] / tb_s / 1e6
        tuned = own_best(row)
        over.append(tuned["us_median"] / law)
        lines.append([
            row["shape"], f"{row['us_median']:.2f}", f"{tuned['us_median']:.2f}", f"{law:.2f}", f"{over[-1]:.2f}x",
            f"{row['bytes'] / tuned['us_median'] / 1e6:.2f}", tuned["kernel"],
        ])
    limit = LIMITS["gemv"]
    worst = max(over)
    verdicts = [verdict(f"GEMV, time over 3 us + bytes / {tb_s:.2f} TB/s, worst", f"{worst:.2f}x", f"{limit:.2f}x", worst <= limit),
                verdict("GEMV, the same, geometric mean", f"{common.geometric_mean(over):.2f}x", f"{limit:.2f}x",
                        common.geometric_mean(over) <= limit)]
    return verdicts, common.table(["GEMV", "untuned us", "tuned us", "law us", "over", "TB/s", "kernel"], lines, left=(0, 6))


def read_shapes(path: Path) -> list[Row]:
    """Return the rows of a file with the columns name, n, k."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "#"]
    return list(csv.DictReader(lines))


def time_products(bench: Bench) -> list[Row]:
    """Return a row for each shape and number of rows, with `m`."""
    shapes, rows = read_shapes(bench.arguments.shapes), []
    for m in bench.arguments.rows.split(","):
        with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as file:
            file.write("name,m,n,k,type_a,type_b,type_c\n")
            for shape in shapes:
                file.write(f"{shape['name']},{m},{shape['n']},{shape['k']},bf16,bf16,bf16\n")
            file.flush()
            rows += [{**row, "m": int(m)} for row in bench("gemm", [], ["--shapes", file.name])]
    return rows


def product_line(row: Row, tuned: Row, vendor: Row) -> list[str]:
    """Return a row of the table of products."""
    fastest = best(row, lambda launch: True) or tuned
    rank = f"{fastest['model_rank']}/{row['candidates']}"
    return [
        row["name"], str(row["m"]), f"{row['floor_us']:.2f}", f"{row['us_median']:.2f}", f"{tuned['us_median']:.2f}",
        f"{vendor['us_median']:.2f}", f"{vendor['us_median'] / tuned['us_median']:.2f}x", rank,
        f"{row['first_guess_us'] / fastest['us_median']:.2f}x", str(len(row["launches"])), tuned["kernel"],
    ]


def gemm(bench: Bench, report: Row) -> tuple[list[list[str]], str]:
    """bf16 products beside cuBLASLt's fastest."""
    rows = report["gemm"] = time_products(bench)
    lines, few, many, all_rows, guesses = [], [], [], [], []
    for row in rows:
        tuned, vendor = own_best(row), best(row, is_vendors)
        if vendor is None:
            common.fail(f"{row['shape']}: cuBLASLt offers nothing")
        ratio = vendor["us_median"] / tuned["us_median"]
        all_rows.append((ratio, f"{row['name']} x {row['m']}"))
        (few if row["m"] in FEW_ROWS else many if row["m"] in MANY_ROWS else []).append(ratio)
        guesses.append(row["first_guess_us"] / min(tuned["us_median"], vendor["us_median"]))
        lines.append(product_line(row, tuned, vendor))
    raced = [len(row["launches"]) for row in rows if row["m"] <= 512]
    launches = statistics.median(raced or [len(row["launches"]) for row in rows])
    verdicts = [verdict("launches that race for a product of at most 512 rows, median", f"{launches:.0f}",
                        f"{LIMITS['launches']}", launches >= LIMITS["launches"])]
    for ratios, what, key in ((few, "16 to 256 rows", "gemm_few"), (many, "512 rows and more", "gemm_many")):
        if ratios:
            mean = common.geometric_mean(ratios)
            verdicts.append(verdict(f"bf16 products, {what}: cuBLASLt's time over own, geometric mean", f"{mean:.2f}x",
                                    f"{LIMITS[key]:.2f}x", mean >= LIMITS[key]))
    low, where = min(all_rows)
    limit = LIMITS["gemm_worst"]
    verdicts.append(verdict("bf16 products: the same at the worst point", f"{low:.2f}x ({where})", f"{limit:.2f}x", low >= limit))
    verdicts.append(["bf16 products: that with cuBLASLt in the race", f"{max(low, 1.0):.2f}x", f"{limit:.2f}x",
                     "yes, as a part of it"])
    verdicts.append(["bf16 products: the model's first guess over the fastest, geometric mean and worst",
                     f"{common.geometric_mean(guesses):.2f}x, {max(guesses):.2f}x", "", ""])
    header = ["product", "rows", "floor us", "untuned us", "tuned us", "vendor us", "gain", "rank", "guess", "launches", "kernel"]
    return verdicts, common.table(header, lines, left=(0, 10))


def rate_table(rows: list[Row], unit: str) -> str:
    """Return a table of problems with their rates."""
    lines = []
    for row in rows:
        tuned = own_best(row)
        lines.append([
            row["shape"], f"{row['us_median']:.2f}", f"{tuned['us_median']:.2f}", f"{rate(row, unit):.2f}",
            f"{tuned['kernel']} {tuned['spec']}".strip(),
        ])
    return common.table(["problem", "untuned us", "tuned us", unit, "kernel"], lines, left=(0, 4))


def rate(row: Row, unit: str) -> float:
    """Return bytes or operations a second of the fastest own launch."""
    amount = row["bytes"] if unit == "TB/s" else row["operations"]
    return amount / own_best(row)["us_median"] / 1e6


def attention(bench: Bench, report: Row) -> tuple[list[list[str]], str]:
    """Decoding and prompts."""
    decode = bench("attention", [f"rows=32 sequences=32 context=4096 {HEADS}"], ["--positions", "4096"])
    prompts = []
    for n in (4096, 16384):
        prompts += bench("attention", [f"rows={n} sequences=1 context={n} {HEADS}"], ["--positions", str(n)])
    report["attention"] = decode + prompts
    tb_s, (limit, text) = rate(decode[0], "TB/s"), limit_of(bench, "decode_tb_s")
    verdicts = [verdict("decode attention, 32 x 4,096, 32/8 heads of 128", f"{tb_s:.2f} TB/s", text, tb_s >= limit)]
    limit = LIMITS["prompt_tflop_s"]
    for row, what in zip(prompts, ("4,096", "16,384")):
        tflop_s = rate(row, "TFLOP/s")
        verdicts.append(verdict(f"causal attention of a prompt of {what}", f"{tflop_s:.0f} TFLOP/s", f"{limit:.0f} TFLOP/s",
                                tflop_s >= limit))
    return verdicts, rate_table(decode, "TB/s") + "\n\n" + rate_table(prompts, "TFLOP/s")


def norm(bench: Bench, report: Row) -> tuple[list[list[str]], str]:
    """RMSNorm of 4096 rows of 4096."""
    rows = bench("norm", ["rows=4096 cols=4096 type_in=bf16 type_out=bf16"])
    report["norm"] = rows
    tb_s, (limit, text) = rate(rows[0], "TB/s"), limit_of(bench, "norm_tb_s")
    verdicts = [verdict("RMSNorm, 4096 x 4096 bf16", f"{tb_s:.2f} TB/s", text, tb_s >= limit)]
    return verdicts, rate_table(rows, "TB/s")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tilewright", type=Path, default=common.ROOT / "build" / "cli" / "tilewright")
    parser.add_argument("--shapes", type=Path, default=common.ROOT / "bench" / "shapes" / "gpu_gemm.csv")
    parser.add_argument("--rows", default="16,32,64,128,256,512,2048", help="of the products, with commas between")
    parser.add_argument("--parts", default=PARTS, help="with commas between")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeat", default="5")
    parser.add_argument("--name", help="of the result (default: gpu_ops_BOARD)")
    arguments = parser.parse_args()
    common.need_files(parser, arguments.tilewright, arguments.shapes)
    for part in arguments.parts.split(","):
        if part not in PARTS.split(","):
            parser.error(f"--parts {part}: one of {PARTS}")
    arguments.tilewright = arguments.tilewright.absolute()
    return arguments


def main() -> None:
    """Command line entry point."""
    arguments = parse()
    board = query(arguments.device, BOARD)
    device = common.run_json([arguments.tilewright, "doctor", "--json", "--device", arguments.device])["device"]
    name = arguments.name or "gpu_ops_" + board.partition(",")[0].lower().replace(" ", "-")
    measures = {"copy": copy, "gemv": gemv, "gemm": gemm, "attention": attention, "norm": norm}
    bench, quiet, clocks = Bench(arguments), common.Quiet(), Clocks(arguments.device)
    report: Row = {"provenance": {**common.provenance(arguments.tilewright, device), "driver": board}, "limits": LIMITS}
    verdicts: list[list[str]] = []
    tables: list[str] = []
    for part in arguments.parts.split(","):
        found, text = measures[part](bench, report)
        verdicts += found
        tables.append(text)
    for part in measures.keys() & report.keys():
        report[part] = [shorten(row) for row in report[part]]
    report["clocks"], report["quiet"] = clocks.stop(), quiet.report()
    text = f"{board} ({BOARD}); medians of {arguments.repeat} samples of each launch\n\n"
    text += common.table(["what", "measured", "limit", "kept"], verdicts) + "\n\n" + "\n\n".join(tables)
    common.write(name, report, text)


if __name__ == "__main__":
    main()
