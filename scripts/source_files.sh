# Sourced by the scripts beside it.
# shellcheck shell=bash

# source_files PATTERN…: the repository's files, tracked or new, of these git patterns, one a line.
source_files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
    [[ ! -e $file ]] || printf '%s\n' "$file"
  done
}
