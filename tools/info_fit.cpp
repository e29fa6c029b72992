#include "tools/info_fit.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "bench/peaks.hpp"
#include "engine/memory_plan.hpp"
#include "models/model_source.hpp"
#include "models/program_tensors.hpp"
#include "models/state_layout.hpp"
#include "shaders/spirv.hpp"
#include "tools/flags.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kTimedBytes = uint64_t{256} << 20;

/// One KV type beside the one that was asked for.
struct Alternative {
  KvTypes kv_type;
  bool is_current = false;
  uint64_t bytes = 0;  ///< at the context asked for
  bool fits = false;
  uint32_t longest_tokens = 0;  ///< that fits; 0: none
};

struct Fit {
  MemoryPlanner planner;
  EngineOptions engine;
  MemoryPlan plan;
  uint64_t prediction_bytes = 0;  ///< of the file, not loaded: see pumice::prediction_bytes
  uint32_t most_tokens = 0;       ///< looked at
  std::vector<Alternative> alternatives;
  /// What a token reads of weights beside the device takes, and in its own memory would take.
  std::optional<double> beside_ms = {};
  std::optional<double> own_ms = {};
  std::string not_timed = {};  ///< why it was not, where there are such weights

  bool fits() const { return planner.fits(plan); }
};

Result<ModelSource> open_source(const FitOptions& options, const std::string& model) {
  if (options.synthetic.empty()) return ModelSource::open(from_utf8(model));
  PUMICE_TRY(const SyntheticModel made, SyntheticModel::parse(options.synthetic));
  return ModelSource::synthetic(made);
}

EngineOptions engine_options(const FitOptions& options, uint32_t model_tokens) {
  return EngineOptions{
      .kv_type = {parse_kv_type(options.kv_type_k).value(),
                  parse_kv_type(options.kv_type_v).value()},
      .context_tokens = options.context_tokens != 0 ? options.context_tokens : model_tokens,
      .token_budget = options.token_budget,
      .chunk_tokens = options.chunk_tokens};
}

Result<Fit> find_fit(const FitOptions& options, const ModelSource& source, DeviceMemory device) {
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> model, ModelPlan::of_source(source));
  PUMICE_TRY(MemoryPlanner planner, MemoryPlanner::of_plan(model, std::move(device)));
  const EngineOptions engine = engine_options(options, planner.program().context_length);
  PUMICE_TRY(MemoryPlan plan, planner.plan(engine));
  Fit fit{.planner = std::move(planner), .engine = engine, .plan = std::move(plan)};
  fit.prediction_bytes = prediction_bytes(source.file(), fit.planner.program());
  fit.most_tokens = std::max(fit.planner.program().context_length, engine.context_tokens);
  std::vector<KvTypes> choices;
  for (const KvType type : kv_choices(fit.planner.program())) choices.emplace_back(type);
  if (engine.kv_type.k != engine.kv_type.v) choices.push_back(engine.kv_type);
  for (const KvTypes& choice : choices) {
    EngineOptions other = engine;
    other.kv_type = choice;
    PUMICE_TRY(const MemoryPlan its_plan, fit.planner.plan(other));
    fit.alternatives.push_back(
        {.kv_type = choice,
         .is_current = choice == engine.kv_type,
         .bytes = its_plan.total_bytes(),
         .fits = fit.planner.fits(its_plan),
         .longest_tokens = fit.planner.largest_context(other, fit.most_tokens)});
  }
  return fit;
}

/// Reads both memories for some tenths of a second.
Status time_beside(const DeviceOptions& options, const Logger& logger, Fit& fit) {
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options, logger));
  const std::optional<vk::MemoryDomain> beside = device->plan().beside_device();
  PUMICE_CHECK(beside, "weights beside a device that has no other memory");
  vk::PipelineLibrary pipelines(device, cache_directory(), spirv_hash());
  const auto ms_in = [&](vk::MemoryDomain domain) -> Result<double> {
    PUMICE_TRY(const double gb_per_s, bench::measure_reading(pipelines, domain, kTimedBytes, {}));
    return fit.plan.beside_read_bytes / gb_per_s * 1e-6;
  };
  PUMICE_TRY(fit.beside_ms, ms_in(*beside));
  PUMICE_TRY(fit.own_ms, ms_in(vk::MemoryDomain::kDevice));
  return {};
}

