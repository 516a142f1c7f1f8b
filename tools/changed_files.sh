# Sourced: sets `sources` to the C++ and CUDA files to check. --all: every tracked or new one; otherwise those that differ from the
# last commit but one.
list() { git ls-files --cached --others --exclude-standard -- "$@"; }
patterns=('include/*.h' '*.cc' '*.h' '*.cu' '*.cuh')
if [[ ${1:-} == --all ]] || ! git rev-parse -q --verify HEAD~1 >/dev/null; then
  mapfile -t sources < <(list "${patterns[@]}" | sort -u)
else
  mapfile -t sources < <({ git diff --name-only --diff-filter=d HEAD~1 -- "${patterns[@]}"
    git ls-files --others --exclude-standard -- "${patterns[@]}"; } | sort -u)
fi
present=()
for file in "${sources[@]}"; do [[ -f $file ]] && present+=("$file"); done
sources=("${present[@]}")
