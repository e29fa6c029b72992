#!/usr/bin/env bash
# The long checks, one row each: other drivers, sanitizers, validation layers, linters, slow tests.
#
#   tests/matrix/run.sh              every row of the default set
#   tests/matrix/run.sh ROW…         only these
#   tests/matrix/run.sh --list       the rows, and which are in the default set
#
# Of the default set, the long rows are skipped where the files they test are those that they passed on last
# (tests/matrix/passed, which a run by name writes): run them by name before a change lands, or it waits for them.
#
# Each row's output goes to build/matrix/ROW.log. A row ends as PASS, FAIL (its output is shown) or
# SKIPPED with the reason; a row that finds no test to run is SKIPPED, never PASS. Exit 1 after a FAIL.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

default_rows=(format shell gpu-lavapipe-22 gpu-lavapipe-26 gpu-swiftshader floor withdrawn
  subgroup-16 validation matrix-cores compile asan fuzz clients slow)
# validation runs on lavapipe-25 what gpu-lavapipe-25 runs, and more.
other_rows=(gpu-lavapipe-25 mutations subgroup-4 validation-26 compile-more tidy tidy-tests tsan windows arm64)
jobs=$(nproc)
logs=build/matrix
# shellcheck source=tests/matrix/drivers.sh
. tests/matrix/drivers.sh
on=tests/matrix/run_on.sh
# Operations with weights of types that files have seldom (GoogleTest), and a test that compiles gemv for every type.
rare_types='*_IQ*:*_MXFP4_*:*_TQ*:*_Q2_K*:*_Q3_K*:*_Q4_0_*:*_Q4_1_*:*_Q5_*:*_BF16_*'
every_type='GemvRows.*EveryType'
# Tiles of pairs with such: gemm, whose kernels they are, runs with all types.
rare_pairs=${rare_types//\*_/*expert_gemm_}
# Products with such on matrix units, but for one size and tile: how these are cut is the same of all types.
rare_sizes=
for part in rows_1_ rows_3_ rows_9_ tile_1_; do rare_sizes+=:${rare_types//\*:/*$part*:}$part\*; done
# ctest's arguments: what depends on the driver.
on_a_driver=(-L 'gpu|model' -LE 'unit|slow|matrix|once')

# How tests, layers, sanitizers and compilers say what is wrong; for a row that fails, before its last lines.
failure=': Failure$|^(FAIL|ERROR|FAILED):|VUID-|SYNC-HAZARD|Sanitizer|runtime error:| error: '

# A row exits 77 to say that it was skipped; the last line of its output is the reason.
skip() { echo "$*"; exit 77; }

# The files that a row tests, of those that run only when these have changed.
inputs_of() { # ROW
  case $1 in
    subgroup-16) echo shaders runtime/vk/pipeline.cpp runtime/vk/plan.cpp tests/shaders cmake/PumiceShaders.cmake ;;
    compile) echo shaders runtime/vk runtime/models tests/compile_gate tests/matrix/platforms.sh tests/matrix/shims \
      tests/matrix/drivers.sh cmake/PumiceShaders.cmake ;;
    gpu-lavapipe-26 | gpu-swiftshader | floor | withdrawn | validation | matrix-cores | asan | slow)
      # All that is built, and all tests but records and what only rows by name run.
      echo CMakeLists.txt CMakePresets.json cmake third_party models runtime shaders cache scheduler tools bench tests \
        :!bench/results :!tests/matrix/passed :!tests/mutations :!tests/clients :!tests/fuzz \
        :!tests/matrix/{arm64.sh,arm64_test.py,other_system.py,own_device.c,windows_test.py,wine.sh} ;;
  esac
}
passed=tests/matrix/passed

# A digest of them as committed; nothing where that is not known.
state_of() { # ROW
  local inputs
  read -ra inputs < <(inputs_of "$1") || return 0
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || return 0
  [[ -z $(git status --porcelain -- "${inputs[@]}") ]] || return 0
  git ls-files -s -- "${inputs[@]}" | sha256sum | cut -c 1-40
}

build() { # PRESET [TARGET…], by default all
  local preset=$1
  shift
  [[ -e build/$preset/build.ninja ]] || cmake --preset "$preset"
  cmake --build "build/$preset" -j "$jobs" ${1+--target "$@"}
}

