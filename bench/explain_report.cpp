// What `pumice bench --explain` prints.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "bench/explain.hpp"
#include "bench/report_numbers.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

constexpr const char* kConventions =
    "A multiply-add is 2 flops; a row sees the keys before it and its own (causal attention "
    "halved). Weights, keys and values are read once a step; activations may stay in caches and "
    "bound nothing.";

/// A phase of a test and how long it took in each sample.
struct Phase {
  const char* name;
  const PhaseCost* cost;
  std::vector<double> samples_ns;
};

std::vector<Phase> phases_of(const ExplainedTest& test) {
  std::vector<Phase> phases;
  const auto add = [&](const char* name, const PhaseCost& cost, auto ns_of) {
    if (cost.n_steps == 0) return;
    Phase phase{name, &cost, {}};
    if (test.measured) {
      for (const Sample& sample : test.measured->samples) phase.samples_ns.push_back(ns_of(sample));
    }
    phases.push_back(std::move(phase));
  };
  add("prefill", test.cost.prefill, [](const Sample& sample) { return sample.prefill_ns; });
  add("decode", test.cost.decode, [](const Sample& sample) { return sample.decode_ns(); });
  return phases;
}

Json amount_to_json(const Amount& amount) {
  return {{"flops", amount.flops},
          {"weight_bytes", amount.weight_bytes},
          {"kv_bytes", amount.kv_bytes},
          {"activation_bytes", amount.activation_bytes},
          {"flops_per_byte", amount.flops_per_byte()}};
}

Json phase_to_json(const Phase& phase, const std::optional<DeviceSpeeds>& speeds) {
  Json json{{"phase", phase.name},
            {"n_steps", phase.cost->n_steps},
            {"rows", phase.cost->rows},
            {"total", amount_to_json(phase.cost->cost.total())},
            {"samples_ns", phase.samples_ns}};
  json["parts"] = Json::array();
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto component = static_cast<Part>(i);
    Json part = amount_to_json(phase.cost->cost[component]);
    part["part"] = part_name(component);
    if (speeds) {
      const Limit floor = floor_of(*speeds, *phase.cost, component);
      part["arithmetic"] = vk::arithmetic_name(speeds->arithmetic.of(*phase.cost, component));
      part["floor_ns"] = floor.ns;
      part["bound"] = floor.what;
    }
    json["parts"].push_back(std::move(part));
  }
  if (speeds) {
    const Limit floor = floor_of(*speeds, *phase.cost);
    json["floor_ns"] = floor.ns;
    json["bound"] = floor.what;
    if (!phase.samples_ns.empty()) {
      const double median = summarize(phase.samples_ns).median;
      json["median_ns"] = median;
      json["measured_over_floor"] = floor.ns > 0 ? median / floor.ns : 0;
    }
  }
  return json;
}

Json shape_to_json(const ModelShape& shape) {
  return {{"name", shape.name},
          {"n_layers", shape.n_layers},
          {"n_embd", shape.n_embd},
          {"n_heads", shape.n_heads},
          {"n_kv_heads", shape.n_kv_heads},
          {"head_dim", shape.head_dim},
          {"n_ff", shape.n_ff},
          {"n_vocab", shape.n_vocab},
          {"n_experts", shape.n_experts},
          {"n_experts_used", shape.n_experts_used},
          {"n_params", shape.n_params},
          {"size_bytes", shape.file_bytes},
          {"kv_type", shape.kv_type.name()},
          {"kv_bytes_per_token", shape.kv_bytes_per_token()}};
}

std::string mega(uint64_t bytes) { return short_number(static_cast<double>(bytes) * 1e-6); }
std::string giga(uint64_t flops) { return short_number(static_cast<double>(flops) * 1e-9); }

