#!/usr/bin/env python3
"""Expand a quantized GGUF file to f32 weights.

Every tensor is dequantized with gguf-py's reference code and stored as f32; all metadata is kept,
except `general.file_type`, which becomes 0 (all f32). The output is deterministic: the same input
and the same gguf package give the same bytes.

Goldens are computed from such a file, so that they hold neither llama.cpp's quantization of
activations nor anything else that depends on the kernels that read the quantized weights.

    expand_f32.py model-q4_1.gguf model-f32.gguf
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, overrides: dict[str, object]) -> None:
    """Copy every key of `reader` to `writer` in order; values in `overrides` replace the originals."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == gguf.Keys.General.ARCHITECTURE:
            continue  # written by GGUFWriter itself
        value_type = field.types[0]
        sub_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        value = overrides.get(key, field.contents())
        writer.add_key_value(key, value, value_type, sub_type=sub_type)


def expand(source: Path, target: Path) -> None:
    """Write `target`, the f32 expansion of `source`."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    writer = gguf.GGUFWriter(target, architecture)
    copy_metadata(reader, writer, {gguf.Keys.General.FILE_TYPE: int(gguf.LlamaFileType.ALL_F32)})
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        data = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data.reshape(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="GGUF file with weights of any type gguf-py can read")
    parser.add_argument("target", type=Path, help="GGUF file to write")
    arguments = parser.parse_args()
    expand(arguments.source, arguments.target)


if __name__ == "__main__":
    main()
