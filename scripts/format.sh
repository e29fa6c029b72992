#!/usr/bin/env bash
# Format the C++ of the repository in place, or with --check name what is not formatted (exit 1).
# Versions of clang-format disagree, so only 14 (Debian 12's and Ubuntu's clang-format-14) counts:
# without it the exit code is 77.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/source_files.sh

formatter=
for candidate in clang-format-14 clang-format; do
  if [[ $("$candidate" --version 2>/dev/null) == *"version 14."* ]]; then
    formatter=$candidate
    break
  fi
done
if [[ -z $formatter ]]; then
  echo "format: needs clang-format 14" >&2
  exit 77
fi

options=(-i)
[[ ${1:-} != --check ]] || options=(--dry-run -Werror)
source_files '*.cpp' '*.hpp' '*.c' '*.h' | xargs -d '\n' -r "$formatter" --style=file "${options[@]}"
