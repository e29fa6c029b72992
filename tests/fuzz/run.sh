#!/usr/bin/env bash
# Builds the fuzzers and runs each for a while from its corpus, two at a time.
#
#   tests/fuzz/run.sh [SECONDS] [NAME…]      60 seconds each, half of it for command_line: gguf tokenizer template
#                                            jinja serve answers api command_line
#   tests/fuzz/run.sh --repeatable [NAME…]   a number of inputs from a fixed seed: of one build the same inputs each
#                                            time, so that the gate's verdict is the change's (the api's have threads,
#                                            and so differ)
#
# A finding is an input that crashes, breaks a promise, leaks, or takes over ten seconds or too much
# memory. It is kept in build/asan/findings; `build/asan/tests/fuzz/fuzz_NAME FILE` shows it again. New inputs are not
# kept: the corpus in the tree stays small. Exit 77 where there is no clang with libFuzzer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

limit=${1:-60}
shift || true
names=("$@")
[[ $limit == --repeatable || $limit =~ ^[1-9][0-9]*$ ]] || {
  echo "$0: the first argument must be a number of seconds or --repeatable, not '$limit'" >&2
  exit 2
}
[[ $# -gt 0 ]] || names=(gguf tokenizer template jinja serve answers api command_line)
shared=${PUMICE_SHARED_DIR:-../shared}

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$probe/probe.cpp"
if ! clang++ -fsanitize=fuzzer,address,undefined "$probe/probe.cpp" -o "$probe/probe" 2>"$probe/log"; then
  echo "no clang++ with libFuzzer here (apt install clang libclang-rt-dev)"
  exit 77
fi

[[ -e build/asan/build.ninja ]] || cmake --preset asan
cmake --build build/asan --target "${names[@]/#/fuzz_}"

# What each reads in about 40 seconds on one core of the gate.
declare -A n_inputs=([gguf]=200000 [tokenizer]=200000 [template]=120000 [jinja]=20000 [serve]=100000 [answers]=80000
  [api]=10000 [command_line]=1000000)

fuzz() { # NAME
  local name=$1 work status=0 length
  if [[ $limit == --repeatable ]]; then
    length=(-seed=1 -reload=0 -runs="${n_inputs[$name]}")
  else  # The quick one finds in half the time what it finds.
    length=(-max_total_time="$([[ $name == command_line ]] && echo $(((limit + 1) / 2)) || echo "$limit")")
  fi
  work=$(mktemp -d "$probe/$name.XXXX")
  local arguments=("$work")
  [[ ! -d tests/fuzz/corpus/$name ]] || arguments+=("tests/fuzz/corpus/$name")
  if [[ $name == gguf && -d $shared/gguf-malformed ]]; then
    mkdir "$work.more"
    find "$shared/gguf-malformed" -name '*.gguf' -size -64k -exec cp -t "$work.more" {} +
    arguments+=("$work.more" "-dict=$shared/gguf-malformed/gguf.dict")
  fi
  local on=()  # the C ABI's has a device, and drivers keep what they allocate once
  if [[ $name == api ]]; then
    on=(tests/matrix/run_on.sh lavapipe-25)
    arguments+=(-detect_leaks=0)  # after each input; they are looked for at its exit
    export LSAN_OPTIONS=suppressions=$PWD/tests/matrix/lsan.supp:print_suppressions=0
  fi
  mkdir -p build/asan/findings
  ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 "${on[@]}" \
    "build/asan/tests/fuzz/fuzz_$name" "${arguments[@]}" "${length[@]}" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=128 -print_final_stats=1 \
    -artifact_prefix="build/asan/findings/$name-" >"$work.log" 2>&1 || status=$?
  if [[ $status -ne 0 ]]; then
    tail -n 60 "$work.log"
    echo "fuzz: $name: FINDING (exit $status), kept in build/asan/findings"
    return 1
  fi
  echo "fuzz: $name: $(awk '/number_of_executed_units/ {n = $2} /average_exec/ {r = $2}
    /peak_rss/ {m = $2} END {print n " inputs, " r "/s, " m " MiB at most"}' "$work.log")"
}

failed=0
running=0
for name in "${names[@]}"; do
  if [[ $running -ge 2 ]]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz "$name" &
  running=$((running + 1))
done
while [[ $running -gt 0 ]]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
