// `pumice bench -m FILE`: how fast a model reads prompts and generates.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "bench/evidence.hpp"
#include "bench/test_grid.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

/// One run of a test. A test without a prompt starts each request with one token, whose step is one
/// of decoding; after a prompt, generation begins with the second token, so that `n_gen` steps are
/// timed either way.
struct Sample {
  double ns = 0;                ///< from submission to the last token
  double prefill_ns = 0;        ///< to the first token of the last request; 0 without a prompt
  std::vector<double> ttft_ns;  ///< of each request; none without a prompt

  double decode_ns() const { return ns - prefill_ns; }
};

struct ModelRow {
  ModelTest test;
  std::string started;  ///< UTC, "2026-01-31T12:00:00Z"
  std::vector<Sample> samples;
  std::optional<Error> error;  ///< why there are no or fewer samples
  bool checked_after = false;  ///< the device was found to compute right after it, too
  // Of the engine that ran it.
  KvTypes kv_type;
  std::set<std::string> variants;
  nlohmann::json machine;  ///< its sensors "before" and "after", if they were read

  /// Tokens per second of each sample: of all, of the prompt, of generation. The latter are empty
  /// where the test has none.
  std::vector<double> rates() const;
  std::vector<double> prefill_rates() const;
  std::vector<double> decode_rates() const;
  /// Of every request of every sample.
  std::vector<double> ttft_ns() const;
};

/// What has to be done before samples are taken: the test's contexts are filled and a few tokens
/// run. `sample` numbers the prompt, see bench_model.
Status warm_up(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t sample,
               const std::function<bool()>& stop);
Result<Sample> run_sample(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t sample,
                          const std::function<bool()>& stop);

/// Run a test `repetitions` times after a warm-up. Prompts are random tokens and nothing is
/// tokenised; a token's choice (greedy, on the device) is in the time. A test with depth needs an
/// engine that keeps prefixes, others one that does not. `stop` is asked between steps. Samples are
/// numbered from `first_sample` and their prompts differ by number: where an engine keeps prefixes,
/// no number may come twice.
ModelRow bench_model(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t repetitions,
                     const std::function<bool()>& stop, uint32_t first_sample = 0);

/// `base` with what the tests of a group need; a context that `base` asks for stays.
EngineOptions engine_options(const TestGroup& group, EngineOptions base);

struct ModelBench {
  /// An engine for the tests of a group. Errors: those of Engine::create.
  std::function<Result<std::unique_ptr<Engine>>(const TestGroup&)> make_engine;
  uint32_t n_vocab = 0;
  uint32_t repetitions = 5;
  double delay_s = 0;  ///< before each test, for clocks and temperatures to settle
  std::function<bool()> stop;
  std::function<nlohmann::json()> read_machine = {};  ///< before and after each test
  std::function<void(const ModelTest&)> begins = {};
  /// Asked after each test whether the device still computes right. If not, the test has no score
  /// and no more is run; kDoesNotFit only says that there was no room to find out.
  std::function<Status()> check = {};
  std::function<void(const ModelRow&)> ended = {};
  std::function<void(const Engine&)> engine_done = {};  ///< when a group's tests have run
};

/// Run all tests. Never fails: an error is in its row. What does not fit leaves the other tests as
/// they are; after any other error (device loss, an interrupt) no more is run.
std::vector<ModelRow> bench_models(std::span<const ModelTest> tests, const ModelBench& bench);

/// The worst of the rows' errors, device loss first.
Status verdict(std::span<const ModelRow> rows);

/// What every record of a run says.
struct ModelRecord {
  std::string filename;
  std::string type;         ///< "llama 1.24 B Q4_K": architecture, parameters, commonest type
  uint64_t size_bytes = 0;  ///< of all tensors in the file
  uint64_t n_params = 0;
  nlohmann::json run;                ///< keys that are added to every record: device, options
  std::optional<Evidence> evidence;  ///< none: not checked
};
/// Without `run`.
ModelRecord model_record(const std::string& filename, const GgufFile& file);

/// A record with llama-bench's keys, and ours: all of them in every record, whatever the test, so
/// that tables of several runs fit together. Null, or no samples: not measured.
nlohmann::json to_json(const ModelRow& row, const ModelRecord& model);

/// "pp512: 123.45 t/s", a line: the median, for the Phoronix Test Suite. Nothing without a score.
std::string to_pts(const ModelRow& row);

/// A table like llama-bench's; t/s is mean ± deviation as there, the rest are medians.
std::string to_markdown(std::span<const ModelRow> rows, const ModelRecord& model);

}  // namespace pumice::bench
