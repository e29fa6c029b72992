#!/usr/bin/env bash
# What slices take against what was asked, and what that costs a program that draws: `pumice bench
# --frame-impact` with the bundled model and one of 0.1 B parameters, on each driver, into the ledger
# (bench/results). On a machine that does nothing else.
#
#   bench/frame_budgets.sh [-b BUILD] [-s SECONDS] [-o FOLDER] [DRIVER…]
#
# BUILD: build/release; SECONDS for each budget: 20; FOLDER: bench/results; drivers as
# tests/matrix/run_on.sh names them: lavapipe-25 lavapipe-26.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release
seconds=20
folder=bench/results
while getopts b:s:o: option; do
  case $option in
    b) build=$OPTARG ;;
    s) seconds=$OPTARG ;;
    o) folder=$OPTARG ;;
    *) sed -n '6,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
drivers=("$@")
[[ ${#drivers[@]} -gt 0 ]] || drivers=(lavapipe-25 lavapipe-26)

measure() {
  local driver=$1 name=$2
  shift 2
  local file
  file=$folder/$driver-$(date +%F)-frames-$name.md
  local command=(pumice bench "$@" --frame-impact --frame-seconds "$seconds")
  echo "$file" >&2
  {
    printf '%s, %s\n\n' "\`${command[*]}\`" "$driver"
    tests/matrix/run_on.sh "$driver" "$build/tools/${command[0]}" "${command[@]:1}"
  } > "$file.part"
  mv "$file.part" "$file"
}

for driver in "${drivers[@]}"; do
  measure "$driver" stories -m models/pumice-stories.gguf
  measure "$driver" small --synthetic small-0.1b:q4_k
done