# test_on DRIVER PRESET ctest-arguments…
test_on() {
  local driver=$1 preset=$2
  shift 2
  local programs  # a build with sanitizers takes minutes, so only of what the row runs
  [[ -e build/$preset/build.ninja ]] || cmake --preset "$preset"
  mapfile -t programs < <(tests/matrix/programs.py "build/$preset" "$@")
  [[ ${#programs[@]} == 0 ]] || build "$preset" "${programs[@]}"
  if [[ $driver != system ]]; then
    tests/matrix/fetch_drivers.sh "$driver" || exit 77
  fi
  ctest --test-dir "build/$preset" -N "$@" | grep -q 'Total Tests: 0' && skip "no test has: ctest $*"
  "$on" "$driver" ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure "$@"
  # Without a device tests skip themselves, which elsewhere is right and here would prove nothing.
  if grep -m 1 'no usable Vulkan device' "build/$preset/Testing/Temporary/LastTest.log"; then
    return 1
  fi
}

sanitizer_environment() {
  export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1
  export LSAN_OPTIONS=suppressions=$PWD/tests/matrix/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1
}

run_row() {
  case $1 in
    format) scripts/format.sh --check ;;
    shell) scripts/lint_shell.sh ;;
    tidy) build dev && scripts/tidy.py build/dev runtime shaders scheduler cache tools bench ;;
    tidy-tests) build dev && scripts/tidy.py build/dev tests ;;
    slow)
      # What cuts texts in many ways takes a third of the time on the newest driver.
      local -r cuts='^test_(every_cut|families|recurrent)$'
      test_on lavapipe-25 release -L slow -E "$cuts"
      test_on lavapipe-26 release -R "$cuts" ;;
    mutations) test_on system dev -R '^mutations$' ;;
    gpu-swiftshader)
      # Slow: without the tests that cut long texts in many ways (and of drafts), which took two thirds of this row's time; the other
      # drivers run them. Of the tests of windows ShortText stays; of models one of those that have the same operations.
      local -r long='*/Windows.*:*AreTheReferenceAtEveryChunkSize*:*OnAHostsDevice*:*PositionsOfALongPromptNeverRestart*:*LongSequences*'
      local -r mixtures='*_afmoe:*_ernie4_5_moe:*_glm4moe:*_minimax_m2:*_smallthinker'
      local -r states='*_deepseek2:*_glm47_flash:*_mistral4:*_nemotron_h:*_falcon_h1:*_jamba:*_qwen35:*_qwen35moe'
      local -r dense='*_llama_*:*_llama3_rope:*_gemma:*_gemma3:*_granite:*_hunyuan_dense:*_mistral3:*_qwen3vl:*_seed_oss:*_smollm3:*_stablelm'
      local -r embeddings='*/Embeddings.OfTokens*:*/Embeddings.*HalfPrecision*:*/Embeddings.Invariant*'
      # What is done of few rows of one model of each activation; no driver of a CPU does it unless told.
      local -r few_rows='*/FewRows.*_gemma*:*/FewRows.*_qwen*:*/FewRows.*_phi3:*/FewRows.*_granite'
      export GTEST_FILTER="-$long:$mixtures:$states:$dense:$embeddings:$few_rows:$rare_pairs:*/Reference.LogitsAgreeWithF16Kv*:*/Reference.Greedy*/quants_*"
      test_on swiftshader release "${on_a_driver[@]}" -E '^test_(reuse|drafts)$' ;;
    gpu-lavapipe-22)
      [[ $(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null) != 22.3.* ]] ||
        skip "it is this machine's own driver, on which make test runs more"
      test_on lavapipe-22 release "${on_a_driver[@]}" ;;
    gpu-lavapipe-26)
      # Row floor runs the same on this driver with all types.
      GTEST_FILTER="-$rare_types:$every_type" test_on lavapipe-26 release "${on_a_driver[@]}" ;;
    gpu-*) test_on "${1#gpu-}" release "${on_a_driver[@]}" ;;
    floor) PUMICE_LIMIT=floor test_on lavapipe-26 release "${on_a_driver[@]}" ;;
    withdrawn)
      # This driver has the most to withdraw, and its layers know all that a shader may not use then.
      PUMICE_VALIDATION=1 test_on lavapipe-26 release -R '^test_withdrawal$' ;;
    subgroup-4 | subgroup-16)
      # lavapipe's subgroups are as wide as its vectors. Newer ones crash at 512 bits. A cache of its own
      # for each width, so that no code of another is loaded.
      export LP_NATIVE_VECTOR_WIDTH=$((32 * ${1#subgroup-})) MESA_SHADER_CACHE_DIR=$PWD/$logs/shaders-$1
      # Without what does not ask how wide a subgroup is (`portable`), and without tables of 16 and more values, whose
      # every read this driver makes 16 reads: one such pipeline takes it up to 90 s at 512 bits, and all types half an hour.
      export GTEST_FILTER="-*_portable*:*expert_gemm*:GemvSplit.*:$every_type:$rare_types"
      # A processor that has no vectors so wide: minutes for a pipeline that unpacks weights, in which a submission that
      # waits for it counts as lost. The other ops still run at this width.
      if [[ $1 == subgroup-16 ]] && ! grep -qw avx512f /proc/cpuinfo; then
        echo 'this processor lacks AVX-512: operations on packed weights are left out'
        GTEST_FILTER+=':*_Q*:GemvRows.HaveThem*:LinearChoice.UsesGemv*'
      fi
      test_on lavapipe-25 release -R '^test_(ops(_2)?|attention_invariance|stories)$' ;;
    validation)
      # The layers see most on the newest driver that runs on this machine's own loader.
      # Without what does often what others do: measures, every pair of KV types.
      # Operations with weights of the types that files have most: what the layers see is the same of all.
      PUMICE_VALIDATION=1 test_on lavapipe-25 release -L 'gpu|model' -LE 'slow|matrix' \
        -E '^(cli_bench(_levers|_explain|_layers)?|test_(bench|kv_types|ops(_2)?))$'
      GTEST_FILTER="-$rare_types:$every_type" PUMICE_VALIDATION=1 test_on lavapipe-25 release -R '^test_ops(_2)?$'
      # A host's own device with the newest layers too.
      PUMICE_VALIDATION=1 test_on lavapipe-26 release -R '^test_api_vulkan$' ;;
    validation-26)
      PUMICE_VALIDATION=1 test_on lavapipe-26 release -L 'gpu|model' -LE 'slow|matrix' ;;
    matrix-cores)
      # Debian 12's glslc leaves out what the newer driver can run and the newer layers can check.
      tests/matrix/build_all_shaders.sh pumice_shaders
      tests/matrix/fetch_drivers.sh lavapipe-26 || exit 77
      export PUMICE_VALIDATION=1
      test_on lavapipe-26 matrix-cores -R '^(test_(variants|invariance|reuse|windows|engine)|spirv_val)$'
      # Of these, what is done with the matrices; the rest is other rows'.
      GTEST_FILTER="*matrix*:*OnMatrixCores*:*ActivationsOf8Bits*:*InF16*-$rare_pairs$rare_sizes" \
        test_on lavapipe-26 matrix-cores -R '^test_(ops(_2)?|reference|few_rows)$' ;;
    compile | compile-more)
      tests/matrix/build_all_shaders.sh pipeline_statistics
      local platforms=() hot_loops=0
      # Of all platforms that they are counted of.
      [[ $1 == compile-more ]] || tests/compile_gate/hot_loops --check || hot_loops=$?
      [[ $1 == compile ]] || platforms=(--platform amd-{vega10,navi21,gfx1201} intel-bmg apple-13g)
      tests/compile_gate/compile_gate.py build/matrix-cores/tests/compile_gate/pipeline_statistics "${platforms[@]}"
      return "$hot_loops" ;;
    asan)
      sanitizer_environment
      # Without pure arithmetic at length: the reference of most families and of long sequences, splits of every
      # matrix, a simulated day. Without what is Python's: checks of the tree, pages, other programs' reports.
      # Of schemas and masks what thousands of states repeat; of hostile texts what is about time, as fuzzers have more of them.
      local -r states='JsonSchema.SharedSchemas*:Matcher.MasksOfRandomGrammars*'
      local -r times='HostileTemplate.EndsInSeconds*:Bpe.HostileTexts*:ChatFormatTest.TheLeastIsForgotten*'
      GTEST_FILTER="-*LongSequences*:Families/Reference.*:GemvSplits.*:$states:$times" test_on lavapipe-25 asan -L unit \
        -E '^(cli_(sim|report|peers|usage)|api_abi|structure.*|spirv_val|mutation_lists|(compile_gate|hot_loops)_rules)$'
      GTEST_FILTER='Families/Reference.LogitsAgree*/*_gemma4:*/*_gpt_oss:*/*_deepseek2:*/*_qwen35moe:*/*_falcon_h1-*Long*' \
        test_on lavapipe-25 asan -R '^test_models_reference$'
      # On a device, the two tests that take every path of the engine; the rest would say it again.
      test_on lavapipe-25 asan -R '^test_(reuse|invariance)$' ;;
    fuzz) tests/fuzz/run.sh --repeatable ;;
    clients)
      build release pumice
      tests/clients/run.sh ;;
    tsan)
      sanitizer_environment
      # What has threads of its own; the rest would run ten times slower to say nothing.
      test_on system tsan -R '^test_(base|unfinished_files|weights|hub|terminal|api_misuse)$'
      # A compiled constraint that many share; masks made while the device works.
      GTEST_FILTER='Matcher.ManyThreads*' test_on system tsan -R '^test_constraints$'
      GTEST_FILTER='*Batch*:*Preempt*' test_on system tsan -R '^test_constrained$'
      # What threads share: a device and its pipelines, by themselves and under two engines.
      test_on system tsan -R '^test_(pipelines|sharing)$'
      # Of the C ABI, who submits and cancels while another polls, and saves and restores meanwhile.
      GTEST_FILTER='Engines.*' test_on system tsan -R '^test_api$'
      # Connections, the host and the device of a server, of one model and of several.
      test_on system tsan -R '^cli_serve(_models)?$' ;;
    windows)
      tests/matrix/wine.sh --fetch 2>&1 || exit
      tests/matrix/fetch_drivers.sh lavapipe-25 || exit 77
      local targets
      read -ra targets < <(tests/matrix/windows_test.py --targets)
      scripts/build_windows.sh "${targets[@]}" || exit
      build release pumice
      tests/matrix/windows_test.py build/windows build/release ;;
    arm64)
      tests/matrix/fetch_drivers.sh lavapipe-25 || exit 77
      scripts/build_arm64.sh pumice test_base test_sampling test_constraints test_answers test_flag_values test_ops || exit
      build release pumice
      tests/matrix/arm64_test.py build/arm64 build/release ;;
    *) echo "unknown row '$1'"; exit 2 ;;
  esac
}

