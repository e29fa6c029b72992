// pumice info: the devices of this machine, or what is in a GGUF file.
#include <fmt/core.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/folders.hpp"
#include "base/path.hpp"
#include "engine/engine.hpp"
#include "format/gguf.hpp"
#include "models/families.hpp"
#include "models/program_tensors.hpp"
#include "models/program_text.hpp"
#include "shaders/passport.hpp"
#include "shaders/spirv.hpp"
#include "shaders/tuning_overlay.hpp"
#include "tools/command.hpp"
#include "tools/device_options.hpp"
#include "tools/hub_options.hpp"
#include "tools/info_fit.hpp"
#include "tools/self_test.hpp"
#include "tools/terminal.hpp"
#include "vk/snapshot_json.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;

struct InfoOptions {
  std::string model;
  HubModelFlags hub;
  DeviceOptions device;
  std::string self_test;  ///< ops, separated by commas; empty: all
  CLI::Option* self_test_option = nullptr;
  bool program = false;
  bool fit = false;
  FitOptions fit_options;
  bool json = false;
  bool verbose = false;
};

void print_json(const Json& json) {
  print_text("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

Json describe_device(const vk::DeviceSnapshot& snapshot, const vk::PlanOptions& limits,
                     const Logger& logger) {
  Json json{{"snapshot", snapshot_to_json(snapshot)},
            {"missing_requirements", vk::missing_requirements(snapshot)}};
  const Result<vk::DevicePlan> plan = vk::plan_device(snapshot, limits);
  if (!plan.ok()) {
    json["reason"] = plan.error().message;
    return json;
  }
  json["limit"] = vk::format_plan_options(limits);
  json["class"] = vk::device_class_name(plan->device_class);
  json["subgroup_size"] = plan->subgroup_size;
  json["budget_bytes"] = plan->device_budget_bytes;
  json["slab_bytes"] = plan->slab_bytes;
  for (const vk::OptionalCapability& capability : plan->optional) {
    json["optional"].push_back({{"name", capability.name},
                                {"enabled", capability.enabled},
                                {"reason", capability.reason}});
  }
  for (const vk::QuirkNote& note : plan->quirks.notes) {
    json["quirks"].push_back({{"name", note.name}, {"reason", note.reason}});
  }
  json["kernels"] = describe_kernels(*plan, load_passport(cache_directory(), snapshot, logger));
  return json;
}

void print_device(size_t index, const vk::DeviceSnapshot& snapshot, const vk::PlanOptions& limits,
                  bool verbose, const Logger& logger) {
  print_text("{}  {} ({}, {} {}, Vulkan {})\n", index, snapshot.name,
             vk::device_type_name(snapshot.type), snapshot.driver_name, snapshot.driver_info,
             vk::format_api_version(snapshot.api_version));
  print_text("   UUID {}\n", vk::format_uuid(snapshot.device_uuid));
  const Result<vk::DevicePlan> plan = vk::plan_device(snapshot, limits);
  if (!plan.ok()) {
    print_text("   not usable: {}\n", plan.error().message);
    return;
  }
  print_text(
      "   class {}, subgroups of {}, {} KiB shared memory, {:.1f} GiB budget in slabs of {:.0f} "
      "MiB\n",
      vk::device_class_name(plan->device_class), plan->subgroup_size, plan->max_shared_bytes >> 10,
      static_cast<double>(plan->device_budget_bytes) / (1 << 30),
      static_cast<double>(plan->slab_bytes) / (1 << 20));
  if (limits != vk::PlanOptions{})
    print_text("   limited to {}\n", vk::format_plan_options(limits));
  std::string used;
  size_t n_used = 0;
  for (const vk::OptionalCapability& capability : plan->optional) {
    if (!capability.enabled) continue;
    ++n_used;
    used += (used.empty() ? "" : " ") + capability.name;
  }
  if (verbose) {
    print_text("   optional features in use: {}\n", used.empty() ? "none" : used);
    for (const vk::OptionalCapability& capability : plan->optional) {
      if (!capability.enabled)
        print_text("   without {}: {}\n", capability.name, capability.reason);
    }
  } else {
    print_text("   {} of {} optional features in use (-v lists them)\n", n_used,
               plan->optional.size());
  }
  for (const vk::QuirkNote& note : plan->quirks.notes) {
    if (!verbose) break;
    print_text("   quirk {}: {}\n", note.name, note.reason);
  }
  if (verbose) {
    print_text("   rows of tuning name its driver {}; of its own it has {} in {}\n",
               plan->driver.name, load_tuning_overlay(cache_directory(), snapshot, logger).size(),
               to_utf8(tuning_overlay_file(cache_directory(), snapshot)));
  }
  const std::optional<SelfTestVerdict> passport =
      load_passport(cache_directory(), snapshot, logger);
  verbose ? print_kernels(*plan, passport) : print_kernel_summary(*plan, passport);
}

Status show_devices(const InfoOptions& options) {
  const Logger logger = stderr_logger(options.verbose);
  PUMICE_TRY(const host::DeviceRequest request, options.device.request(logger));
  PUMICE_TRY(const std::shared_ptr<vk::Instance> instance, host::open_instance(request, logger));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, instance->snapshots());
  Json devices = Json::array();
  for (size_t i = 0; i < snapshots.size(); ++i) {
    if (options.json) {
      devices.push_back(describe_device(snapshots[i], request.limits, logger));
    } else {
      print_device(i, snapshots[i], request.limits, options.verbose, logger);
    }
  }
  if (options.json) {
    print_json({{"version", PUMICE_VERSION},
                {"shaders", spirv_modules().size()},
                {"shader_hash", fmt::format("{:016x}", spirv_hash())},
                {"missing_glsl_extensions", missing_glsl_extensions()},
                {"devices", devices}});
  } else if (options.verbose) {
    print_text("{} shader modules in this build\n", spirv_modules().size());
    for (const std::string_view extension : missing_glsl_extensions()) {
      print_text("not built: shaders that need {} (unknown to the glslc of this build)\n",
                 extension);
    }
  }
  return {};
}

/// Device bytes of running this model with its full context, one sequence, F16 KV.
struct MemoryEstimate {
  uint64_t weights_bytes;
  uint64_t kv_bytes_per_token;
  uint32_t n_tokens;
  uint64_t kv_bytes;
  uint64_t buffer_bytes;
  uint32_t n_prediction_blocks;  ///< that predict tokens after the next, and are not loaded
  uint64_t prediction_bytes;     ///< theirs in the file
};

/// Errors say why the model cannot be run.
Result<MemoryEstimate> estimate_memory(const GgufFile& file) {
  PUMICE_TRY(Program built, build_program(file));
  PUMICE_TRY(const auto plan, ModelPlan::of_program(file, std::move(built)));
  const Program& program = plan->program();
  const StateLayout layout = plan->state(KvType::kF16);
  const EngineOptions defaults;
  const DecoderLimits limits{.rows = std::min(defaults.token_budget, program.context_length),
                             .logit_rows = 1,
                             .context_tokens = program.context_length};
  DecoderBuffers buffers;
  return MemoryEstimate{
      .weights_bytes = plan->weights().resident_bytes(),
      .kv_bytes_per_token = layout.block_bytes() / kKvBlockTokens,
      .n_tokens = program.context_length,
      .kv_bytes =
          layout.page_bytes * pages_of_context(page_kinds(program, layout), program.context_length,
                                               limits.rows, layout.block_tokens),
      .buffer_bytes = buffers.lay_out(plan->loaded(), program, limits, UINT64_MAX).bytes(),
      .n_prediction_blocks = program.n_prediction_blocks,
      .prediction_bytes = prediction_bytes(file, program)};
}

std::string shape_of(const GgufTensor& tensor) {
  std::string shape = std::to_string(tensor.dims[0]);
  for (uint32_t i = 1; i < tensor.n_dims; ++i) shape += " x " + std::to_string(tensor.dims[i]);
  return shape;
}

void print_model(const InfoOptions& options, const GgufFile& file) {
  const std::string in_files =
      file.n_parts() == 1 ? "" : fmt::format(" in {} files", file.n_parts());
  print_text("{}: GGUF v{}, {} bytes{}, {} tensors\n\nmetadata\n", options.model, file.version(),
             file.size_bytes(), in_files, file.tensors().size());
  for (const GgufValue& value : file.metadata()) {
    print_text("  {} = {}\n", printable(value.key), value.describe());
  }
  print_text("\ntensors\n");
  for (const GgufTensor& tensor : file.tensors()) {
    print_text("  {:<40} {:>8}  {}\n", printable(tensor.name), tensor.type->name, shape_of(tensor));
  }
  const Result<MemoryEstimate> memory = estimate_memory(file);
  if (!memory.ok()) {
    print_text("\nnot a model Pumice can run: {}\n", memory.error().message);
    return;
  }
  const auto mebibytes = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  print_text("\nmemory estimate (one sequence, F16 KV)\n");
  print_text("  weights      {:>10.1f} MiB\n", mebibytes(memory->weights_bytes));
  print_text("  KV cache     {:>10.1f} MiB for {} tokens, {} bytes a token\n",
             mebibytes(memory->kv_bytes), memory->n_tokens, memory->kv_bytes_per_token);
  print_text("  buffers      {:>10.1f} MiB\n", mebibytes(memory->buffer_bytes));
  if (memory->n_prediction_blocks > 0) {
    print_text("  not loaded   {:>10.1f} MiB of {} that predict{} tokens after the next\n",
               mebibytes(memory->prediction_bytes),
               memory->n_prediction_blocks == 1
                   ? "a block"
                   : fmt::format("{} blocks", memory->n_prediction_blocks),
               memory->n_prediction_blocks == 1 ? "s" : "");
  }
}

void print_model_json(const InfoOptions& options, const GgufFile& file) {
  Json json{{"file", options.model},
            {"files", file.n_parts()},
            {"gguf_version", file.version()},
            {"size_bytes", file.size_bytes()}};
  json["metadata"] = Json::object();
  for (const GgufValue& value : file.metadata())
    json["metadata"][std::string(value.key)] = value.describe();
  json["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    json["tensors"].push_back(
        {{"name", tensor.name},
         {"type", tensor.type->name},
         {"shape", std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims)},
         {"bytes", tensor.n_bytes}});
  }
  const Result<MemoryEstimate> memory = estimate_memory(file);
  json["runnable"] = memory.ok();
  if (memory.ok()) {
    json["memory"] = {{"weights_bytes", memory->weights_bytes},
                      {"kv_bytes_per_token", memory->kv_bytes_per_token},
                      {"kv_bytes", memory->kv_bytes},
                      {"buffer_bytes", memory->buffer_bytes}};
    json["prediction"] = {{"blocks", memory->n_prediction_blocks},
                          {"bytes", memory->prediction_bytes},
                          {"loaded", false}};
  } else {
    json["reason"] = memory.error().message;
  }
  print_json(json);
}

