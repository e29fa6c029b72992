#!/usr/bin/env bash
# The programs of a README, each block of code one, and what they read: the repository's models, and an adapter.
#
#   bindings/tests/readme.sh FOLDER README.md LANGUAGE EXTENSION     writes FOLDER/program1.EXTENSION, …
set -euo pipefail
folder=$1 readme=$2 language=$3 extension=$4
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

awk -v begin="\`\`\`$language" -v name="$folder/program" -v extension="$extension" '
  $0 == begin { inside = 1; ++n; file = name n "." extension; printf "" > file; next }
  /^```$/ { inside = 0 }
  inside { print > file }' "$readme"
ln -sfn "$root/models" "$folder/models"
python3 -B "$root/bindings/tests/adapter.py" "$folder/pirate.gguf"
