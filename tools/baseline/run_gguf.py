#!/usr/bin/env python3
"""Load GGUF files with llama.cpp and generate a few tokens: does it accept what `synth` wrote?

    DEST/venv/bin/python tools/baseline/run_gguf.py MODEL.gguf...     # DEST as in build_llama_cpp.sh

Prints one line a file. Fails if a file does not load, text does not survive tokenisation and back, or
fewer tokens than asked for come out.
"""

import sys

from llama_cpp import Llama

TEXT = "The capital of France is 42!\n\té😀".encode()
TOKENS = 8


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    failed = 0
    for path in sys.argv[1:]:
        try:
            model = Llama(path, n_ctx=128, n_threads=2, verbose=False)
        except ValueError as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed += 1
            continue
        prompt = model.tokenize(TEXT, add_bos=True, special=True)
        same = model.detokenize(prompt) == TEXT
        made = []
        for token in model.generate(prompt, temp=0.0):
            made.append(token)
            if len(made) == TOKENS:
                break
        ok = same and len(made) == TOKENS
        failed += not ok
        state = "ok" if ok else "FAILED"
        print(f"{path}: {state}, {model.n_vocab()} tokens, prompt of {len(prompt)}, then {made}")
        del model
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
