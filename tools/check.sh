#!/usr/bin/env bash
# Checks format, layers and clang-tidy of the files that changed since the last commit but one or, with --all, of all files.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/changed_files.sh "$@"
failed=0

if ! clang_format=$(tools/fmt.sh --which); then
  echo "-- format: skipped, since clang-format 14 is missing and other versions format differently"
else
  echo "-- format: ${#sources[@]} files"
  unformatted=$([[ ${#sources[@]} -eq 0 ]] || "$clang_format" --dry-run "${sources[@]}" 2>&1 \
    | sed -n 's/^\([^:]*\):[0-9]*:.*clang-format-violations.*/\1/p' | sort -u)
  if [[ $unformatted ]]; then
    printf 'not formatted (make fmt%s fixes it):\n%s\n' "${1:+ ALL=1}" "$unformatted"
    failed=1
  fi
fi

echo "-- layers"
python3 -B tools/check_layers.py || failed=1

# Only where a build is at hand: it takes minutes from nothing. A test compares the tables too.
if [[ -x build/tools/docs/document_tables ]]; then
  echo "-- tables of docs/formats.md and README.md"
  { cmake --build build --target document_tables >/dev/null && build/tools/docs/document_tables --check .; } || failed=1
else
  echo "-- tables of docs/formats.md and README.md: skipped, since build/ has no document_tables (make tables)"
fi

units=()
for file in "${sources[@]}"; do
  # Not the tests: half of the time would be spent in GoogleTest's headers, and the compiler's warnings cover them too.
  [[ $file == *.cc && $file != *_test.cc && $file != tests/* ]] && units+=("$file")
done
if [[ ${#units[@]} -gt 0 ]]; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  cmake --preset tidy >"$log" 2>&1 || { cat "$log"; exit 1; }
  python3 -B tools/tidy.py build-tidy "${units[@]}" || failed=1
fi
exit $failed
