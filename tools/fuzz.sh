#!/usr/bin/env bash
# Builds every fuzz target and runs each for some seconds, one more at a time than there are processors, so that five on two
# processors take two turns, not three.
# Usage: tools/fuzz.sh [SECONDS each, default 60] [NAME ...]     (artifact_fuzz ...; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
cmake --preset fuzz >"$logs/configure" 2>&1 || { cat "$logs/configure"; exit 1; }
cmake --build build-fuzz -j "$(nproc)" --target fuzzers
if [[ $# -gt 0 ]]; then fuzzers=("${@/#/build-fuzz/fuzz/}"); else fuzzers=(build-fuzz/fuzz/*_fuzz); fi
[[ -x ${fuzzers[0]} ]] || { echo "fuzz.sh: no fuzz target was built" >&2; exit 1; }

run() {
  local name corpus seeds
  name=$(basename "$1")
  corpus=build-fuzz/corpus/$name
  seeds=tests/data/fuzz/$name
  mkdir -p "$corpus"
  [[ -d $seeds ]] || seeds=
  # shellcheck disable=SC2086  # no seeds: no argument
  if "$1" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$name-" "$corpus" $seeds >"$logs/$name" 2>&1; then
    echo "-- $name: $(grep -E '^Done' "$logs/$name"), $(grep -E 'number_of_executed_units' "$logs/$name" | tr -s ' ')"
    return 0
  fi
  tail -n 60 "$logs/$name"
  echo "$name failed; the input is build-fuzz/$name-*" >&2
  return 1
}

echo "-- ${fuzzers[*]##*/} for $seconds s each"
failed=0 running=0
for fuzzer in "${fuzzers[@]}"; do
  if [[ $running -gt $(nproc) ]]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  run "$fuzzer" &
  running=$((running + 1))
done
for ((; running > 0; running--)); do wait -n || failed=1; done
exit $failed
