#!/usr/bin/env python3
"""Checks every #include, and every room's DEPS, against the layers of the design.

A room includes itself and lower rooms, never a neighbour operation; every public header belongs to a room and is held to the
same rule, whoever includes it; only device/cuda and ops/*/cuda name CUDA; the command, the examples and the bindings see the
public headers only; a public header includes the standard library, tl/expected and other public headers. A room's CMake DEPS
name lower rooms, and every room that its files include. Prints one line per violation and exits 1 if there is one.

--touched A..B instead prints the rooms and files that differ between two revisions, to see what a change affected.
"""

import argparse
import pathlib
import re
import subprocess
import sys

# Room (a folder of src/ with a library of its own) -> rooms it may include besides itself. Higher layers list lower ones; `ops`
# means every operation room.
ALLOWED = {
    'core': [],
    'device': ['core'],
    'artifact': ['core', 'device'],
    'engine': ['core', 'device', 'artifact'],
    'ops': ['core', 'device', 'artifact', 'engine'],
    'worker': ['core', 'device', 'engine'],
    'sequence': ['core', 'device', 'artifact', 'engine', 'ops'],
    'graph': ['core', 'device', 'artifact', 'engine', 'ops', 'sequence'],
    'model': ['core', 'device', 'artifact', 'engine', 'ops', 'sequence', 'graph'],
    'api': ['core', 'device', 'artifact', 'engine', 'ops', 'sequence', 'graph', 'model', 'worker'],
}
# Room -> the public headers it owns, below include/tilewright/. To include one is to include its room.
PUBLIC = {
    'core': ['cache_mode.h', 'executor.h', 'log.h', 'rejection.h', 'result.h', 'tensor.h', 'types.h', 'whole_file.h'],
    'device': ['compiler.h', 'cuda/kv_cache_params.h', 'cuda_device.h', 'device.h', 'device_spec.h', 'features.h', 'gpu_state.h', 'hand_over.h', 'read_floor.h'],
    'artifact': ['artifact.h', 'artifact_key.h', 'artifact_store.h', 'bundle.h', 'kernel_family.h', 'kernel_spec.h'],
    'engine': ['dispatch_cache.h', 'kernel.h', 'kernel_lock.h', 'matrix.h', 'operation.h', 'records.h', 'rope_table.h', 'stages.h', 'tensor_op.h', 'tune.h', 'tuner.h'],
    'ops/attention': ['attention.h', 'cuda/attention_params.h', 'cuda/attention_simt_params.h'],
    'ops/copy': ['copy.h', 'cuda/copy_params.h', 'cuda/kv_scatter_params.h', 'kv_scatter.h'],
    'ops/elementwise': ['cuda/elementwise_params.h', 'elementwise.h'],
    'ops/embedding': ['cuda/embedding_params.h', 'embedding.h'],
    'ops/experts': ['combine.h', 'cuda/combine_params.h', 'cuda/route_params.h', 'route.h'],
    'ops/gemm': ['cuda/gemm_chain_params.h', 'cuda/gemm_params.h', 'cuda/gemm_q_params.h', 'cuda/gemm_qr_params.h', 'cuda/gemm_qw_params.h', 'cuda/gemv_params.h', 'cuda/grouped_gemm_params.h', 'gemm.h', 'gemm_stages.h', 'tune_gemm.h'],
    'ops/norm': ['cuda/rmsnorm_params.h', 'norm.h'],
    'ops/rope': ['cuda/rope_kv_params.h', 'cuda/rope_params.h', 'rope.h'],
    'ops/top_k': ['cuda/top_k_params.h', 'top_k.h'],
    'graph': ['device_dispatch.h', 'fusion.h', 'graph.h', 'kernel_dispatch.h', 'kernels.h', 'prepared_graph.h', 'step_times.h', 'weight_packer.h'],
    'model': ['batch_scheduler.h', 'chat.h', 'generate.h', 'gguf.h', 'model.h', 'sampler.h', 'synth.h', 'tokenizer.h'],
    'worker': ['worker.h'],
    'api': ['tilewright.h'],
}
PUBLIC_ONLY = ('cli', 'examples', 'bindings')
# tests/ and bench/ may include headers of every room.
CHECKED = ('include', 'src') + PUBLIC_ONLY
SOURCES = {'.h', '.cc', '.cu', '.cuh', '.hpp', '.cpp', '.inc'}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
CUDA = re.compile(r'^(cuda(_\w+)?\.hp?p?|cuda/.*|cuda[A-Z]\w*\.h|cuda_\w+\.hpp|cublas\w*\.h|nvrtc\.h|nvml\.h|nccl\.h|cudnn\w*\.h|'
                  r'cooperative_groups\.h|cooperative_groups/.*|nv\w+\.cuh|cute/.*|cutlass/.*)$')