uint32_t trained_tokens(const Fit& fit) { return fit.planner.program().context_length; }

uint64_t kv_bytes_per_token(const Fit& fit) {
  const StateLayout layout = state_layout(fit.planner.program(), fit.engine.kv_type);
  return layout.block_bytes() / kKvBlockTokens;
}

std::string reserve_text(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryLine& line : plan.lines) {
    if (line.use != MemoryUse::kReserve) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", line.purpose, memory_text(line.bytes));
  }
  return text;
}

std::string beside_text(const Fit& fit) {
  const MemoryPlan& plan = fit.plan;
  if (plan.beside_bytes == 0) return "";
  const std::string text = fmt::format("{} of them in the host's memory, where each token reads {}",
                                       memory_text(plan.beside_bytes),
                                       memory_text(static_cast<uint64_t>(plan.beside_read_bytes)));
  if (!fit.beside_ms) return fmt::format("{} (not timed: {})", text, fit.not_timed);
  return fmt::format("{}: {:.1f} ms a token, {:.1f} in the device's own (both measured now)", text,
                     *fit.beside_ms, *fit.own_ms);
}

std::string verdict(const Fit& fit) {
  const uint64_t free_bytes = fit.planner.device().free_bytes;
  const uint64_t bytes = fit.plan.budgeted_bytes;
  if (bytes > free_bytes) {
    return fmt::format("does not fit: short by {}", memory_text(bytes - free_bytes));
  }
  if (!fit.fits()) return fmt::format("does not fit: it {}", fit.plan.obstacle);
  return fmt::format("fits, {} to spare", memory_text(free_bytes - bytes));
}

void print_plan(const Fit& fit, const std::string& name, const FitOptions& options) {
  const DeviceMemory& device = fit.planner.device();
  const MemoryPlan& plan = fit.plan;
  print_text("{}: {} free\n", device.name, memory_text(device.free_bytes));
  print_text("{} with -c {} -ctk {} -ctv {} -b {}\n\n", name, plan.context_tokens,
             options.kv_type_k, options.kv_type_v, options.token_budget);
  const auto row = [](std::string_view what, uint64_t bytes, const std::string& note) {
    print_text("  {:<12} {:>11}{}\n", what, memory_text(bytes), note.empty() ? "" : "  " + note);
  };
  row("weights", plan.bytes(MemoryUse::kWeights), beside_text(fit));
  row("KV", plan.bytes(MemoryUse::kKv), fmt::format("{} bytes a token", kv_bytes_per_token(fit)));
  row("activations", plan.bytes(MemoryUse::kActivations), "");
  row("reserve", plan.bytes(MemoryUse::kReserve), reserve_text(plan));
  row("total", plan.total_bytes(), verdict(fit));
  if (plan.budgeted_bytes < plan.total_bytes()) {
    row("of it", plan.total_bytes() - plan.budgeted_bytes, "in the host's memory");
  }
  if (fit.prediction_bytes > 0) {
    row("not counted", fit.prediction_bytes,
        "of blocks that predict tokens after the next, which are not loaded");
  }
  const std::string beyond = beyond_training(plan.context_tokens, trained_tokens(fit));
  if (!beyond.empty()) print_text("\n  {}\n", beyond);
  print_text("\n  -ctk -ctv  {:>20}  longest -c that fits, up to {}\n",
             fmt::format("at -c {}", plan.context_tokens), fit.most_tokens);
  for (const Alternative& one : fit.alternatives) {
    print_text("{} {:<9}  {:>12} {:>7}  {:>8}\n", one.is_current ? '*' : ' ', one.kv_type.name(),
               memory_text(one.bytes), one.fits ? "fits" : "-",
               one.longest_tokens == 0 ? "none" : std::to_string(one.longest_tokens));
  }
}

