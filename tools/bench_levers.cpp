#include "tools/bench_levers.hpp"

#include "tools/bench.hpp"

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
}

Status bench_lever(const BenchOptions& options) { return bench_ab(options); }

}  // namespace pumice::tools
