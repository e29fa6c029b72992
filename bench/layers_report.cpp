// What `pumice bench --layers` prints, and its trace.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include "bench/layers.hpp"
#include "bench/report_numbers.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

/// What a step took, each a sample a step.
struct StepTimes {
  std::vector<double> device_ns, idle_ns, plan_ns, record_ns, submit_ns, wait_ns;
  double n_commands = 0;  ///< the mean
  double n_barriers = 0;  ///< likewise
};

StepTimes times_of(const TracedTest& test) {
  StepTimes times;
  const auto ns = [](double from_s, double to_s) { return (to_s - from_s) * 1e9; };
  for (const TracedStep& step : test.steps) {
    const StepTrace& host = step.host;
    times.device_ns.push_back(step.device_ns());
    times.idle_ns.push_back(step.device_ns() - step.busy_ns());
    times.plan_ns.push_back(ns(host.planned_s, host.prepared_s));
    times.record_ns.push_back(ns(host.prepared_s, host.recorded_s));
    times.submit_ns.push_back(ns(host.recorded_s, host.submitted_s));
    times.wait_ns.push_back(ns(host.submitted_s, host.ended_s));
    const auto n_steps = static_cast<double>(test.steps.size());
    times.n_commands += static_cast<double>(step.commands.size()) / n_steps;
    times.n_barriers += static_cast<double>(step.n_barriers) / n_steps;
  }
  return times;
}

/// A step of the test without timestamps, by the host's clock; nothing where it was not measured.
std::vector<double> untraced_step_ns(const TracedTest& test) {
  std::vector<double> samples;
  if (!test.untraced || test.untraced->samples.empty()) return samples;
  const size_t n_repetitions = test.untraced->samples.size();
  const double steps_a_run =
      static_cast<double>(test.steps.size()) / static_cast<double>(n_repetitions);
  for (const Sample& sample : test.untraced->samples) samples.push_back(sample.ns / steps_a_run);
  return samples;
}

Roofline roofline_of(const LayersReport& report) {
  return report.peaks ? report.peaks->roofline() : Roofline{};
}

Json row_to_json(const LayerRow& row) {
  const double ns = row.mean_ns();
  return {{"part", row.part},
          {"kernel", row.label},
          {"dispatches", row.n_dispatches},
          {"dispatches_per_layer", row.n_per_layer},
          {"bytes", row.cost.bytes},
          {"flops", row.cost.flops},
          {"arithmetic", vk::arithmetic_name(row.cost.arithmetic)},
          {"samples_ns", row.samples_ns},
          {"mean_ns", ns},
          {"gigabytes_per_second", ns > 0 ? static_cast<double>(row.cost.bytes) / ns : 0},
          {"teraflops", ns > 0 ? static_cast<double>(row.cost.flops) / ns * 1e-3 : 0},
          {"limit", row.limit.what},
          {"limit_ns", row.limit.ns},
          {"percent_of_limit", ns > 0 ? 100 * row.limit.ns / ns : 0}};
}

Json test_to_json(const TracedTest& test, const LayersReport& report) {
  const StepTimes times = times_of(test);
  Json json{{"test", test.test.name()},
            {"n_prompt", test.test.n_prompt},
            {"n_gen", test.test.n_gen},
            {"n_depth", test.test.n_depth},
            {"n_ubatch", test.test.n_ubatch},
            {"n_steps", test.steps.size()},
            {"dispatches", times.n_commands},
            {"barriers", times.n_barriers},
            {"device_ns", times.device_ns},
            {"idle_ns", times.idle_ns},
            {"host_plan_ns", times.plan_ns},
            {"host_record_ns", times.record_ns},
            {"host_submit_ns", times.submit_ns},
            {"host_wait_ns", times.wait_ns},
            {"untraced_step_ns", untraced_step_ns(test)}};
  json["rows"] = Json::array();
  for (const LayerRow& row : layer_rows(test, report.n_layers, roofline_of(report))) {
    json["rows"].push_back(row_to_json(row));
  }
  return json;
}

