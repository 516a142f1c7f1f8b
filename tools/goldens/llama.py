"""A thin layer over llama.cpp's C interface (the `llama_cpp` package), just what the goldens need."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np

F32 = 0  # GGML_TYPE_F32


@llama_cpp.llama_log_callback
def _only_errors(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    """Print errors (level 4), drop everything else."""
    if level == 4:
        print(text.decode("utf-8", "replace"), end="", flush=True)


llama_cpp.llama_log_set(_only_errors, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()


class Model:
    """A loaded GGUF file; with `vocab_only` just its vocabulary."""

    def __init__(self, path: Path, vocab_only: bool = False) -> None:
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = vocab_only
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path.name}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.size = llama_cpp.llama_vocab_n_tokens(self._vocab)

    def close(self) -> None:
        """Free the model."""
        llama_cpp.llama_model_free(self._model)

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of `text`."""
        capacity = 4 * len(text) + 8  # an invalid byte becomes U+FFFD: three tokens
        ids = (llama_cpp.llama_token * capacity)()
        count = llama_cpp.llama_tokenize(self._vocab, text, len(text), ids, capacity, add_special, parse_special)
        if count < 0:
            raise RuntimeError("more tokens than expected")
        return ids[:count]

    def pieces(self, ids: list[int]) -> bytes:
        """Return the bytes of `ids`: the concatenated pieces, those of special tokens too."""
        buffer = ctypes.create_string_buffer(1024)
        out = b""
        for token in ids:
            size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
            if size < 0:
                raise RuntimeError("a piece longer than 1024 bytes")
            out += buffer.raw[:size]
        return out

    def detokenize(self, ids: list[int]) -> bytes:
        """Return what llama_detokenize makes of `ids`; it may drop spaces before punctuation."""
        capacity = 1024 + 64 * len(ids)
        buffer = ctypes.create_string_buffer(capacity)
        array = (llama_cpp.llama_token * len(ids))(*ids)
        size = llama_cpp.llama_detokenize(self._vocab, array, len(ids), buffer, capacity, False, True)
        if size < 0:
            raise RuntimeError("more text than expected")
        return buffer.raw[:size]

    def end_of_generation_ids(self) -> list[int]:
        """Return all ids at which llama.cpp ends a generation."""
        return [token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(self._vocab, token)]

    def bos_eos(self) -> tuple[int, int]:
        """Return the ids of BOS and EOS."""
        return llama_cpp.llama_vocab_bos(self._vocab), llama_cpp.llama_vocab_eos(self._vocab)

    def chat_template(self) -> str:
        """Return the chat template in the file's metadata."""
        return llama_cpp.llama_model_chat_template(self._model, None).decode()

    def context(self, n_ctx: int, threads: int) -> Context:
        """Return a fresh context with an f32 KV cache and without flash attention."""
        return Context(self._model, self.size, n_ctx, threads)


class Context:
    """One sequence of tokens evaluated by llama.cpp, with an f32 KV cache and no flash attention."""

    micro_batch = 512

    def __init__(self, model: llama_cpp.llama_model_p, vocab_size: int, n_ctx: int, threads: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_ctx
        params.n_ubatch = self.micro_batch
        params.n_threads = threads
        params.n_threads_batch = threads
        params.type_k = F32
        params.type_v = F32
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context")
        self._vocab_size = vocab_size
        self._position = 0

    def close(self) -> None:
        """Free the context."""
        llama_cpp.llama_free(self._context)

    def clear(self) -> None:
        """Forget all tokens."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._position = 0

    def evaluate(self, ids: list[int], every_position: bool = False) -> np.ndarray:
        """Append `ids`; return logits, [len(ids), vocabulary] or only the last row, [1, vocabulary]."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = self._position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = every_position or i == len(ids) - 1
        status = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        self._position += len(ids)
        rows = range(len(ids)) if every_position else [len(ids) - 1]
        return np.stack(
            [
                np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, row), (self._vocab_size,)).copy()
                for row in rows
            ]
        )


def apply_chat_template(template: str, messages: list[tuple[str, str]], add_generation_prompt: bool) -> str | None:
    """Return llama_chat_apply_template's rendering, or None where it returns an error."""
    chat = (llama_cpp.llama_chat_message * len(messages))()
    for i, (role, content) in enumerate(messages):
        chat[i].role = role.encode()
        chat[i].content = content.encode()
    buffer = ctypes.create_string_buffer(1 << 16)
    size = llama_cpp.llama_chat_apply_template(
        template.encode(), chat, len(messages), add_generation_prompt, buffer, len(buffer)
    )
    return None if size < 0 else buffer.raw[:size].decode()


def system_info() -> str:
    """Return the CPU features that this build of llama.cpp uses."""
    return llama_cpp.llama_print_system_info().decode().strip(" |")


def version() -> str:
    """Return the version of the llama-cpp-python package, which fixes that of llama.cpp."""
    return llama_cpp.__version__
