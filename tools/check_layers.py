#!/usr/bin/env python3
"""Holds every #include to the layers of the design.

A room includes itself and lower rooms, never a neighbour operation; only device/cuda and ops/*/cuda name CUDA; the command,
the examples and the bindings see the public headers only; a public header includes the standard library, tl/expected and other
public headers. Prints one line per violation and exits 1 if there is one.
"""

import argparse
import pathlib
import re
import sys

# Room -> rooms it may include besides itself. Higher layers list lower ones; `ops` stands for every operation room.
ALLOWED = {
    'core': [],
    'device': ['core'],
    'artifact': ['core', 'device'],
    'engine': ['core', 'device', 'artifact'],
    'ops': ['core', 'device', 'artifact', 'engine'],
    'graph': ['core', 'device', 'artifact', 'engine', 'ops'],
    'model': ['core', 'device', 'artifact', 'engine', 'ops', 'graph'],
    'api': ['core', 'device', 'artifact', 'engine', 'ops', 'graph', 'model'],
}
PUBLIC_ONLY = ('cli', 'examples', 'bindings')
# tests/ and bench/ may look inside every room.
CHECKED = ('include', 'src') + PUBLIC_ONLY
SOURCES = {'.h', '.cc', '.cu', '.cuh', '.hpp', '.cpp', '.inc'}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
CUDA = re.compile(r'^(cuda(_\w+)?\.hp?p?|cuda/.*|cuda[A-Z]\w*\.h|cuda_\w+\.hpp|cublas\w*\.h|nvrtc\.h|nvml\.h|nccl\.h|cudnn\w*\.h|'
                  r'cooperative_groups\.h|cooperative_groups/.*|nv\w+\.cuh|cute/.*|cutlass/.*)$')
# What a standard header is called: lower case, no folder, no extension; and the C ones a public header could need.
STANDARD = re.compile(r'^[a-z_0-9]+$')


def room_of(parts):
    """Room of a path relative to src/: ('core',) or ('ops', 'gemm'); None for a file in src/ itself."""
    if len(parts) < 2:
        return None
    if parts[0] == 'ops':
        return ('ops', parts[1]) if len(parts) > 2 else None
    return (parts[0],)


class Checker:

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def target_room(self, path, name):
        """Room that `#include "name"` reaches from the file `path` (relative to the root), or None if not in src/."""
        for base in (self.root / path.parent, self.root / 'src'):
            candidate = base / name
            if candidate.is_file():
                resolved = candidate.resolve()
                source_root = (self.root / 'src').resolve()
                if resolved.is_relative_to(source_root):
                    return room_of(resolved.relative_to(source_root).parts)
                return None
        first = name.split('/')
        return room_of(tuple(first)) if first[0] in ALLOWED else None

    def problem(self, path, name, quoted):
        """Why the file `path` may not include `name`; None if it may."""
        parts = path.parts
        area = parts[0]
        public = name.startswith('tilewright/')
        if CUDA.match(name) and not self.may_name_cuda(parts):
            return 'only device/cuda and ops/*/cuda may name CUDA'
        if area == 'include':
            if public or name == 'tl/expected.hpp' or (not quoted and STANDARD.match(name)):
                return None
            return 'a public header includes the standard library, tl/expected.hpp and tilewright/ only'
        if area in PUBLIC_ONLY:
            target = self.target_room(path, name)
            return None if target is None else f'{area} sees include/tilewright only, not the room {"/".join(target)}'
        if name.startswith('../') or '/../' in name:
            return 'an include names its room from src/, not a parent folder'
        target = self.target_room(path, name)
        own = room_of(parts[1:])
        if public or target is None or own is None or target == own:
            return None
        if own[0] not in ALLOWED:
            return f'the room {own[0]} is not in the table of tools/check_layers.py'
        if own[0] == 'ops' and target[0] == 'ops':
            return f'operation rooms never include each other ({"/".join(own)} -> {"/".join(target)})'
        if target[0] not in ALLOWED[own[0]]:
            return f'{"/".join(own)} lies below {"/".join(target)}'
        return None

    @staticmethod
    def may_name_cuda(parts):
        if parts[0] == 'bench' or parts[:3] == ('src', 'device', 'cuda'):
            return True
        return parts[:2] == ('src', 'ops') and len(parts) > 4 and parts[3] == 'cuda'

    def check_file(self, path):
        text = (self.root / path).read_text(encoding='utf-8', errors='replace')
        found = []
        for match in INCLUDE.finditer(text):
            name = match.group(1) or match.group(2)
            why = self.problem(path, name, match.group(1) is not None)
            if why:
                line = text.count('\n', 0, match.start()) + 1
                found.append(f'{path}:{line}: #include "{name}": {why}')
        if path.suffix == '.h' and '#pragma once' not in text:
            found.append(f'{path}:1: a header starts with #pragma once')
        return found

    def check_all(self):
        found = []
        for area in CHECKED:
            for path in sorted((self.root / area).rglob('*')):
                if path.is_file() and path.suffix in SOURCES:
                    found += self.check_file(path.relative_to(self.root))
        return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--root', default=pathlib.Path(__file__).resolve().parents[1])
    args = parser.parse_args(argv)
    found = Checker(args.root).check_all()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
