#!/usr/bin/env bash
# Builds the tests of one label with a sanitizer preset and runs them. Usage: tools/sanitize.sh PRESET LABEL
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1 label=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset "$preset" >"$log" 2>&1 || { cat "$log"; exit 1; }
cmake --build "build-$preset" -j "$(nproc)" --target "tests_$label"
run=(ctest --test-dir "build-$preset" -j "$(nproc)" --output-on-failure -L "^$label\$" --no-tests=error)
export ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tools/tsan_suppressions.txt"
if [[ $preset == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
  # If the kernel uses more random bits for mmap than this ThreadSanitizer expects, the program ends at startup. (Some containers
  # do not allow reducing them.)
  run=(setarch "$(uname -m)" -R "${run[@]}")
fi
"${run[@]}"
