#!/usr/bin/env bash
# Fetches with pip the NVRTC libraries that the tests need: 13.5.37 always (the "other" compiler), 13.0.88 if the machine has
# no CUDA toolkit with one. Usage: tools/get_nvrtc.sh [FOLDER]     (default: build/nvrtc; FOLDER/VERSION/libnvrtc.so.13)
# TILEWRIGHT_IGNORE_TOOLKIT=1 fetches both whatever is installed. Prints nothing if everything is there. If a version is not available,
# tests that need it are skipped: prints a warning, writes the reason to FOLDER/missing, and exits with 75 if the package index
# cannot be reached, or 1 if it can but the download is broken (which fails CI).
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/nvrtc}
status=0
scratches=()
trap 'rm -rf "${scratches[@]}"' EXIT

# Whether the tests have a toolkit's compiler: as cmake/TilewrightNvrtc.cmake decided when the build folder was configured,
# else as it would decide now.
has_toolkit() {
  [[ ${TILEWRIGHT_IGNORE_TOOLKIT:-} ]] && return 1
  local chosen place
  chosen=$(sed -n 's/^TILEWRIGHT_TEST_NVRTC:[A-Z]*=//p' "$folder/../CMakeCache.txt" 2>/dev/null || true)
  if [[ $chosen ]]; then
    [[ $chosen != */13.0.88/libnvrtc.so.13 && -e $chosen ]]
    return
  fi
  for place in "${CUDA_HOME:-}/lib64" "${CUDA_PATH:-}/lib64" /usr/local/cuda/lib64; do
    [[ -e $place/libnvrtc.so.13 || -e $place/libnvrtc.so.12 ]] && return 0
  done
  return 1
}

# A version is present if both of its libraries are; they are put in place together, by one rename.
there() { compgen -G "$folder/$1/libnvrtc.so.*" >/dev/null && compgen -G "$folder/$1/libnvrtc-builtins.so.*" >/dev/null; }

# warn TEXT STATUS: keeps the worst status.
warn() {
  echo "warning: no NVRTC $1. Tests that need it are skipped." >&2
  mkdir -p "$folder"
  echo "no NVRTC $1" >> "$folder/missing"
  [[ $status -eq 1 ]] || status=$2
}

# Whether the package index answers at all, with the address and proxy that pip would use.
index_answers() {
  python3 - <<'PY'
import os, subprocess, sys, urllib.request
configured = subprocess.run([sys.executable, '-m', 'pip', 'config', 'get', 'global.index-url'], capture_output=True, text=True)
index = os.environ.get('PIP_INDEX_URL') or configured.stdout.strip() or 'https://pypi.org/simple'
try:
    urllib.request.urlopen(index.rstrip('/') + '/nvidia-cuda-nvrtc/', timeout=30).close()
except Exception:
    sys.exit(1)
PY
}

# fetch VERSION MEGABYTES
fetch() {
  local version=$1 package=nvidia-cuda-nvrtc==$1 scratch attempt progress=off
  there "$version" && return 0
  if ! python3 -m pip --version >/dev/null 2>&1; then
    tools/install_deps.sh model || { warn "$version: pip is missing and could not be installed" 75; return; }
  fi
  mkdir -p "$folder"
  scratch=$(mktemp -d "$folder/download.XXXXXX")
  scratches+=("$scratch")
  echo "-- fetching NVRTC $version ($2 MB, Python package ${package%%=*})"
  [[ -t 1 ]] && progress=on
  for attempt in 1 2 3; do
    # pip download needs no virtual environment and changes none.
    if python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check --no-cache-dir \
        --retries 2 --timeout 60 --progress-bar "$progress" --dest "$scratch" "$package" 2>"$scratch/log"; then
      break
    fi
    if [[ $attempt -eq 3 ]]; then
      tail -n 3 "$scratch/log" >&2
      if index_answers; then
        warn "$version: pip could not download $package, though the package index answers" 1
      else
        warn "$version: the package index does not answer" 75
      fi
      return
    fi
    sleep $((attempt * 3))
  done
  python3 - "$scratch" <<'PY' || { warn "$version: the package holds no libraries" 1; return; }
import pathlib, re, shutil, sys, zipfile
scratch = pathlib.Path(sys.argv[1])
libraries = scratch / 'libraries'
libraries.mkdir()
with zipfile.ZipFile(next(scratch.glob('*.whl'))) as wheel:
    for member in wheel.namelist():
        name = member.rsplit('/', 1)[-1]
        if '/lib/' in member and re.fullmatch(r'libnvrtc(-builtins)?\.so\.[0-9.]+', name):
            with wheel.open(member) as source, open(libraries / name, 'wb') as target:
                shutil.copyfileobj(source, target, 1 << 20)
sys.exit(0 if len(list(libraries.iterdir())) == 2 else 1)
PY
  chmod 755 "$scratch/libraries"
  # Another process may have been first; its copy is equally good.
  mv -T "$scratch/libraries" "$folder/$version" 2>/dev/null || there "$version" || { warn "$version: $folder/$version is in the way" 1; return; }
  rm -rf "$scratch"
}

rm -f "$folder/missing"
has_toolkit || fetch 13.0.88 56
fetch 13.5.37 57
exit $status
