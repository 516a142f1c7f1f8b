#!/usr/bin/env python3
"""Digests of the kernel translation units, written as a C++ table.

A digest covers the file, every project header it includes directly or not (looked up beside the includer, in src/ and in
include/; system headers belong to the compiler's version), the compiler and the flags. Includes are read textually: one that
the preprocessor would skip counts too, which can only make a digest change more often than needed, never less.

Manifest: `compiler ID VERSION ARCH`, `flags COMMON FLAGS`, then one `path relative to src|flags` a line.
"""

import argparse
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
# A path in a flag names a place on this machine, not a property of the code.
ABSOLUTE_PATH = re.compile(r'(^|(?<=[\s=:,])|(?<=-I)|(?<=-L)|(?<=-B))/[^\s=:,]*')
DIGEST_CHARS = 32


class Tree:
    """The project's files by path, each read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.search = [self.root / 'src', self.root / 'include']
        self._files = {}

    def read(self, path):
        """(content, project headers it names) of one file."""
        if path not in self._files:
            content = path.read_bytes()
            included = []
            for name in INCLUDE.findall(content):
                for folder in [path.parent] + self.search:
                    candidate = folder / name.decode('utf-8', 'replace')
                    if candidate.is_file():
                        included.append(candidate.resolve())
                        break
            self._files[path] = (content, included)
        return self._files[path]

    def closure(self, path):
        """`path` and everything it includes, sorted by name relative to the root."""
        seen = {path.resolve()}
        todo = [path.resolve()]
        while todo:
            for header in self.read(todo.pop())[1]:
                if header not in seen:
                    seen.add(header)
                    todo.append(header)
        root = self.root.resolve()
        return sorted(((p.relative_to(root).as_posix(), p) for p in seen if p.is_relative_to(root)))


def clean_flags(flags):
    return ' '.join(ABSOLUTE_PATH.sub('<path>', flags).split())


def parse_manifest(text):
    """(compiler, common flags, [(translation unit, own flags)])."""
    compiler, common, units = '', '', []
    for line in text.splitlines():
        if line.startswith('compiler '):
            compiler = line[len('compiler '):].strip()
        elif line.startswith('flags '):
            common = line[len('flags '):]
        elif line.strip():
            tu, _, flags = line.partition('|')
            units.append((tu, flags))
    return compiler, common, sorted(units)


def digests(root, manifest):
    """({translation unit: digest}, every file read)."""
    compiler, common, units = parse_manifest(manifest)
    tree = Tree(root)
    result, files = {}, set()
    for tu, flags in units:
        sha = hashlib.sha256()
        sha.update(f'{compiler}\n{clean_flags(common + " " + flags)}\n'.encode())
        for name, path in tree.closure(tree.root / 'src' / tu):
            content = tree.read(path)[0]
            sha.update(f'{name} {len(content)}\n'.encode())
            sha.update(content)
            files.add(path)
        result[tu] = sha.hexdigest()[:DIGEST_CHARS]
    return result, sorted(files)


def table_source(table):
    rows = ''.join(f'    {{"{tu}",\n     "{digest}"}},\n' for tu, digest in sorted(table.items()))
    return f'''// Written by tools/fingerprint.py at build time.
#include <array>

#include "core/fingerprint.h"

namespace tilewright {{
namespace {{

constexpr std::array<TuDigest, {len(table)}> kDigests{{{{
{rows}}}}};

}}  // namespace

std::span<const TuDigest> AllTuDigests() {{ return kDigests; }}

}}  // namespace tilewright
'''


def write_if_changed(path, text):
    path = pathlib.Path(path)
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--root', required=True)
    parser.add_argument('--manifest', required=True)
    parser.add_argument('--output', required=True)
    parser.add_argument('--depfile', required=True)
    args = parser.parse_args(argv)
    try:
        table, files = digests(args.root, pathlib.Path(args.manifest).read_text())
    except OSError as error:
        print(f'fingerprint.py: {error}', file=sys.stderr)
        return 1
    write_if_changed(args.output, table_source(table))
    names = ' '.join(str(f).replace(' ', '\\ ') for f in files)
    pathlib.Path(args.depfile).write_text(f'{args.output}: {names}\n')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
