#!/usr/bin/env bash
# Records every number of the README that this machine can give: the small model beside llama.cpp, startup,
# GEMM, single operations, records and the artifact store; with a GPU also whole models there, single operations beside cuBLASLt, many sequences, the
# timeline of a token, and every CUDA kernel. About 25 minutes when quiet, and as many more with a GPU.
# Usage: bench/record/record_all.sh [BUILD [MODEL [LLAMA...]]]
#   BUILD   build folder with cli/tilewright and bench/ (default: the repository's build/)
#   MODEL   GGUF file (default: BUILD/models/SmolLM2-135M-Instruct.Q4_1.gguf)
#   LLAMA   builds of tools/baseline/build_llama_cpp.sh, the fastest of which counts (default:
#           $TILEWRIGHT_LLAMA_DIR, else BUILD/llama); without one the model is not recorded
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/../../build}
model=${2:-$build/models/SmolLM2-135M-Instruct.Q4_1.gguf}
shift $(($# < 2 ? $# : 2))
(($#)) || set -- "${TILEWRIGHT_LLAMA_DIR:-$build/llama}"
tilewright=$build/cli/tilewright

python3 "$here"/record_startup.py --tilewright "$tilewright" --model "$model"
builds=()
for llama; do
  if [[ ! -x $llama/bin/llama-bench ]]; then
    echo "warning: no llama.cpp in $llama; tools/baseline/build_llama_cpp.sh builds it" >&2
    continue
  fi
  builds+=(--llama "$llama")
  # OpenMP threads that spin after their work take cores from OpenBLAS, which has threads of its own.
  if grep -q GGML_OPENMP=ON "$llama/build_info.txt" && grep -q GGML_BLAS=ON "$llama/build_info.txt"; then
    builds+=(--llama "$llama,KMP_BLOCKTIME=0")
  fi
done
if ((${#builds[@]})); then
  python3 "$here"/record_model.py --tilewright "$tilewright" --model "$model" "${builds[@]}"
else
  "$tilewright" bench model "$model" -p 512 -n 128
fi
python3 "$here"/record_gemm.py --tilewright "$tilewright"
python3 "$here"/record_cpu_ops.py --tilewright "$tilewright" --amx-bench "$build/bench/gemm_amx_bench"
python3 "$here"/record_records.py --tilewright now="$tilewright" --model "$model"
if [[ -x $build/bench/artifact/artifact_bench ]]; then
  python3 "$here"/record_artifact.py --tilewright "$tilewright" --bench "$build/bench/artifact/artifact_bench"
fi
if command -v nvidia-smi >/dev/null; then
  python3 "$here"/record_gpu_model.py --tilewright "$tilewright" --providers own
  python3 "$here"/record_gpu_ops.py --tilewright "$tilewright"
  python3 "$here"/record_gpu_serving.py --tilewright "$tilewright"
  python3 "$here"/record_timeline.py --tilewright "$tilewright"
  "$here"/../gpu/record.sh "$build"
else
  echo "no GPU here: bench/results/gpu_* and timeline_* stay as they are" >&2
fi
# What both devices are held to, from the recordings that are there.
python3 "$here"/cpu_table.py >/dev/null
python3 "$here"/gpu_table.py >/dev/null