rows=("$@")
if [[ ${1:-} == --list ]]; then
  printf 'default: %s\nby name: %s\n' "${default_rows[*]}" "${other_rows[*]}"
  exit 0
fi
[[ $# -gt 0 ]] || rows=("${default_rows[@]}")
for row in "${rows[@]}"; do
  [[ " ${default_rows[*]} ${other_rows[*]} " == *" $row "* ]] ||
    { echo "matrix: unknown row '$row' (see --list)" >&2; exit 2; }
done

mkdir -p "$logs"
failed=()
for row in "${rows[@]}"; do
  start=$SECONDS
  status=0
  state=$(state_of "$row")
  if [[ $# == 0 && -n $state ]] && grep -qx "$row $state" "$passed"; then
    printf 'SKIPPED  %-16s %s\n' "$row" "what it tests is as it was when it passed ($passed)"
    continue
  fi
  # In the background, because `set -e` does not hold inside a command whose status is tested.
  (run_row "$row") >"$logs/$row.log" 2>&1 </dev/null &
  wait $! || status=$?
  duration=$(printf '%d:%02d' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))
  case $status in
    0)
      printf 'PASS     %-16s %s\n' "$row" "$duration"
      if [[ $# -gt 0 && -n $state ]]; then
        { grep -v "^$row " "$passed" || true; echo "$row $state"; } | sort >"$logs/passed"
        cp "$logs/passed" "$passed"
      fi ;;
    77) printf 'SKIPPED  %-16s %s\n' "$row" "$(tail -n 1 "$logs/$row.log")" ;;
    *)
      printf 'FAIL     %-16s %s  (%s)\n' "$row" "$duration" "$logs/$row.log"
      { grep -E -A 8 "$failure" "$logs/$row.log" | head -n 60 || true; echo ...; tail -n 20 "$logs/$row.log"; } | sed 's/^/    /'
      failed+=("$row") ;;
  esac
done
[[ ${#failed[@]} == 0 ]] || { echo "matrix: failed: ${failed[*]}"; exit 1; }
