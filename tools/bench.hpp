// The modes of `pumice bench`, a file each.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/evidence.hpp"
#include "bench/test_grid.hpp"
#include "tools/model_options.hpp"

namespace pumice::tools {

/// Of --frame-impact.
struct FrameFlags {
  bool asked_for = false;
  double work_ms = 4;
  double rate = 60;
  double seconds = 10;
  bool own_queue = false;
  bool low_priority = false;

  void add_to(CLI::App& command);
};

/// Of --server.
struct ServerFlags {
  std::string url;  ///< empty: not asked for
  uint32_t n_clients = 8;
  uint32_t n_requests = 100;
  double rate = 0;
  double speed_up = 1;
  std::string trace;
  uint32_t n_prefixes = 4;
  uint32_t prefix_tokens = 256;
  uint32_t prompt_tokens = 64;
  uint32_t output_tokens = 64;
  uint64_t seed = 1;
  std::string model;
  std::string api_key;
  std::string goodput;

  void add_to(CLI::App& command);
};

/// Of the modes that say what a choice is worth.
struct LeverOptions {
  std::vector<std::string> ab;  ///< configurations, if any
  bool advise = false;
  double ttft_target_ms = 0;  ///< of --advise
};

struct BenchOptions {
  ModelOptions model;
  bool model_is_default = false;  ///< nobody asked for it
  bool ops = false;
  bool serve = false;
  LeverOptions levers;
  FrameFlags frames;
  ServerFlags server;
  uint32_t n_streams = 4;
  uint32_t long_prompt_tokens = 0;
  double tpot_target_ms = 0;
  std::string op_filter;
  double seconds = -1;  ///< of --ops; 0: no limit, below: the device's default
  /// Empty lists: nothing was asked for, see the modes.
  std::vector<uint32_t> n_prompt;
  std::vector<uint32_t> n_gen;
  std::vector<std::pair<uint32_t, uint32_t>> prompt_and_gen;
  std::vector<uint32_t> n_depth = {0};
  std::vector<uint32_t> n_parallel = {1};
  std::vector<uint32_t> n_batch = {512};
  std::vector<uint32_t> n_ubatch = {512};
  double delay_s = 0;
  bool no_check = false;
  std::optional<uint32_t> repetitions;  ///< 5 unless asked for
  std::string command;                  ///< as it was typed
  bool explain = false;
  bool no_measure = false;
  bool layers = false;
  std::string trace;                 ///< file; empty: none
  std::vector<std::string> compare;  ///< files of results, the base first
  std::string submit;                ///< file of results; empty: not asked for
  bool pts = false;                  ///< a line a test instead of a report
  std::string output = "md";
  std::string error_output = "none";  ///< the report once more, on stderr
};

/// Print what -o and -oe ask for.
void print_report(const BenchOptions& options, const std::function<nlohmann::json()>& json,
                  const std::function<std::string()>& markdown);

/// The keys that every record of a run on a model carries: device, processor, model, command,
/// options.
nlohmann::json describe_run(const BenchOptions& options, const host::OpenedModel& opened);

/// The model's logits against fp64 on the CPU, with a progress bar, or against the same fp64 logits
/// as an earlier check. That they are wrong is no error. An InterruptGuard must live.
Result<bench::Evidence> check_logits(const host::OpenedModel& opened, const ModelSource& source,
                                     KvTypes kv_type, ops::Math math, const Logger& logger,
                                     const bench::Evidence* earlier = nullptr);

/// describe_run with evidence and the state of the machine. With --no-check nothing is compared,
/// which the record then says. Errors: kSelfTestFailed if the logits are wrong, so that nothing is
/// measured that does not count. `evidence` is what was found, for checks that come later.
Result<nlohmann::json> checked_run(const BenchOptions& options, const host::OpenedModel& opened,
                                   const ModelSource& source, const Logger& logger,
                                   std::optional<bench::Evidence>* evidence = nullptr);

/// Errors unless -o and -oe are md or json, or none: for reports that are not lists of records.
Status require_md_or_json(const BenchOptions& options);

/// --ops. The report is printed whatever happened. Errors: kSelfTestFailed if a row was wrong.
Status bench_ops(const BenchOptions& options);

/// --serve. Errors: kInternal also if KV blocks leaked.
Status bench_serve(const BenchOptions& options);

/// --server. Errors: kBadFile if no request was answered.
Status bench_server(const BenchOptions& options);

/// --frame-impact. What was measured before an error is printed.
Status bench_frames(const BenchOptions& options);

/// --compare. Errors: kBadFile for a file that cannot be read, or if nothing could be compared.
Status bench_compare(const BenchOptions& options);

/// --submit. Errors: kBadFile for a file that cannot be read, and for a record that lacks evidence.
Status bench_submit(const BenchOptions& options);

/// --explain. What could be counted or measured is printed whatever happened.
Status bench_explain(const BenchOptions& options);

/// --ab. What was measured before an error is printed.
Status bench_ab(const BenchOptions& options);

/// --advise. What was measured before an error is printed.
Status bench_advise(const BenchOptions& options);

/// The tests asked for, of `sizes` where no sizes were.
bench::TestGrid grid_of(const BenchOptions& options, const bench::DefaultSizes& sizes);

/// --layers. What was measured before an error is printed. Errors: kBadFile for a trace that cannot
/// be written.
Status bench_layers(const BenchOptions& options);

/// -m. What was measured before an error is printed.
Status bench_model(const BenchOptions& options);

}  // namespace pumice::tools
