#!/usr/bin/env bash
# Builds every fuzz target and runs them one after the other. Usage: tools/fuzz.sh [SECONDS together, default 60]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --preset fuzz >"$log" 2>&1 || { cat "$log"; exit 1; }
if ! cmake --build build-fuzz --target help | grep -q '^fuzzers\b'; then
  echo "-- there is no fuzz target"
  exit 0
fi
cmake --build build-fuzz -j "$(nproc)" --target fuzzers
fuzzers=(build-fuzz/fuzz/*)
each=$(((seconds + ${#fuzzers[@]} - 1) / ${#fuzzers[@]}))
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  corpus=build-fuzz/corpus/$name
  seeds=tests/data/fuzz/$name
  mkdir -p "$corpus"
  [[ -d $seeds ]] || seeds=
  echo "-- $name for $each s"
  if ! "$fuzzer" -max_total_time="$each" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$name-" "$corpus" $seeds >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "$name failed; the input is build-fuzz/$name-*" >&2
    exit 1
  fi
  grep -E 'number_of_executed_units|^Done' "$log"
done
