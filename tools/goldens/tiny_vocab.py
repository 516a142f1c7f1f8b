"""Train tiny vocabularies, byte-level and SentencePiece, and write them as GGUF files that hold nothing else.

They are made to tell implementations apart, not to compress well: merges cross the borders that
pre-tokenizers draw (digits, line ends, contractions), some tokens are out of reach of the merges
(only `ignore_merges` finds them), one special token is the beginning of another, and the smollm
vocabulary lacks some bytes, as that of SmolLM2 does. In the SentencePiece vocabularies some scores
are equal, some tokens are longer than a word, and some characters are missing.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = (
    gguf.TokenType.NORMAL,
    gguf.TokenType.UNKNOWN,
    gguf.TokenType.CONTROL,
    gguf.TokenType.USER_DEFINED,
    gguf.TokenType.BYTE,
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
    *(
        VocabSpec(
            pre=pre,
            seed=10 + index,
            specials=(("<|endoftext|>", CONTROL), *_EXTRAS),
            specials_first=False,
            bos="<|endoftext|>",
            eos="<|endoftext|>",
            add_bos=None,
        )
        for index, pre in enumerate(
            ("qwen2", "dbrx", "tekken", "gpt-4o", "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3")
        )
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


@functools.cache
def train_merges(text: str, count: int, seed: int, spell: Callable[[str], str] = encode_bytes) -> list[tuple[str, str]]:
    """Return `count` merges learned from four fifths of the lines of `text`, chosen by `seed`."""
    generator = random.Random(seed)
    sample = "".join(line for line in text.splitlines(keepends=True) if generator.random() < 0.8)
    words = [list(spell(word)) for word in re.findall(r"\s*\S+|\s+", sample)]
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

    writer = start(path, spec.pre, len(tokens))
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
    finish(writer)


def start(path: Path, name: str, size: int) -> gguf.GGUFWriter:
    """Return a writer with the keys of a model that llama.cpp wants to see."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"tiny {name} vocabulary")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(size)
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- SentencePiece -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PieceSpec:
    """What one tiny SentencePiece vocabulary is made of."""

    name: str
    seed: int
    specials: tuple[tuple[str, gguf.TokenType], ...]  # after <unk>, <s>, </s>
    add_space_prefix: bool | None  # None: the key is left out
    add_bos: bool | None
    add_eos: bool | None
    tied_scores: bool  # draw them from a few values instead of counting down
    missing_characters: str
    missing_bytes: bytes = b""  # that have a token for the character instead


_PIECE_ORPHANS = ["of▁the", "▁▁▁▁▁▁", "▁tokenization", "\n▁▁▁▁", "ab▁cd", "▁[INST]", "好▁", "12▁3"]

PIECE_SPECS = (
    PieceSpec(
        name="spm",
        seed=4,
        specials=(*_EXTRAS, ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)),
        add_space_prefix=None,
        add_bos=None,
        add_eos=None,
        tied_scores=False,
        missing_characters="éß好的ي😀\n\tQZ~",
    ),
    PieceSpec(
        name="spm-noprefix",
        seed=5,
        specials=(*_EXTRAS, ("\n\n", USER_DEFINED), ("   ", USER_DEFINED), ("<end_of_turn>", CONTROL)),
        add_space_prefix=False,
        add_bos=True,
        add_eos=True,
        tied_scores=True,
        missing_characters="ü山ы",
        missing_bytes=b"A!z",
    ),
    # By this name llama.cpp drops white space after special tokens.
    PieceSpec(
        name="spm-phi-3",
        seed=6,
        specials=(("<|endoftext|>", CONTROL), *_EXTRAS, ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL)),
        add_space_prefix=None,
        add_bos=None,
        add_eos=None,
        tied_scores=False,
        missing_characters="éß好",
    ),
)


def escape_spaces(text: str) -> str:
    """Return `text` as SentencePiece spells it."""
    return text.replace(" ", "▁")


def write_pieces(spec: PieceSpec, text: str, path: Path, merge_count: int = 500) -> None:
    """Write the SentencePiece vocabulary `spec`, trained on `text`, to `path`."""
    generator = random.Random(spec.seed)
    merged = [left + right for left, right in train_merges(text, merge_count, spec.seed, escape_spaces)]
    characters = sorted(set(escape_spaces(text)) - set(spec.missing_characters))
    pieces = [piece for piece in [*merged, *_PIECE_ORPHANS] if len(piece) > 1]
    pieces = [*dict.fromkeys(pieces), *characters]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256) if byte not in spec.missing_bytes]
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(token, BYTE) for token in bytes_] + [(piece, NORMAL) for piece in pieces]
    scores = [0.0] * (len(tokens) - len(pieces))
    if spec.tied_scores:
        scores += [float(generator.randrange(-6, 3)) for _ in pieces]
    else:
        scores += [-float(index) for index in range(len(pieces))]
    tokens += [token for token in spec.specials if token[0] not in dict(tokens)]
    scores += [0.0] * (len(tokens) - len(scores))
    names = [name for name, _ in tokens]

    writer = start(path, spec.name, len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_scores(scores)
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(names.index("<|pad|>"))
    if spec.add_space_prefix is not None:
        writer.add_add_space_prefix(spec.add_space_prefix)
    if spec.add_bos is not None:
        writer.add_add_bos_token(spec.add_bos)
    if spec.add_eos is not None:
        writer.add_add_eos_token(spec.add_eos)
    finish(writer)
