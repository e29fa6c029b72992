// pumice bench -m FILE: prompt processing and generation, each by itself.
#include <fmt/format.h>

#include "bench/model_bench.hpp"
#include "tools/bench.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {

Status bench_model(const BenchOptions& options) {
  const Logger logger = stderr_logger(options.model.verbose);
  PUMICE_TRY_STATUS(options.model.validate());
  std::vector<bench::ModelTest> tests;
  for (const uint32_t n : options.n_prompt) {
    if (n > 0) tests.push_back({.n_prompt = n});
  }
  for (const uint32_t n : options.n_gen) {
    if (n > 0) tests.push_back({.n_gen = n});
  }
  if (tests.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing to measure: -p and -n are both 0; give one, as in -p 512 -n 128");
  }
  PUMICE_TRY(const GgufFile file, GgufFile::open(options.model.model));
  PUMICE_TRY(const Session session, Session::open(options.model, file, logger));
  const uint32_t wanted = bench::context_for(tests);
  PUMICE_TRY(const uint32_t context_tokens,
             context_for(options.model, session.model->config(), wanted, 0, OverflowPolicy::kStop));
  const EngineOptions engine_options{.kv_type = options.model.kv_type(),
                                     .math = options.model.math_kind(),
                                     .context_tokens = context_tokens,
                                     .token_budget = options.model.token_budget,
                                     .chunk_tokens = options.model.chunk_tokens,
                                     .prefix_cache = false,
                                     .greedy_only = true,
                                     .profile = options.model.profile};
  PUMICE_TRY(const std::unique_ptr<Engine> engine, session.make_engine(engine_options, logger));

  std::vector<bench::ModelRow> rows;
  Status status;
  {
    const InterruptGuard interrupt;
    ProgressBar bar("measuring");
    for (const bench::ModelTest& test : tests) {
      bar.update(rows.size(), tests.size());
      rows.push_back(bench::bench_model(*engine, session.model->config().n_vocab, test,
                                        options.repetitions, InterruptGuard::interrupted));
      if (!rows.back().error) continue;
      status = *rows.back().error;  // what was measured is printed all the same
      break;
    }
  }
  const bench::ModelFacts facts = bench::model_facts(options.model.model, file);
  print_report(
      options, [&] { return to_json(rows, facts, *engine, *session.device); },
      [&] { return to_markdown(rows, facts, *session.device); });
  if (options.model.profile) fmt::print(stderr, "{}", engine->profiler().table());
  return status;
}

}  // namespace pumice::tools
