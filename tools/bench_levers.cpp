#include "tools/bench_levers.hpp"

#include "tools/bench.hpp"
#include "tools/flag_values.hpp"

namespace pumice::tools {

void LeverOptions::add_to(CLI::App& command) {
  command
      .add_option("--ab", ab,
                  "A configuration in turns with the default, or, given twice, the second with the "
                  "first: KEY=VALUE,... of math, kv, chunk, batch, split, prefix_cache, run_ahead, "
                  "invariant, variant, limit; null compares the default with itself")
      ->expected(1)
      ->take_all()
      ->type_name("CONFIG");
  CLI::Option* const advised =
      command.add_flag("--advise", advise,
                       "Measure what would bring the model to --ttft-target and --tpot-target: "
                       "arithmetic, kernels, KV type, chunks, prefix reuse, a smaller window");
  command
      .add_option("--ttft-target", ttft_target_ms, "With --advise: milliseconds to the first token")
      ->check(number_in(kLeastNumber, kMostNumber))
      ->needs(advised);
}

Status bench_lever(const BenchOptions& options) {
  if (options.levers.advise) return bench_advise(options);
  return bench_ab(options);
}

}  // namespace pumice::tools
