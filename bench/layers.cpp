#include "bench/layers.hpp"

#include <algorithm>

#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

/// Steps of one run of a test of one request.
size_t steps_of(const ModelTest& test) {
  const uint32_t chunk = std::min(test.n_batch, test.n_ubatch);
  return test.n_prompt > 0 ? (test.n_prompt + chunk - 1) / chunk : test.n_gen;
}

}  // namespace

double TracedStep::device_ns() const {
  return commands.empty() ? 0 : commands.back().time.end_ns - commands.front().time.begin_ns;
}

double TracedStep::busy_ns() const {
  double sum = 0;
  for (const TracedCommand& command : commands) sum += command.time.end_ns - command.time.begin_ns;
  return sum;
}

Result<TracedTest> trace_test(Engine& engine, uint32_t n_vocab, const ModelTest& test,
                              uint32_t repetitions, const std::function<bool()>& stop) {
  PUMICE_CHECK(
      engine.options().profile && test.n_parallel == 1 && (test.n_prompt == 0 || test.n_gen == 0),
      "traces are of one request that reads or generates, on an engine that profiles");
  TracedTest traced{.test = test, .steps = {}, .untraced = {}};
  Status status;
  engine.set_hooks({.observer = [&](const StepTrace& host, const vk::RecordedWork& work) {
    const Result<std::vector<vk::CommandTime>> times = work.command_times();
    if (!times.ok()) {
      status = times.error();
      return;
    }
    TracedStep& step = traced.steps.emplace_back();
    step.host = host;
    step.n_barriers = work.barrier_count();
    for (size_t i = 0; i < times->size(); ++i) {
      const vk::CommandInfo& command = work.commands()[i];
      step.commands.push_back({std::string(command.label), std::string(command.scope.part),
                               command.scope.layer, command.cost, (*times)[i]});
    }
  }});
  const ModelRow row = bench_model(engine, n_vocab, test, repetitions, stop);
  engine.set_hooks({});
  if (!status.ok()) return status.error();
  if (row.error) return *row.error;
  // Before the repetitions the context was filled and the engine warmed up.
  const size_t n_steps = repetitions * steps_of(test);
  if (traced.steps.size() < n_steps) {
    return make_error(ErrorCode::kInternal, "{}: {} steps ran, {} were expected", test.name(),
                      traced.steps.size(), n_steps);
  }
  traced.steps.erase(traced.steps.begin(), traced.steps.end() - static_cast<ptrdiff_t>(n_steps));
  return traced;
}

double LayerRow::mean_ns() const { return summarize(samples_ns).mean; }

std::vector<LayerRow> layer_rows(const TracedTest& test, uint32_t n_layers,
                                 const Roofline& roofline) {
  std::vector<LayerRow> rows;
  const auto n_steps = static_cast<double>(test.steps.size());
  for (size_t i = 0; i < test.steps.size(); ++i) {
    for (const TracedCommand& command : test.steps[i].commands) {
      auto row = std::ranges::find_if(rows, [&](const LayerRow& known) {
        return known.part == command.part && known.label == command.label;
      });
      if (row == rows.end()) {
        rows.push_back({.part = command.part,
                        .label = command.label,
                        .cost = {.arithmetic = command.cost.arithmetic},
                        .samples_ns = std::vector<double>(test.steps.size(), 0),
                        .limit = {}});
        row = rows.end() - 1;
      }
      row->n_dispatches += 1 / n_steps;
      if (command.layer != vk::Scope::kNoLayer) row->n_per_layer += 1 / n_steps / n_layers;
      row->samples_ns[i] += command.time.end_ns - command.time.begin_ns;
      row->cost += command.cost;
      const Limit limit = limit_of(roofline, command.cost);
      row->limit.ns += limit.ns / n_steps;
      row->limit.what = limit.what;
    }
  }
  for (LayerRow& row : rows) {
    row.cost.bytes /= test.steps.size();
    row.cost.flops /= test.steps.size();
  }
  return rows;
}

}  // namespace pumice::bench