Json program_json(const Program& program) {
  Json json{{"architecture", program.architecture}, {"n_layers", program.layers.size()}};
  for (const StateGroup& group : program.state_groups) {
    json["state_groups"].push_back({{"name", group.name},
                                    {"n_slots", group.n_slots},
                                    {"n_kv_heads", group.n_kv_heads},
                                    {"head_dim", group.head_dim},
                                    {"latent_dim", group.latent_dim},
                                    {"v_dim", group.v_dim},
                                    {"window", group.window},
                                    {"state_floats", group.state_floats}});
  }
  size_t layer = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const OpText text = describe_op(program, program.ops[i]);
    Json op{{"result", text.result},       {"op", text.kind},
            {"inputs", text.inputs},       {"tensors", text.tensors},
            {"constants", text.constants}, {"width", program.values[program.ops[i].result].width}};
    while (layer < program.layers.size() && i >= program.layers[layer].end_op) ++layer;
    const bool inside = layer < program.layers.size() && i >= program.layers[layer].first_op;
    op["layer"] = inside ? Json(program.predicting_block + layer) : Json(nullptr);
    json["ops"].push_back(std::move(op));
  }
  return json;
}

Status print_program(const InfoOptions& options) {
  PUMICE_TRY(const ModelSource source, ModelSource::open(from_utf8(options.model)));
  PUMICE_TRY(const Program program, build_program(source));
  Json json{{"file", options.model}, {"program", program_json(program)}};
  if (!options.json) print_text("{}", program_text(program));
  if (program.n_prediction_blocks > 0) {
    // What is wrong with the block is nothing that decoding reads.
    const Result<Program> prediction = build_prediction(source);
    json["prediction"] =
        prediction.ok() ? program_json(*prediction) : Json{{"reason", prediction.error().message}};
    if (!options.json) {
      print_text("\nblock {}, which predicts the token after the next{}", program.layers.size(),
                 prediction.ok() ? "\n" + program_text(*prediction)
                                 : ": " + prediction.error().message + "\n");
    }
  }
  if (options.json) print_json(json);
  return {};
}

