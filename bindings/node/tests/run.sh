#!/usr/bin/env bash
# The package for Node.js on the built library (PUMICE_LIBRARY): its tests, and the README's program.
#
#   bindings/node/tests/run.sh FOLDER     koffi is installed there, once, in the exact version of the lock file
#
# Exit 77, with the reason as the last line, where Node.js, npm, its registry or a Vulkan device is not to be had.
set -euo pipefail
folder=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
node=$root/bindings/node

python3 -B "$root/tools/bindings.py" --check
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "no Node.js with npm here"
  exit 77
fi
if [[ $(node -p 'process.versions.node.split(".")[0] >= 20') != true ]]; then
  echo "Node.js $(node --version) is here, and 20 is needed"
  exit 77
fi
mkdir -p "$folder"
cp "$node"/*.mjs "$node"/package*.json "$node/tests/pumice.test.mjs" "$folder"
if ! cmp -s "$folder/package-lock.json" "$folder/installed"; then
  if ! timeout 300 npm --prefix "$folder" ci --no-audit --no-fund --ignore-scripts >"$folder/npm.log" 2>&1; then
    grep -E 'npm (ERR|error)' "$folder/npm.log" | head -n 5
    grep -qE 'EINTEGRITY|EUSAGE|ETARGET' "$folder/npm.log" && exit 1
    echo "npm's registry can't be reached ($folder/npm.log)"
    exit 77
  fi
  cp "$folder/package-lock.json" "$folder/installed"
fi

cd "$folder"
"$root/bindings/tests/readme.sh" "$folder" "$node/README.md" js mjs
export PUMICE_MODEL=$root/models/pumice-stories.gguf PUMICE_ADAPTER=$PWD/pirate.gguf
reason=$(node --input-type=module -e 'import { Device } from "pumice";
  try { new Device().close(); } catch (error) { if (error.status !== "no_device") throw error; console.log(error.message); }')
if [[ -n $reason ]]; then
  echo "no usable Vulkan device: $reason"
  exit 77
fi
node --test --test-reporter=spec pumice.test.mjs

for program in program1 program2; do
  node $program.mjs | tee $program.output
done
grep -qxE 'yes|no' program1.output
grep -q 'generatedTokens: 10' program1.output
tail -n 1 program2.output | grep -q 'there was'
