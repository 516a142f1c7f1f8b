#!/usr/bin/env bash
# Formats the changed C++ and CUDA files in place; --all: all of them; --which: only prints the clang-format that is used.
# Versions format differently, so only 14 (Debian 12's) is used.
set -euo pipefail
cd "$(dirname "$0")/.."
clang_format=
for name in clang-format-14 clang-format; do
  if command -v $name >/dev/null && [[ $($name --version) == *"version 14."* ]]; then clang_format=$name; break; fi
done
if [[ ! $clang_format ]]; then
  echo "fmt.sh: needs clang-format 14" >&2
  exit 1
fi
if [[ ${1:-} == --which ]]; then
  echo $clang_format
  exit 0
fi
source tools/changed_files.sh "$@"
[[ ${#sources[@]} -eq 0 ]] || $clang_format -i "${sources[@]}"
