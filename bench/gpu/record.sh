#!/usr/bin/env bash
# Checks and times every kernel of the catalog on this machine's GPU and records the result as
# bench/results/gpu_kernels_DEVICE.json and .md.
# Usage: bench/gpu/record.sh [BUILD [BUNDLE.twb]] [-- OPTIONS of tilewright_gpu_check]
#   BUILD    build folder (default: the repository's build/); configured and built if it has no
#            bench/gpu/tilewright_gpu_check
#   BUNDLE   kernels for this GPU (tilewright bundle build --all); without one NVRTC compiles here
# A machine that has the tree without its history is told the commit in TILEWRIGHT_COMMIT.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build
kernels=(--compile)
if (($#)) && [[ $1 != -- ]]; then build=$1; shift; fi
if (($#)) && [[ $1 != -- ]]; then kernels=("$1"); shift; fi
if (($#)); then shift; fi

program=$build/bench/gpu/tilewright_gpu_check
if [[ ! -x $program ]]; then
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build "$build" --target gpu_check -j "$(nproc)"
fi
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo "${TILEWRIGHT_COMMIT:-unknown}")
if [[ -n $(git -C "$root" status --porcelain -- src include bench/gpu cmake 2>/dev/null) ]]; then
  commit+=" with changes"
fi
device=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9-]//g; s/^nvidia-//')
export TILEWRIGHT_COMMIT=$commit
TILEWRIGHT_RECORD_COMMAND="bench/gpu/record.sh$( (($#)) && printf ' -- %s' "$*" || true)"
export TILEWRIGHT_RECORD_COMMAND
mkdir -p "$root/bench/results"
exec "$program" "${kernels[@]}" --json "$root/bench/results/gpu_kernels_$device.json" "$@"