Json fit_json(const Fit& fit, const std::string& name, const FitOptions& options) {
  const MemoryPlan& plan = fit.plan;
  Json json{{"model", name},
            {"device", fit.planner.device().name},
            {"free_bytes", fit.planner.device().free_bytes},
            {"fits", fit.fits()},
            {"obstacle", plan.obstacle.empty() ? Json(nullptr) : Json(plan.obstacle)},
            {"context_tokens", plan.context_tokens},
            {"trained_tokens", trained_tokens(fit)},
            {"kv_type_k", options.kv_type_k},
            {"kv_type_v", options.kv_type_v},
            {"batch_tokens", options.token_budget},
            {"kv_bytes_per_token", kv_bytes_per_token(fit)},
            {"total_bytes", plan.total_bytes()},
            {"budgeted_bytes", plan.budgeted_bytes},
            {"prediction",
             {{"blocks", fit.planner.program().n_prediction_blocks},
              {"bytes", fit.prediction_bytes},
              {"loaded", false}}},
            {"weights_beside_bytes", plan.beside_bytes},
            {"weights_beside_bytes_read_per_token", static_cast<uint64_t>(plan.beside_read_bytes)},
            {"weights_beside_ms_per_token", fit.beside_ms ? Json(*fit.beside_ms) : Json(nullptr)},
            {"weights_beside_ms_in_device_memory", fit.own_ms ? Json(*fit.own_ms) : Json(nullptr)}};
  for (size_t i = 0; i < kMemoryUseNames.size(); ++i) {
    json[fmt::format("{}_bytes", kMemoryUseNames[i])] = plan.bytes(static_cast<MemoryUse>(i));
  }
  for (const MemoryLine& line : plan.lines) {
    json["lines"].push_back({{"purpose", line.purpose},
                             {"use", kMemoryUseNames[static_cast<size_t>(line.use)]},
                             {"bytes", line.bytes},
                             {"passing", line.passing}});
  }
  for (const Alternative& one : fit.alternatives) {
    json["alternatives"].push_back({{"kv_type", one.kv_type.name()},
                                    {"current", one.is_current},
                                    {"total_bytes", one.bytes},
                                    {"fits", one.fits},
                                    {"longest_context_tokens", one.longest_tokens}});
  }
  return json;
}

}  // namespace

void FitOptions::add_to(CLI::App& app, CLI::Option* fit) {
  app.option_defaults()->group("With --fit");
  const std::vector<std::string> kv_types(kKvTypeNames.begin(), kKvTypeNames.end());
  app.add_option("--synthetic", synthetic,
                 "Instead of -m: the shape of a real model, PRESET[:TYPE] (pumice synth --list)")
      ->needs(fit)
      ->excludes("--model");
  app.add_option("-c,--ctx-size", context_tokens, "Context in tokens (default, and 0: the model's)")
      ->needs(fit)
      ->check(CLI::Range(0u, 1u << 24));
  add_choice(app, "--cache-type-k,--ctk", kv_type_k, kv_types, "Type of cached keys")->needs(fit);
  add_choice(app, "--cache-type-v,--ctv", kv_type_v, kv_types, "Type of cached values")->needs(fit);
  add_number(app, "-b,--batch-size", token_budget, kKvBlockTokens, 1u << 16,
             "Maximum tokens computed in one step")
      ->needs(fit);
  add_number(app, "--ubatch-size,--ub", chunk_tokens, 1u, 1u << 16,
             "Maximum prompt tokens computed in one step; takes no memory of its own")
      ->needs(fit);
  app.option_defaults()->group(kDefaultGroup);
}

Status print_fit(const FitOptions& options, const std::string& model, const DeviceOptions& device,
                 bool json, const Logger& logger) {
  if (model.empty() && options.synthetic.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--fit: no model; give one with -m FILE or --synthetic PRESET");
  }
  PUMICE_TRY(const ModelSource source, open_source(options, model));
  PUMICE_TRY(const host::ChosenDevice chosen, choose_device(device, logger));
  PUMICE_TRY(Fit fit, find_fit(options, source, device_memory(chosen.snapshot, chosen.plan)));
  if (fit.plan.beside_bytes > 0) {  // what fits as it is needs no device
    const Status timed = time_beside(device, logger, fit);
    if (!timed.ok()) fit.not_timed = timed.error().message;
  }
  const std::string name = model.empty() ? "synthetic:" + options.synthetic : model;
  if (json) {
    print_text("{}\n",
               fit_json(fit, name, options).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_plan(fit, name, options);
  }
  if (fit.fits()) return {};
  return make_error(ErrorCode::kDoesNotFit, "{} with -c {}: {}", name, fit.plan.context_tokens,
                    verdict(fit));
}

}  // namespace pumice::tools