# The form of a standard header's name: lower case, no folder, no extension; and the C headers that a public header could need.
STANDARD = re.compile(r'^[a-z_0-9]+$')


def room_of(parts):
    """Room of a path relative to src/: ('core',) or ('ops', 'gemm'); None for a file in src/ itself."""
    if len(parts) < 2:
        return None
    if parts[0] == 'ops':
        return ('ops', parts[1]) if len(parts) > 2 else None
    return (parts[0],)


def refusal(own, target):
    """Why the room `own` may not depend on the room `target`; None if it may."""
    if target is None or own is None or target == own:
        return None
    if own[0] not in ALLOWED:
        return f'the room {own[0]} is not in the table of tools/check_layers.py'
    if own[0] == 'ops' and target[0] == 'ops':
        return f'operation rooms never include each other ({"/".join(own)} -> {"/".join(target)})'
    if target[0] not in ALLOWED[own[0]]:
        return f'{"/".join(own)} lies below {"/".join(target)}'
    return None


class CMakeRoom:
    """One tilewright_room() of a CMakeLists.txt: a folder's library and what it names in DEPS."""

    KEYWORDS = {'SOURCES', 'KERNELS', 'CUDA_SOURCES', 'CUDA_HEADERS', 'DEPS', 'LIBRARIES'}

    def __init__(self, text, match, folder):
        self.name = match.group(1)
        self.folder = folder  # relative to src/
        self.room = room_of(folder.parts + ('',))
        self.line = text.count('\n', 0, match.start()) + 1
        keyword, self.deps = None, []
        for word in match.group(2).split():
            if word in self.KEYWORDS:
                keyword = word
            elif keyword == 'DEPS':
                self.deps += self.expand(text, word)

    @staticmethod
    def expand(text, word):
        """The words of `${name}`: everything that set() and list(APPEND) of the same file give it."""
        if not word.startswith('${'):
            return [word]
        name = re.escape(word[2:-1])
        found = re.findall(rf'(?:set\(|list\(APPEND )\s*{name}\s+([^)]*)\)', text)
        return ' '.join(found).split()


