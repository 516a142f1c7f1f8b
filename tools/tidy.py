#!/usr/bin/env python3
"""Runs clang-tidy on C++ files, but not again on what it has passed before.

Usage: tools/tidy.py FOLDER_OF_COMPILE_COMMANDS FILE...

What is known to pass is an empty file in ${XDG_CACHE_HOME:-~/.cache}/tilewright-tidy, whose name is a hash of all that the answer
depends on: clang-tidy, .clang-tidy, the command line, the unit with every file of the project that it includes, and the
installed development packages for the headers that are not the project's. Files that fail are checked again each time. Without a
change, checking all takes seconds in place of up to half an hour. Prints what failed; the exit status is 1 if anything did.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import fingerprint

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tilewright-tidy")
# Kernel files are compiled with g++'s flags, and clang does not know all of them.
FLAGS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-ignored-optimization-argument"]


def environment():
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    try:
        packages = subprocess.run(["dpkg-query", "-W", "*-dev"], capture_output=True, check=False).stdout
    except FileNotFoundError:
        packages = b""
    return version + pathlib.Path(ROOT, ".clang-tidy").read_bytes() + packages


def key(base, command, tree, path):
    digest = hashlib.sha256(base)
    digest.update(command.replace(ROOT, "").encode())
    for name, file in tree.closure(pathlib.Path(path)):
        digest.update(f"\0{name}\0".encode() + hashlib.sha256(tree.read(file)[0]).digest())
    return digest.hexdigest()


def main():
    commands_folder, *names = sys.argv[1:]
    with open(os.path.join(commands_folder, "compile_commands.json"), encoding="utf-8") as file:
        commands = {entry["file"]: entry["command"] for entry in json.load(file)}
    paths = [os.path.abspath(name) for name in names]
    # A file that this machine does not build, as bench/gpu without a CUDA toolkit, has no command line.
    units = [path for path in paths if path in commands]
    base, tree = environment(), fingerprint.Tree(ROOT)
    tree.search += [tree.root / "tests", tree.root / "bench"]  # include folders of bench/, besides src/ and include/
    keys = {path: os.path.join(FOLDER, key(base, commands[path], tree, path)) for path in units}
    unknown = [path for path in units if not os.path.exists(keys[path])]
    print(f"-- clang-tidy: {len(unknown)} files, {len(units) - len(unknown)} more have passed as they are, "
          f"{len(paths) - len(units)} are not built here", flush=True)
    os.makedirs(FOLDER, exist_ok=True)

    def check(path):
        run = subprocess.run(["clang-tidy", "-p", commands_folder, *FLAGS, path], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            with open(keys[path], "w", encoding="utf-8"):
                pass
        else:
            print(run.stdout, flush=True)
        return run.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(check, unknown))) else 1


if __name__ == "__main__":
    sys.exit(main())
