#!/usr/bin/env bash
# Demonstrates the whole path with one model: tune for this machine, generate text, print the chosen kernels and the speed.
# Usage: tools/demo.sh TILEWRIGHT MODEL PROMPT
set -euo pipefail
tilewright=$1 model=$2 prompt=$3
show() { echo; printf '$'; printf ' %q' "$@"; echo; "$@"; }

# Problems that could not be timed in the budget are listed above and decided by the analytic model; text is generated in any case.
show "$tilewright" tune "$model" --budget 20s || echo "(tuning is incomplete)"
show "$tilewright" run "$model" -p "$prompt" -n 64
show "$tilewright" bench model "$model" -p 512 -n 64
