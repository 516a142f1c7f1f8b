#!/usr/bin/env python3
"""Make random texts with llama.cpp's ids, far more than the goldens hold, for one run of tokenizer_golden_test.

    make_random_cases.py --vocabularies tests/data/vocab_*.gguf --output DIR [--count 300000] [--seed 1]
    TILEWRIGHT_TOKENIZER_CASES=DIR build/src/model/tokenizer/tokenizer_golden_test --gtest_filter='*Random*'

For each vocabulary DIR gets a link NAME.gguf to it and NAME.cases: of each text a little-endian u32 with its size, its
bytes, a u32 (1: special tokens are parsed), a u32 with the number of ids, and the ids as i32. With `--piece-vocabularies N` there are
also N random SentencePiece vocabularies, whose texts are drawn from their own pieces.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import sys
import unicodedata
from pathlib import Path

import gguf

import llama
import tiny_vocab

# llama.cpp throws an exception that ends the process at code points above U+10FFFF.
_ABOVE = re.compile(rb"\xf4[\x90-\xbf][\x80-\xbf]{2}|[\xf5-\xf7][\x80-\xbf]{3}")

_SPECIALS = ["<|im_end|>", "<|pad|>", "<|pad|>>", "<tool_call>", "<s>", "</s>", "<unk>", "<0x41>", "<|eot_id|>"]


def character_pools() -> list[list[str]]:
    """Return lists of characters; a text draws a list, then a character of it."""
    by_category: dict[str, list[str]] = {}
    for code in [*range(0x80, 0x3100), *range(0xA000, 0xAC10), *range(0xF900, 0x10000), *range(0x10000, 0x20000, 7)]:
        by_category.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    by_category.pop("Cs", None)
    ascii_lower, ascii_upper, digits = list("abcdefghijklmnopqrstuvwxyz"), list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), list("0123456789")
    han = [chr(code) for code in [*range(0x4DF0, 0x4E40), *range(0x9F90, 0xA000), *range(0x2EBF0, 0x2EC00), 0x3007]]
    edges = [chr(code) for code in (0x7FF, 0x800, 0x9FA5, 0x9FA6, 0xABFF, 0xAC00, 0xD7FF, 0xE000, 0xFFFD, 0x10FFFF, 0x85, 0x180E, 0x200B)]
    pools = [ascii_lower] * 5 + [ascii_upper] * 3 + [digits] * 3 + [[" "]] * 4 + [list("\n\r")] * 2 + [list("\t\v\f\0\x1c\x7f")]
    pools += [list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")] * 3 + [["'s", "'T", "'re", "'Ve", "'LL", "'m", "'d", "'"]] * 2
    pools += [han, edges, ["▁"]]
    pools += [*by_category.values()] + [by_category["Lu"], by_category["Ll"], by_category["Zs"], by_category["Mn"]]
    return pools


def random_text(generator: random.Random, pools: list[list[str]], words: list[str]) -> bytes:
    """Return one text of up to about 60 characters, now and then with bytes that are not UTF-8."""
    parts: list[bytes] = []
    for _ in range(generator.randrange(1, 25)):
        kind = generator.random()
        if kind < 0.55:
            pool = generator.choice(pools)
            count = generator.choice((1, 1, 1, 2, 3, 5))
            parts.append("".join(generator.choice(pool) for _ in range(count)).encode())
        elif kind < 0.9:
            parts.append(generator.choice(words).encode())
        elif kind < 0.95:
            parts.append(generator.choice(_SPECIALS).encode())
        elif kind < 0.97:
            parts.append(chr(generator.randrange(0xD800, 0xE000)).encode("utf-8", "surrogatepass"))
        elif kind < 0.99:
            parts.append(generator.choice(words).encode()[:-1])
        else:
            parts.append(bytes(generator.randrange(256) for _ in range(generator.randrange(1, 4))))
    text = b"".join(parts)
    return text if not _ABOVE.search(text) else b""


def words_of(path: Path) -> list[str]:
    """Return texts that the tokens of a vocabulary stand for, as far as they are valid UTF-8."""
    reader = gguf.GGUFReader(path)
    spelled = reader.get_field("tokenizer.ggml.tokens").contents()
    if reader.get_field("tokenizer.ggml.model").contents() == "llama":
        return [token.replace("▁", " ") for token in spelled]
    alphabet = {symbol: byte for byte, symbol in enumerate(tiny_vocab.byte_alphabet())}
    words = []
    for token in spelled:
        data = bytes(alphabet.get(symbol, 0x3F) for symbol in token)
        words.append(data.decode("utf-8", "ignore") or "?")
    return words


def random_piece_vocabulary(path: Path, seed: int) -> None:
    """Write a SentencePiece vocabulary of random strings with random scores over a small alphabet."""
    generator = random.Random(seed)
    alphabet = ["▁", *generator.sample([*"abcdeXY01.,'\n", "é", "好", "😀", "ß", "́"], generator.randrange(4, 10))]
    pieces: dict[str, None] = {}
    for _ in range(generator.randrange(20, 250)):
        # Grow from what is there, so that merges can reach it; or not.
        known = list(pieces)
        if known and generator.random() < 0.8:
            piece = generator.choice(known) + generator.choice(known + alphabet)
        else:
            piece = "".join(generator.choice(alphabet) for _ in range(generator.randrange(2, 5)))
        if len(piece) <= 24:
            pieces[piece] = None
    for character in alphabet:
        if generator.random() < 0.8:
            pieces[character] = None
    kinds = [tiny_vocab.NORMAL] * 17 + [tiny_vocab.CONTROL, tiny_vocab.USER_DEFINED, gguf.TokenType.UNUSED]
    tokens = [("<unk>", tiny_vocab.UNKNOWN), ("<s>", tiny_vocab.CONTROL), ("</s>", tiny_vocab.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", tiny_vocab.BYTE) for byte in range(256)]
    tokens += [(piece, generator.choice(kinds) if len(piece) > 1 else tiny_vocab.NORMAL) for piece in pieces]
    # Which of two overlapping special tokens of one length llama.cpp finds first is up to its unstable sort, which
    # keeps the order of up to 16 elements.
    special = [i for i, (_, kind) in enumerate(tokens) if kind in (tiny_vocab.CONTROL, tiny_vocab.USER_DEFINED)]
    for i in special[12:]:
        tokens[i] = (tokens[i][0], tiny_vocab.NORMAL)
    spread = generator.choice((1, 5, 1000))
    writer = tiny_vocab.start(path, path.stem, len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_scores([float(generator.randrange(-spread, spread + 1)) for _ in tokens])
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_add_space_prefix(generator.random() < 0.5)
    tiny_vocab.finish(writer)


def write_cases(path: Path, output: Path, count: int, seed: int) -> None:
    """Write `count` texts and llama.cpp's ids of them."""
    generator = random.Random(f"{seed} {path.stem}")
    pools, words = character_pools(), words_of(path)
    model = llama.Model(path, vocab_only=True)
    with (output / f"{path.stem}.cases").open("wb") as file:
        for done in range(count):
            text = random_text(generator, pools, words)
            parse = generator.random() < 0.5
            ids = model.tokenize(text, add_special=False, parse_special=parse)
            file.write(struct.pack("<I", len(text)) + text + struct.pack("<II", parse, len(ids)))
            file.write(struct.pack(f"<{len(ids)}i", *ids))
            if done % 50000 == 49999:
                print(f"{path.stem}: {done + 1}", flush=True)
    model.close()
    link = output / path.name
    if link.resolve() != path.resolve():
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabularies", type=Path, nargs="*", default=[], help="GGUF files")
    parser.add_argument("--piece-vocabularies", type=int, default=0, metavar="N", help="random SentencePiece vocabularies to make")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300000, help="texts of each vocabulary; of all random ones together")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for path in arguments.vocabularies:
        write_cases(path, arguments.output, arguments.count, arguments.seed)
    for index in range(arguments.piece_vocabularies):
        path = arguments.output / f"pieces-{arguments.seed}-{index}.gguf"
        random_piece_vocabulary(path, arguments.seed * 100000 + index)
        write_cases(path, arguments.output, arguments.count // arguments.piece_vocabularies, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