std::string test_to_markdown(const TracedTest& test, const LayersReport& report) {
  const StepTimes times = times_of(test);
  const double device_ns = summarize(times.device_ns).mean;
  std::string text = fmt::format(
      "\n### {}: the mean of {} step{}\n\n"
      "| part | kernel | dispatches | a layer | us | share | MB | GFLOP | GB/s | TFLOP/s | of "
      "limit "
      "|\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      test.test.name(), test.steps.size(), test.steps.size() == 1 ? "" : "s");
  for (const LayerRow& row : layer_rows(test, report.n_layers, roofline_of(report))) {
    const double ns = std::max(row.mean_ns(), 1e-3);
    const auto bytes = static_cast<double>(row.cost.bytes);
    const auto flops = static_cast<double>(row.cost.flops);
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {:.1f} % | {} | {} | {} | {} | {} |\n", row.part, row.label,
        short_number(row.n_dispatches), short_number(row.n_per_layer), short_number(ns * 1e-3),
        100 * ns / device_ns, short_number(bytes * 1e-6), short_number(flops * 1e-9),
        short_number(bytes / ns), short_number(flops / ns * 1e-3),
        row.limit.ns > 0 ? fmt::format("{:.0f} % of {}", 100 * row.limit.ns / ns, row.limit.what)
                         : "");
  }
  const double idle_ns = summarize(times.idle_ns).mean;
  text += fmt::format("| idle between dispatches | | | | {} | {:.1f} % | | | | | |\n",
                      short_number(idle_ns * 1e-3), 100 * idle_ns / device_ns);
  text += fmt::format("| **all** | | {} | | {} | 100 % | | | | | |\n\n",
                      short_number(times.n_commands), short_number(device_ns * 1e-3));
  const auto us = [](const std::vector<double>& samples_ns) {
    return short_number(summarize(samples_ns).median * 1e-3);
  };
  text +=
      fmt::format("{} barriers. Host, medians: plan {} us, record {} us, submit {} us, wait {} us.",
                  short_number(times.n_barriers), us(times.plan_ns), us(times.record_ns),
                  us(times.submit_ns), us(times.wait_ns));
  const std::vector<double> untraced = untraced_step_ns(test);
  if (!untraced.empty()) {
    text +=
        fmt::format(" Without timestamps a step takes {} us, by the host's clock.", us(untraced));
  }
  return text + "\n";
}

/// Builds a trace: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
class Trace {
 public:
  enum Process { kHost = 1, kDevice = 2 };
  enum Track { kSteps = 1, kStages = 2, kLayers = 3, kDispatches = 4 };

  void name_process(Process process, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"name", "process_name"}, {"pid", int{process}}, {"args", {{"name", name}}}});
  }
  void name_track(Process process, Track track, const std::string& name) {
    for (const auto& [key, value] : {std::pair<const char*, Json>("thread_name", {{"name", name}}),
                                     {"thread_sort_index", {{"sort_index", int{track}}}}}) {
      events_.push_back({{"ph", "M"},
                         {"name", key},
                         {"pid", int{process}},
                         {"tid", int{track}},
                         {"args", value}});
    }
  }
  void add(Process process, Track track, const std::string& name, double begin_us, double end_us,
           Json args = Json::object()) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", process == kHost ? "host" : "device"},
                       {"pid", int{process}},
                       {"tid", int{track}},
                       {"ts", begin_us},
                       {"dur", end_us - begin_us},
                       {"args", std::move(args)}});
  }
  Json take() { return std::move(events_); }

 private:
  Json events_ = Json::array();
};

