#!/usr/bin/env bash
# Shows the whole path on one model: tune for this machine, generate text, say what was picked and how fast it is.
# Usage: tools/demo.sh TILEWRIGHT MODEL PROMPT
set -euo pipefail
tilewright=$1 model=$2 prompt=$3
show() { echo; printf '$'; printf ' %q' "$@"; echo; "$@"; }

# What could not be timed in the budget is told above and left to the model's own choice: text comes out all the same.
show "$tilewright" tune "$model" --budget 20s || echo "(tuning is incomplete)"
show "$tilewright" run "$model" -p "$prompt" -n 64
show "$tilewright" bench model "$model" -p 512 -n 64
