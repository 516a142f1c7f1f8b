#!/usr/bin/env bash
# Demonstrates the whole path with one model, on the GPU where there is one: tune for this machine, generate text, print the chosen kernels and
# the speed. Usage: tools/demo.sh TILEWRIGHT MODEL PROMPT
set -euo pipefail
tilewright=$1 model=$2 prompt=$3
show() { echo; printf '$'; printf ' %q' "$@"; echo; "$@"; }

where=()
if "$tilewright" kernels --device cuda:0 >/dev/null 2>&1; then where=(--device cuda:0); fi
# Problems that could not be timed in the budget are listed above and decided by the analytic model; text is generated in any case.
show "$tilewright" tune "$model" --budget 20s "${where[@]}" || echo "(tuning is incomplete)"
show "$tilewright" run "$model" -p "$prompt" -n 64 "${where[@]}"
show "$tilewright" bench model "$model" -p 512 -n 64 "${where[@]}"