/// Of all steps of a prompt, and of the mean step of decoding, whose steps are alike but for keys.
std::string parts_table(const ExplainedTest& test, const Phase& phase, const ModelShape& shape,
                        const std::optional<DeviceSpeeds>& speeds) {
  const bool decodes = phase.cost == &test.cost.decode;
  const uint64_t n_steps = phase.cost->n_steps;
  const double share = decodes ? 1.0 / static_cast<double>(n_steps) : 1;
  std::string text = fmt::format("\n### {}: {}, ", test.test.name(), phase.name);
  if (decodes) {
    const ModelTest& t = test.test;
    const auto keys = [&](uint64_t step) {
      return static_cast<double>((t.n_depth + t.n_prompt + step) * t.n_parallel *
                                 shape.kv_bytes_per_token()) *
             1e-6;
    };
    text +=
        fmt::format("the mean of {} steps; the first reads {} MB of keys and values, the last {}",
                    n_steps, short_number(keys(1)), short_number(keys(n_steps)));
  } else {
    text += fmt::format("{} step{}", n_steps, n_steps == 1 ? "" : "s");
  }
  text += fmt::format(
      "\n\n| part | GFLOP | weights MB | KV MB | activations MB | flops/byte |{}\n"
      "|---|---:|---:|---:|---:|---:|{}\n",
      speeds ? " floor ms | bound by |" : "", speeds ? "---:|---|" : "");
  const auto row = [&](std::string_view name, const Amount& amount, const Limit& floor) {
    const auto mega_share = [&](uint64_t bytes) {
      return short_number(static_cast<double>(bytes) * share * 1e-6);
    };
    text += fmt::format("| {} | {} | {} | {} | {} | {} |", name,
                        short_number(static_cast<double>(amount.flops) * share * 1e-9),
                        mega_share(amount.weight_bytes), mega_share(amount.kv_bytes),
                        mega_share(amount.activation_bytes), short_number(amount.flops_per_byte()));
    if (speeds)
      text += fmt::format(" {} | {} |", short_number(floor.ns * share * 1e-6), floor.what);
    text += "\n";
  };
  for (size_t i = 0; i < kPartCount; ++i) {
    const auto component = static_cast<Part>(i);
    const Amount& amount = phase.cost->cost[component];
    if (amount.flops == 0 && amount.bytes() == 0) continue;
    row(part_name(component), amount, speeds ? floor_of(*speeds, *phase.cost, component) : Limit{});
  }
  row("**all**", phase.cost->cost.total(), speeds ? floor_of(*speeds, *phase.cost) : Limit{});
  return text;
}

/// What was measured of a phase against its floor.
std::string measured_cells(const ExplainedTest& test, const Phase& phase, const Limit& floor) {
  if (phase.samples_ns.empty()) {
    const bool failed = test.measured && test.measured->error;
    return fmt::format(" {} | {} | | | {} |", short_number(floor.ns * 1e-6),
                       failed ? test.measured->error->message : "", floor.what);
  }
  const Summary ns = summarize(phase.samples_ns);
  const uint32_t n = phase.cost == &test.cost.prefill ? test.test.n_prompt : test.test.n_gen;
  const double tokens = static_cast<double>(test.test.n_parallel) * n;
  return fmt::format(" {} | {} ± {} | {} | {} | {} |", short_number(floor.ns * 1e-6),
                     short_number(ns.median * 1e-6), short_number(ns.stddev * 1e-6),
                     short_number(tokens * 1e9 / ns.median),
                     floor.ns > 0 ? short_number(ns.median / floor.ns) : "", floor.what);
}

std::string summary_table(const ExplainReport& report) {
  const bool measured = std::ranges::any_of(
      report.tests, [](const ExplainedTest& test) { return test.measured.has_value(); });
  std::string text =
      fmt::format("\n| test | phase | GFLOP | MB | flops/byte |{}\n|---|---|---:|---:|---:|{}\n",
                  measured ? " floor ms | measured ms | t/s | measured/floor | bound by |" : "",
                  measured ? "---:|---:|---:|---:|---|" : "");
  for (const ExplainedTest& test : report.tests) {
    for (const Phase& phase : phases_of(test)) {
      const Amount total = phase.cost->cost.total();
      text +=
          fmt::format("| {} | {} | {} | {} | {} |", test.test.name(), phase.name, giga(total.flops),
                      mega(total.memory_bytes()), short_number(total.flops_per_byte()));
      const Limit floor = report.speeds ? floor_of(*report.speeds, *phase.cost) : Limit{};
      if (measured) text += measured_cells(test, phase, floor);
      text += "\n";
    }
  }
  return text;
}

