#!/usr/bin/env bash
# Fetches what tests need, runs ctest, and finally reports which tests were skipped because something was missing.
# Usage: tools/run_tests.sh BUILD_FOLDER CTEST_ARGUMENT...        The exit status is ctest's.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
tools/get_model.sh "$build/models" || true
tools/get_nvrtc.sh "$build/nvrtc" || true
# Before the run, since this overwrites the log of the last one.
for label in nvrtc cuda; do
  ctest --test-dir "$build" -N -L "^$label\$" | sed -n 's/^ *Test *#[0-9]*: //p' > "$build/${label}_tests.txt"
done
ctest --test-dir "$build" --output-on-failure --output-junit tests.xml "$@"
result=$?
python3 -B tools/skipped_tests.py "$build" "$build/nvrtc_tests.txt" 'NVRTC could not be fetched' "$build/nvrtc/missing"
python3 -B tools/skipped_tests.py "$build" "$build/cuda_tests.txt" 'no GPU can be used here'
exit $result
