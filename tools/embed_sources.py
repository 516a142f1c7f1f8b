#!/usr/bin/env python3
"""Writes files as a C++ table of (virtual name, text): EmbeddedSources() of tilewright/kernel_family.h.

The virtual name is the path relative to src/ or, of a public header, to include/, which is also how the files include each other, so they compile the same from
the tree and from memory.
"""

import argparse
import pathlib
import sys


def literal(data):
    """`data` as adjacent ordinary string literals, one per line of source."""
    return '\n'.join('    ' + quoted(line) for line in data.splitlines(keepends=True)) or '    ""'


def quoted(data):
    out = []
    for byte in data:
        char = chr(byte)
        if char in '"\\':
            out.append('\\' + char)
        elif char == '\n':
            out.append('\\n')
        elif char == '\t':
            out.append('\\t')
        elif 32 <= byte < 127 and char != '?':
            out.append(char)
        else:
            out.append(f'\\{byte:03o}')
    return '"' + ''.join(out) + '"'


def find(roots, name):
    """The file `name` below the first of `roots` that has it."""
    for root in roots:
        if (root / name).is_file():
            return root / name
    raise FileNotFoundError(f'{name}: in none of {", ".join(map(str, roots))}')


def table_source(roots, names):
    rows = []
    for name in sorted(set(names)):
        data = find(roots, name).read_bytes()
        rows.append(f'    // {name}\n    {{{quoted(name.encode())},\n     std::string_view(\n{literal(data)},\n     {len(data)})}},\n')
    return f'''// Written by tools/embed_sources.py at build time.
#include <array>
#include <string_view>

#include "tilewright/kernel_family.h"

namespace tilewright {{
namespace {{

constexpr std::array<SourceFile, {len(rows)}> kFiles{{{{
{"".join(rows)}}}}};

}}  // namespace

std::span<const SourceFile> EmbeddedSources() {{ return kFiles; }}

}}  // namespace tilewright
'''


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--root', required=True, action='append', type=pathlib.Path,
                        help='folder that names are relative to; of several, the first that has the file is used')
    parser.add_argument('--output', required=True, type=pathlib.Path)
    parser.add_argument('names', nargs='*')
    options = parser.parse_args(argv)
    text = table_source(options.root, options.names)
    if not options.output.is_file() or options.output.read_text() != text:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