std::string crossings_table(const ModelShape& shape) {
  std::string text =
      "\n### Where attention outweighs the feed-forward network\n\n"
      "| counting | scores and values only | with projections | |\n|---|---:|---:|---|\n";
  for (const Crossing& line : crossings(shape)) {
    text += fmt::format("| {} | {} | {} | {} |\n", line.counting, line.scores_only,
                        line.with_projections, line.explanation);
  }
  return text;
}

std::string speeds_text(const ExplainReport& report) {
  const DeviceSpeeds& speeds = *report.speeds;
  std::string text =
      fmt::format("\n{}: read bandwidth {} GB/s", report.model.run.value("gpu_info", "device"),
                  short_number(speeds.roofline.bytes_per_ns));
  for (size_t i = 0; i < vk::kArithmeticCount; ++i) {
    const auto arithmetic = static_cast<vk::Arithmetic>(i);
    const double peak = speeds.roofline.peak(arithmetic);
    if (peak == 0) continue;
    text +=
        fmt::format(", {} {} TFLOP/s (balanced at {} flops/byte)", vk::arithmetic_name(arithmetic),
                    short_number(peak * 1e-3), short_number(peak / speeds.roofline.bytes_per_ns));
  }
  text += "\n";
  if (report.peaks && report.shape.file_bytes < report.peaks->working_set_bytes) {
    text += fmt::format(
        "The weights ({} MB) are less than bandwidth was measured over ({} MB): caches may hold "
        "them, and such a model can be faster than its floor.\n",
        mega(report.shape.file_bytes), mega(report.peaks->working_set_bytes));
  }
  return text;
}

}  // namespace

Json to_json(const ExplainReport& report) {
  Json json{{"bench", "explain"},
            {"model_filename", report.model.filename},
            {"model_type", report.model.type},
            {"model", shape_to_json(report.shape)},
            {"conventions", kConventions}};
  if (report.model.run.is_object()) json.update(report.model.run);
  json["crossings"] = Json::array();
  for (const Crossing& line : crossings(report.shape)) {
    json["crossings"].push_back({{"counting", line.counting},
                                 {"explanation", line.explanation},
                                 {"scores_only", line.scores_only},
                                 {"with_projections", line.with_projections}});
  }
  if (report.speeds) json.update(to_json(report.speeds->roofline));
  if (report.ended) json["ended"] = report.ended->message;
  json["tests"] = Json::array();
  for (const ExplainedTest& test : report.tests) {
    Json entry{{"test", test.test.name()},           {"n_prompt", test.test.n_prompt},
               {"n_gen", test.test.n_gen},           {"n_depth", test.test.n_depth},
               {"n_parallel", test.test.n_parallel}, {"n_batch", test.test.n_batch},
               {"n_ubatch", test.test.n_ubatch}};
    entry["phases"] = Json::array();
    for (const Phase& phase : phases_of(test)) {
      entry["phases"].push_back(phase_to_json(phase, report.speeds));
    }
    if (test.measured && test.measured->error) entry["error"] = test.measured->error->message;
    if (test.measured) entry["variants"] = test.measured->variants;
    json["tests"].push_back(std::move(entry));
  }
  return json;
}

std::string to_markdown(const ExplainReport& report) {
  const ModelShape& shape = report.shape;
  std::string text = fmt::format(
      "{} ({}): {} layers, {} wide, {} heads on {} of KV, feed-forward {}{}\n", report.model.type,
      report.model.filename, shape.n_layers, shape.n_embd, shape.n_heads, shape.n_kv_heads,
      shape.n_ff,
      shape.n_experts > 0 ? fmt::format(", {} of {} experts", shape.n_experts_used, shape.n_experts)
                          : "");
  text += fmt::format("{} MB of weights, {} bytes of KV a token ({})\n{}\n", mega(shape.file_bytes),
                      shape.kv_bytes_per_token(), shape.kv_type.name(), kConventions);
  if (report.speeds) text += speeds_text(report);
  if (report.ended) text += "\nMeasuring ended early: " + report.ended->message + "\n";
  text += summary_table(report);
  for (const ExplainedTest& test : report.tests) {
    for (const Phase& phase : phases_of(test))
      text += parts_table(test, phase, shape, report.speeds);
  }
  return text + crossings_table(shape);
}

}  // namespace pumice::bench
