"""Train tiny byte-level BPE vocabularies and write them as GGUF files that hold nothing else.

They are made to tell implementations apart, not to compress well: merges cross the borders that
pre-tokenizers draw (digits, line ends, contractions), some tokens are out of reach of the merges
(only `ignore_merges` finds them), one special token is the beginning of another, and the smollm
vocabulary lacks some bytes, as that of SmolLM2 does.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = (
    gguf.TokenType.NORMAL,
    gguf.TokenType.UNKNOWN,
    gguf.TokenType.CONTROL,
    gguf.TokenType.USER_DEFINED,
)

# Words to make tokens of without any merge that leads to them.
_ORPHANS = ["Hello", " brown", " tokenization", "1234", "\n\n\n", "'re", "好", "    \n", " 😀", "שלום"]


@dataclass(frozen=True)
class VocabSpec:
    """What one tiny vocabulary is made of."""

    pre: str
    seed: int
    specials: tuple[tuple[str, gguf.TokenType], ...]
    specials_first: bool
    bos: str
    eos: str
    add_bos: bool | None  # None: the key is left out
    missing_bytes: bytes = b""


_EXTRAS = (
    ("<|pad|>", CONTROL),
    ("<|pad|>>", CONTROL),
    ("<|unk|>", UNKNOWN),
    ("<tool_call>", USER_DEFINED),
    ("</tool_call>", USER_DEFINED),
)

SPECS = (
    VocabSpec(
        pre="gpt-2",
        seed=1,
        specials=(("<|endoftext|>", CONTROL), *_EXTRAS, ("   ", USER_DEFINED)),
        specials_first=False,
        bos="<|endoftext|>",
        eos="<|endoftext|>",
        add_bos=None,
    ),
    VocabSpec(
        pre="llama-bpe",
        seed=2,
        specials=(
            ("<|begin_of_text|>", CONTROL),
            ("<|end_of_text|>", CONTROL),
            ("<|start_header_id|>", CONTROL),
            ("<|end_header_id|>", CONTROL),
            ("<|eot_id|>", CONTROL),
            *_EXTRAS,
        ),
        specials_first=False,
        bos="<|begin_of_text|>",
        eos="<|end_of_text|>",
        add_bos=None,
    ),
    VocabSpec(
        pre="smollm",
        seed=3,
        specials=(("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), *_EXTRAS),
        specials_first=True,
        bos="<|im_start|>",
        eos="<|im_end|>",
        add_bos=False,
        missing_bytes=b"\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff",
    ),
)


def byte_alphabet() -> list[str]:
    """Return GPT-2's printable stand-in for each byte."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [""] * 256
    for byte in kept:
        alphabet[byte] = chr(byte)
    others = [byte for byte in range(256) if not alphabet[byte]]
    for offset, byte in enumerate(others):
        alphabet[byte] = chr(256 + offset)
    return alphabet


def encode_bytes(text: str) -> str:
    """Return `text` in the alphabet of byte-level BPE."""
    alphabet = byte_alphabet()
    return "".join(alphabet[byte] for byte in text.encode("utf-8"))


def train_merges(text: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Return `count` merges learned from four fifths of the lines of `text`, chosen by `seed`."""
    generator = random.Random(seed)
    sample = "".join(line for line in text.splitlines(keepends=True) if generator.random() < 0.8)
    words = [list(encode_bytes(word)) for word in re.findall(r"\s*\S+|\s+", sample)]
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs = Counter(pair for word in words for pair in itertools.pairwise(word) if len(pair[0] + pair[1]) <= 16)
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if (left + right) in {a + b for a, b in merges}:
            raise RuntimeError("the same token from two merges")
        merges.append((left, right))
        words = [_merge(word, left, right) for word in words]
    return merges


def _merge(word: list[str], left: str, right: str) -> list[str]:
    """Return `word` with each pair (left, right) joined, from left to right."""
    out: list[str] = []
    for symbol in word:
        # A symbol that was just joined cannot be `left` again: it is longer.
        if out and out[-1] == left and symbol == right:
            out[-1] = left + right
        else:
            out.append(symbol)
    return out


def write_vocab(spec: VocabSpec, text: str, path: Path, merge_count: int = 600) -> None:
    """Write the vocabulary `spec`, trained on `text`, to `path`."""
    merges = train_merges(text, merge_count, spec.seed)
    alphabet = [symbol for byte, symbol in enumerate(byte_alphabet()) if byte not in spec.missing_bytes]
    lacking = set(byte_alphabet()) - set(alphabet)
    merges = [pair for pair in merges if not lacking & set(pair[0] + pair[1])]
    normal = alphabet + [left + right for left, right in merges]
    normal += [word for word in map(encode_bytes, _ORPHANS) if word not in set(normal)]
    tokens = [(token, NORMAL) for token in normal]
    tokens = [*spec.specials, *tokens] if spec.specials_first else [*tokens, *spec.specials]
    names = [name for name, _ in tokens]

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"tiny {spec.pre} vocabulary")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(spec.pre)
    writer.add_token_list(names)
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(names.index(spec.bos))
    writer.add_eos_token_id(names.index(spec.eos))
    writer.add_unk_token_id(names.index("<|unk|>"))
    writer.add_pad_token_id(names.index("<|pad|>"))
    if spec.add_bos is not None:
        writer.add_add_bos_token(spec.add_bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
