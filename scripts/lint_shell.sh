#!/usr/bin/env bash
# Check every shell script of the repository with shellcheck.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/source_files.sh

if ! command -v shellcheck >/dev/null; then
  echo "lint_shell: needs shellcheck" >&2
  exit 77
fi
source_files '*.sh' .ci/run tools/gpu-check | xargs -d '\n' shellcheck -x -P SCRIPTDIR -P .