Status info(InfoOptions options) {
  if (options.device.list) return print_devices(stderr_logger(options.verbose));
  if (options.self_test_option->count() > 0) {
    return run_self_test_command(options.device, options.self_test, options.json,
                                 stderr_logger(options.verbose));
  }
  PUMICE_TRY_STATUS(options.hub.resolve(options.model));
  if (options.fit) {
    return print_fit(options.fit_options, options.model, options.device, options.json,
                     stderr_logger(options.verbose));
  }
  if (options.program && options.model.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "--program needs a model: give one with -m FILE or -hf user/repo");
  }
  if (options.model.empty()) return show_devices(options);
  if (options.program) return print_program(options);
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model)));
  options.json ? print_model_json(options, file) : print_model(options, file);
  return {};
}

}  // namespace

Command add_info(CLI::App& app) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* command = app.add_subcommand("info", "Describe this machine's devices, or a GGUF file");
  command->add_option("-m,--model", options->model,
                      "Describe this GGUF file instead of the devices");
  options->hub.add_to(*command);
  command->add_flag("--program", options->program,
                    "Of the GGUF file: what the model computes, operation by operation");
  CLI::Option* const fit =
      command->add_flag("--fit", options->fit,
                        "What running the model takes of the device's memory, and what would fit; "
                        "nothing is loaded");
  options->fit_options.add_to(*command, fit);
  options->device.add_to(*command);
  options->self_test_option =
      command
          ->add_option("--self-test", options->self_test,
                       "Test the kernels on the device, or those of these ops, and remember which\n"
                       "of them to use")
          ->type_name("[OP,...]")
          ->expected(0, 1)
          ->excludes("--model")
          ->excludes("--hf");
  command->add_flag("--json", options->json, "Print JSON");
  command
      ->add_flag("-v,--verbose", options->verbose,
                 "Show all that is known about devices, and log every stage to stderr")
      ->envname("PUMICE_VERBOSE");
  command->footer(
      "Examples:\n  pumice info\n  pumice info -m model.gguf --json\n"
      "  pumice info -m model.gguf --program\n"
      "  pumice info -m model.gguf --fit -c 32768\n"
      "  pumice info --self-test --device 0");
  return {command, [options] { return info(*options); }};
}

}  // namespace pumice::tools
