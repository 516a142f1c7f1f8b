#!/usr/bin/env bash
# Records everything that this machine can tell about the small model, about 4 minutes when quiet.
# Usage: bench/record/record_all.sh [BUILD [MODEL [LLAMA]]]
#   BUILD   build folder with cli/tilewright and bench/ (default: build)
#   MODEL   GGUF file (default: BUILD/models/SmolLM2-135M-Instruct.Q4_1.gguf)
#   LLAMA   folder of tools/baseline/build_llama_cpp.sh (default: $TILEWRIGHT_LLAMA_DIR, else BUILD/llama);
#           where there is none, the model is not recorded beside llama.cpp
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
model=${2:-$build/models/SmolLM2-135M-Instruct.Q4_1.gguf}
llama=${3:-${TILEWRIGHT_LLAMA_DIR:-$build/llama}}
tilewright=$build/cli/tilewright

python3 bench/record/record_startup.py --tilewright "$tilewright" --model "$model"
if [[ -x $llama/bin/llama-bench ]]; then
  builds=(--llama "$llama")
  # OpenMP threads that spin after their work take cores from OpenBLAS, which has threads of its own.
  if grep -q 'GGML_BLAS=ON' "$llama/build_info.txt"; then builds+=(--llama "$llama,KMP_BLOCKTIME=0"); fi
  python3 bench/record/record_model.py --tilewright "$tilewright" --model "$model" "${builds[@]}"
else
  echo "warning: no llama.cpp in $llama (tools/baseline/build_llama_cpp.sh builds it): the model is not recorded" >&2
  "$tilewright" bench model "$model" -p 512 -n 128
fi
python3 bench/record/record_gemm.py --tilewright "$tilewright"
