#!/usr/bin/env python3
"""Measure OpenVINO GenAI on a GGUF model: tokens a second of a prompt and of decoding, on the CPU.

    bench_openvino.py MODEL.gguf [-p 512] [-n 128] [--threads N] [--repeat 3] [--set NAME=VALUE]

Needs `pip install openvino-genai`, which reads GGUF itself. Prompts are random tokens, new ones in each
repetition, and prefix caching is off: else the second prompt would be found in a cache. The first repetition
is a warm-up. `--set` sets a property of the CPU plugin, such as INFERENCE_PRECISION_HINT=f32.

The prompt's time is that to the first token, decoding's the mean of the others. Prints one JSON object:
version, prompt and decode as lists of tokens a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path

try:
    import numpy
    import openvino
    import openvino_genai
except ImportError as error:
    raise SystemExit(f"bench_openvino.py: {error}; pip install openvino-genai") from None

# Ids that every vocabulary has, beyond those of special tokens.
FIRST_ID, LAST_ID = 1000, 30000


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens")
    parser.add_argument("-n", "--decode", type=int, default=128, help="decoded tokens")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE: a property of the CPU plugin")
    arguments = parser.parse_args()
    if not arguments.model.exists():
        parser.error(f"no such file: {arguments.model}")

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = max(256, arguments.prompt)
    properties = {"INFERENCE_NUM_THREADS": arguments.threads, **dict(word.split("=", 1) for word in arguments.set)}
    pipeline = openvino_genai.LLMPipeline(str(arguments.model), "CPU", scheduler_config=scheduler, **properties)
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = arguments.decode + 1
    config.ignore_eos = True
    config.do_sample = False

    rates: dict[str, list[float]] = {"prompt": [], "decode": []}
    for turn in range(arguments.repeat + 1):
        ids = numpy.array([[random.randint(FIRST_ID, LAST_ID) for _ in range(arguments.prompt)]], dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        metrics = pipeline.generate(inputs, config).perf_metrics
        if turn > 0:
            rates["prompt"].append(1e3 * arguments.prompt / metrics.get_ttft().mean)
            rates["decode"].append(1e3 / metrics.get_tpot().mean)
    print(json.dumps({"version": openvino_genai.__version__, "threads": arguments.threads, "set": arguments.set, **rates}))


if __name__ == "__main__":
    main()
