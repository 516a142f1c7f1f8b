#!/usr/bin/env bash
# Installs with apt-get what this project needs and this machine lacks; prints nothing and takes no time if nothing is missing.
# Usage: tools/install_deps.sh [build] [model] [check]     (default: build)
#   build  compiler, CMake and the libraries      model  pip, which fetches the demonstration model
#   check  clang, clang-format and clang-tidy, for make check, make fmt and make fuzz
# "a|b": the first of several names that this distribution has. A name that ends in ? is optional.
set -euo pipefail

build_packages=(
  g++ make cmake ninja-build pkg-config git python3 ca-certificates 'ccache?'
  libexpected-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libcli11-dev libsqlite3-dev libssl-dev libpcre2-dev
  'libdnnl-dev|libonednn-dev?' libgtest-dev 'libgmock-dev|libgtest-dev' libbenchmark-dev)
model_packages=(python3-pip)
check_packages=(clang 'clang-format-14|clang-format' clang-tidy 'libclang-rt-CLANG-dev?' 'libomp-CLANG-dev?')

wanted=()
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build_packages[@]}") ;;
    model) wanted+=("${model_packages[@]}") ;;
    check) wanted+=("${check_packages[@]}") ;;
    *) echo "install_deps.sh: unknown group '$group' (build, model, check)" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_deps.sh: apt-get not found; install by hand what is missing of: ${wanted[*]//\?/}" >&2
  exit 0
fi

# Prints the requested entries of which no alternative is installed.
missing_entries() {
  local installed entry names name found
  installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | tr '\n' ' ')"
  for entry in "${wanted[@]}"; do
    names=${entry%\?}
    found=
    for name in ${names//|/ }; do
      case "$name" in *CLANG*) [[ $installed =~ \ ${name/CLANG/[0-9]+}\  ]] && found=1 ;; esac
      [[ $installed == *" $name "* ]] && found=1
    done
    # pip may belong to a Python that is not the distribution's.
    [[ $names == python3-pip ]] && python3 -m pip --version >/dev/null 2>&1 && found=1
    [[ $found ]] || printf '%s\n' "$entry"
  done
}

available() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }

# Sets `packages` to what to install for the given entries; fails if the distribution has no package for a required one.
resolve() {
  local entry names name chosen clang
  packages=()
  unknown=()
  for entry in "$@"; do
    names=${entry%\?}
    if [[ $names == *CLANG* ]]; then
      clang=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\).*/\1/p' | head -n 1)
      names=${names/CLANG/$clang}
    fi
    chosen=
    for name in ${names//|/ }; do
      if available "$name"; then chosen=$name; break; fi
    done
    if [[ $chosen ]]; then
      packages+=("$chosen")
    elif [[ $entry != *\? ]]; then
      unknown+=("$names")
    fi
  done
  [[ ${#unknown[@]} -eq 0 ]]
}

mapfile -t missing < <(missing_entries)
[[ ${#missing[@]} -eq 0 ]] && exit 0
required=()
for entry in "${missing[@]}"; do [[ $entry == *\? ]] || required+=("$entry"); done

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  if command -v sudo >/dev/null; then
    as_root=(sudo)
  elif [[ ${#required[@]} -eq 0 ]]; then
    exit 0
  else
    echo "install_deps.sh: these packages are missing, and installing them requires root or sudo:" >&2
    printf '  %s\n' "${required[@]}" >&2
    exit 1
  fi
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Prints nothing on success, and the command's whole output on failure.
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2; return 1; }; }

updated=
update() {
  [[ $updated ]] && return 0
  echo "-- apt-get update"
  quietly apt update || return 1
  updated=1
}
if ! resolve "${missing[@]}"; then
  update
  if ! resolve "${missing[@]}"; then
    echo "install_deps.sh: this distribution has no package for: ${unknown[*]}" >&2
    exit 1
  fi
fi
[[ ${#packages[@]} -eq 0 ]] && exit 0
echo "-- installing ${packages[*]}"
if ! apt install --no-install-recommends "${packages[@]}" >"$log" 2>&1; then
  # Outdated package lists name files that the mirror no longer has.
  update || { cat "$log" >&2; exit 1; }
  resolve "${missing[@]}" || true
  quietly apt install --no-install-recommends "${packages[@]}"
fi