void trace_step(Trace& trace, const TracedStep& step, const std::string& name, double offset_us) {
  const StepTrace& host = step.host;
  const auto at = [&](double seconds) { return seconds * 1e6 + offset_us; };
  trace.add(Trace::kHost, Trace::kSteps, name, at(host.planned_s), at(host.ended_s),
            {{"step", host.id},
             {"decode_rows", host.decode_rows},
             {"prefill_tokens", host.prefill_tokens}});
  trace.add(Trace::kHost, Trace::kStages, "plan", at(host.planned_s), at(host.prepared_s));
  trace.add(Trace::kHost, Trace::kStages, "record", at(host.prepared_s), at(host.recorded_s));
  trace.add(Trace::kHost, Trace::kStages, "submit", at(host.recorded_s), at(host.submitted_s));
  trace.add(Trace::kHost, Trace::kStages, "wait", at(host.submitted_s), at(host.ended_s));
  if (step.commands.empty()) return;

  const double device_end_ns = step.commands.back().time.end_ns;
  const auto device_at = [&](double ns) { return at(host.ended_s) - (device_end_ns - ns) * 1e-3; };
  trace.add(Trace::kDevice, Trace::kSteps, name, device_at(step.commands.front().time.begin_ns),
            device_at(device_end_ns), {{"barriers", step.n_barriers}});
  std::map<uint32_t, vk::CommandTime> layers;
  for (const TracedCommand& command : step.commands) {
    Json args{
        {"kernel", command.label}, {"bytes", command.cost.bytes}, {"flops", command.cost.flops}};
    if (command.layer != vk::Scope::kNoLayer) {
      args["layer"] = command.layer;
      const auto [layer, added] = layers.emplace(command.layer, command.time);
      if (!added) layer->second.end_ns = command.time.end_ns;
    }
    trace.add(Trace::kDevice, Trace::kDispatches, command.part, device_at(command.time.begin_ns),
              device_at(command.time.end_ns), std::move(args));
  }
  for (const auto& [layer, time] : layers) {
    trace.add(Trace::kDevice, Trace::kLayers, fmt::format("layer {}", layer),
              device_at(time.begin_ns), device_at(time.end_ns));
  }
}

}  // namespace

Json to_json(const LayersReport& report) {
  Json json{{"bench", "layers"},
            {"model_filename", report.model.filename},
            {"model_type", report.model.type},
            {"n_layers", report.n_layers},
            {"clock", "device timestamps"},
            {"timestamp_period_ns", report.timestamp_period_ns}};
  if (report.model.run.is_object()) json.update(report.model.run);
  if (report.peaks) json.update(to_json(roofline_of(report)));
  if (report.ended) json["ended"] = report.ended->message;
  json["tests"] = Json::array();
  for (const TracedTest& test : report.tests) json["tests"].push_back(test_to_json(test, report));
  return json;
}

std::string to_markdown(const LayersReport& report) {
  std::string text = fmt::format(
      "{} ({}): {} layers, on {}\nEvery dispatch timed by itself with the device's timestamps of "
      "{} ns: none overlaps another, and steps are recorded anew instead of replayed\n",
      report.model.type, report.model.filename, report.n_layers,
      report.model.run.value("gpu_info", "this device"), report.timestamp_period_ns);
  for (const TracedTest& test : report.tests) text += test_to_markdown(test, report);
  if (report.ended) text += "\nEnded early: " + report.ended->message + "\n";
  return text;
}

Json trace_events(const LayersReport& report) {
  Trace trace;
  trace.name_process(Trace::kHost, "pumice engine");
  trace.name_process(Trace::kDevice, report.model.run.value("gpu_info", "device"));
  trace.name_track(Trace::kHost, Trace::kSteps, "steps");
  trace.name_track(Trace::kHost, Trace::kStages, "plan, record, submit, wait");
  trace.name_track(Trace::kDevice, Trace::kSteps, "steps");
  trace.name_track(Trace::kDevice, Trace::kLayers, "layers");
  trace.name_track(Trace::kDevice, Trace::kDispatches, "dispatches");
  constexpr double kGapUs = 1000;  // between tests, whose engines have clocks of their own
  double end_us = 0;
  for (const TracedTest& test : report.tests) {
    if (test.steps.empty()) continue;
    const double offset_us = end_us - test.steps.front().host.planned_s * 1e6;
    for (const TracedStep& step : test.steps) {
      trace_step(trace, step, test.test.name(), offset_us);
      end_us = step.host.ended_s * 1e6 + offset_us + kGapUs;
    }
  }
  return {{"traceEvents", trace.take()},
          {"displayTimeUnit", "ns"},
          {"otherData", {{"model", report.model.type}, {"file", report.model.filename}}}};
}

}  // namespace pumice::bench
