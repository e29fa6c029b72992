// `pumice bench --layers`: where the steps of a prompt and of decoding go, dispatch by dispatch, by
// the device's own clock.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/model_bench.hpp"
#include "bench/peaks.hpp"
#include "engine/engine.hpp"

namespace pumice::bench {

struct TracedCommand {
  std::string label;  ///< of its kernel, or "copy", "fill"
  std::string part;   ///< as in vk::Scope
  uint32_t layer = vk::Scope::kNoLayer;
  vk::Cost cost;
  vk::CommandTime time;  ///< since the step's first command began
};

/// One step of an engine.
struct TracedStep {
  StepTrace host;
  size_t n_barriers = 0;
  std::vector<TracedCommand> commands;  ///< in the order they ran

  double device_ns() const;  ///< from the first command's begin to the last one's end
  double busy_ns() const;    ///< of its commands
};

/// The timed steps of all repetitions of a test.
struct TracedTest {
  ModelTest test;
  std::vector<TracedStep> steps;
  std::optional<ModelRow> untraced;  ///< the same test without timestamps
};

/// Run a test (a prompt or generation, of one request) on an engine that profiles, and keep its
/// steps. A command is timed by itself: each waits for the one before, also where nothing else
/// makes it. Errors: those of the steps.
Result<TracedTest> trace_test(Engine& engine, uint32_t n_vocab, const ModelTest& test,
                              uint32_t repetitions, const std::function<bool()>& stop);

/// Commands of one part of the model and one kernel. Amounts and times are of one step.
struct LayerRow {
  std::string part;
  std::string label;
  double n_dispatches = 0;
  double n_per_layer = 0;          ///< of those that belong to a layer
  vk::Cost cost;                   ///< the mean
  std::vector<double> samples_ns;  ///< of each step
  Limit limit;                     ///< the mean

  double mean_ns() const;
};
/// In the order of a step.
std::vector<LayerRow> layer_rows(const TracedTest& test, uint32_t n_layers,
                                 const Roofline& roofline);

struct LayersReport {
  ModelRecord model;
  uint32_t n_layers = 0;
  double timestamp_period_ns = 0;
  std::vector<TracedTest> tests;
  std::optional<Peaks> peaks;
  std::optional<Error> ended;  ///< why measuring stopped early
};

/// Everything, with the samples of each row.
nlohmann::json to_json(const LayersReport& report);
std::string to_markdown(const LayersReport& report);

/// The steps in the trace event format that Perfetto and Chrome load: complete events, times in
/// microseconds; tracks for the host's steps and their stages, and for the device's steps, layers
/// and dispatches. Tests follow one another. A step's commands are placed so that the last ends
/// when the host knew of it.
nlohmann::json trace_events(const LayersReport& report);

}  // namespace pumice::bench