class Checker:

    def __init__(self, root, public=None):
        self.root = pathlib.Path(root)
        self.owners = {header: tuple(room.split('/'))
                       for room, headers in (PUBLIC if public is None else public).items() for header in headers}
        self.rooms = self.cmake_rooms()

    def owner(self, name):
        """Room that owns the public header `name` ("tilewright/gemm.h"), or None."""
        return self.owners.get(name.removeprefix('tilewright/'))

    def room_of_file(self, path):
        """Room of a file by its path relative to the root; None for a file of no room."""
        parts = path.parts
        if parts[:2] == ('include', 'tilewright'):
            return self.owners.get('/'.join(parts[2:]))
        return room_of(parts[1:]) if parts[0] == 'src' else None

    def source_target(self, path, name):
        """File below src/, relative to it, that `#include "name"` means in `path`; None for another."""
        for base in (self.root / path.parent, self.root / 'src'):
            candidate = base / name
            if candidate.is_file():
                resolved = candidate.resolve()
                source_root = (self.root / 'src').resolve()
                return resolved.relative_to(source_root) if resolved.is_relative_to(source_root) else None
        return pathlib.Path(name) if name.split('/')[0] in ALLOWED else None

    def target_room(self, path, name):
        """Room that `#include "name"` reaches from the file `path` (relative to the root), or None if it reaches none."""
        if name.startswith('tilewright/'):
            return self.owner(name)
        target = self.source_target(path, name)
        return None if target is None else room_of(target.parts)

    def problem(self, path, name, quoted):
        """Why the file `path` may not include `name`; None if it may."""
        parts = path.parts
        area = parts[0]
        public = name.startswith('tilewright/')
        if CUDA.match(name) and not self.may_name_cuda(parts):
            return 'only device/cuda and ops/*/cuda may name CUDA'
        if area == 'include' and not (public or name == 'tl/expected.hpp' or (not quoted and STANDARD.match(name))):
            return 'a public header includes the standard library, tl/expected.hpp and tilewright/ only'
        if area in PUBLIC_ONLY:
            target = None if public else self.target_room(path, name)
            return None if target is None else f'{area} sees include/tilewright only, not the room {"/".join(target)}'
        if name.startswith('../') or '/../' in name:
            return 'an include names its room from src/, not a parent folder'
        return refusal(self.room_of_file(path), self.target_room(path, name))

    @staticmethod
    def may_name_cuda(parts):
        if parts[0] == 'bench' or parts[:3] == ('src', 'device', 'cuda'):
            return True
        return parts[:2] == ('src', 'ops') and len(parts) > 4 and parts[3] == 'cuda'

    def includes(self, path):
        """(line, name, quoted) of every #include of a file."""
        text = (self.root / path).read_text(encoding='utf-8', errors='replace')
        for match in INCLUDE.finditer(text):
            name = match.group(1) or match.group(2)
            yield text.count('\n', 0, match.start()) + 1, name, match.group(1) is not None

    def check_file(self, path):
        found = []
        for line, name, quoted in self.includes(path):
            why = self.problem(path, name, quoted)
            if why:
                found.append(f'{path}:{line}: #include "{name}": {why}')
        if path.suffix == '.h' and '#pragma once' not in (self.root / path).read_text(encoding='utf-8', errors='replace'):
            found.append(f'{path}:1: a header starts with #pragma once')
        if path.parts[0] == 'include' and self.room_of_file(path) is None:
            found.append(f'{path}:1: no room owns this public header: enter it in PUBLIC of tools/check_layers.py')
        return found

    def check_owners(self):
        """Checks that every header in the table exists."""
        return [f'tools/check_layers.py: {"/".join(room)} owns {header}, which include/tilewright/ does not have'
                for header, room in sorted(self.owners.items())
                if not (self.root / 'include/tilewright' / header).is_file()]

    def cmake_rooms(self):
        """Every tilewright_room() below src/, by name."""
        rooms = {}
        for path in sorted((self.root / 'src').rglob('CMakeLists.txt')):
            text = re.sub(r'#[^\n]*', '', path.read_text(encoding='utf-8'))
            for match in re.finditer(r'tilewright_room\(\s*(\w+)\s([^)]*)\)', text):
                room = CMakeRoom(text, match, path.parent.relative_to(self.root / 'src'))
                rooms[room.name] = room
        return rooms

    def cmake_room_of(self, file):
        """The library that a file below src/ belongs to: of its folder, else of the nearest folder above."""
        by_folder = {room.folder: room for room in self.rooms.values()}
        return next((by_folder[folder] for folder in file.parents if folder in by_folder), None)

    def reached(self, room):
        """Names of the libraries that `room` links, through others as well."""
        names, waiting = set(), [room.name]
        while waiting:
            name = waiting.pop()
            if name not in names:
                names.add(name)
                waiting += self.rooms[name].deps if name in self.rooms else []
        return names

    def check_deps(self):
        """Checks that DEPS name rooms that exist and that may be used."""
        found = []
        for room in self.rooms.values():
            place = f'src/{room.folder}/CMakeLists.txt:{room.line}: tilewright_room({room.name})'
            for dep in room.deps:
                if dep not in self.rooms:
                    found.append(f'{place}: DEPS {dep}: there is no such room')
                    continue
                why = refusal(room.room, self.rooms[dep].room)
                if why:
                    found.append(f'{place}: DEPS {dep}: {why}')
        return found

    def check_included(self):
        """Checks that DEPS cover everything that a library's files include. Tests name their rooms themselves."""
        found = set()
        for path in sorted((self.root / 'src').rglob('*')):
            file = path.relative_to(self.root / 'src')
            own = self.cmake_room_of(file)
            if path.suffix not in ('.h', '.cc') or own is None or 'test' in file.stem:
                continue
            reached = self.reached(own)
            for _, name, quoted in self.includes(path.relative_to(self.root)):
                if not quoted:
                    continue
                missing = self.missing_dep(path.relative_to(self.root), name, reached)
                if missing:
                    found.add(f'src/{own.folder}/CMakeLists.txt:{own.line}: tilewright_room({own.name}): DEPS lack {missing}, '
                              f'which src/{file} includes')
        return sorted(found)

    def missing_dep(self, path, name, reached):
        """The library or room of `#include "name"` that is not among `reached`; None if there is none."""
        if name.startswith('tilewright/'):
            room = self.owner(name)
            known = room is None or any(self.rooms[other].room == room for other in reached if other in self.rooms)
            return None if known else '/'.join(room)
        target = self.source_target(path, name)
        library = None if target is None else self.cmake_room_of(target)
        return library.name if library is not None and library.name not in reached else None

    def check_all(self):
        found = []
        for area in CHECKED:
            for path in sorted((self.root / area).rglob('*')):
                if path.is_file() and path.suffix in SOURCES:
                    found += self.check_file(path.relative_to(self.root))
        return found + self.check_owners() + self.check_deps() + self.check_included()

    def touched(self, paths):
        """Room -> files of it, of a change's paths; files of no room stand under their folder, "tests/"."""
        groups = {}
        for path in map(pathlib.Path, paths):
            room = self.room_of_file(path)
            group = '/'.join(room) if room else (path.parts[0] + '/' if len(path.parts) > 1 else './')
            groups.setdefault(group, []).append(str(path))
        return groups


def print_touched(checker, revisions):
    """Prints what `git diff A..B` changed, by rooms in layer order, then by folders."""
    diff = subprocess.run(['git', '-C', checker.root, 'diff', '--name-only', '--no-renames', '-z', revisions, '--'],
                          capture_output=True, text=True, check=False)
    if diff.returncode != 0:
        print(diff.stderr.strip(), file=sys.stderr)
        return 2
    groups = checker.touched([path for path in diff.stdout.split('\0') if path])
    layers = list(ALLOWED)
    rooms = sorted((group for group in groups if not group.endswith('/')),
                   key=lambda room: (layers.index(room.split('/')[0]) if room.split('/')[0] in layers else len(layers), room))
    folders = sorted(group for group in groups if group.endswith('/'))
    files_of = lambda names: sum(len(groups[name]) for name in names)
    print(f'{len(rooms)} rooms, {files_of(rooms)} files; elsewhere {files_of(folders)} files')
    for group in rooms + folders:
        print(f'{group} ({len(groups[group])})')
        for path in sorted(groups[group]):
            print(f'  {path}')
    return 0


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--root', default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument('--touched', metavar='A..B', help='print the rooms and files that differ between two revisions')
    args = parser.parse_args(argv)
    checker = Checker(args.root)
    if args.touched:
        return print_touched(checker, args.touched)
    found = checker.check_all()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
