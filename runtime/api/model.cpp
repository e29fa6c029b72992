// The C ABI: models and their texts.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/files.hpp"
#include "api/handles.hpp"
#include "api/options.hpp"
#include "api/structs.hpp"
#include "engine/memory_plan.hpp"
#include "format/gguf.hpp"
#include "host/load_model.hpp"
#include "models/model_plan.hpp"
#include "text/detokenizer.hpp"

namespace pumice::api {
namespace {

pumice_model_info info_of(const Model& loaded, const host::ModelTexts& texts) {
  const Program& program = loaded.program;
  pumice_model_info info{sizeof info};
  write_text(program.name, info.name);
  write_text(program.architecture, info.architecture);
  info.resident_bytes = loaded.weights->now()->resident_bytes();
  info.n_vocabulary = program.n_vocab;
  info.n_layers = loaded.n_layers();
  info.trained_context_tokens = program.context_length;
  info.has_chat_template = texts.format->ok() && !(*texts.format)->is_plain();
  return info;
}

Result<std::unique_ptr<pumice_model>> load(const pumice_device& device,
                                           const pumice_model_options* given) {
  PUMICE_TRY(host::LoadOptions options, read_model_options(given));
  PUMICE_TRY(std::shared_ptr<host::ModelOwner> owner,
             host::load_model(device.owner, std::move(options)));
  return make_model(std::move(owner));
}

Result<pumice_memory_estimate> estimate_of(const pumice_device& device,
                                           const pumice_model_options* given) {
  PUMICE_TRY(const host::LoadOptions options, read_model_options(given));
  if (options.embeds) {
    return make_error(ErrorCode::kInvalidArgument,
                      "an estimate is of a model and its engine: leave `embeds` 0");
  }
  PUMICE_TRY(const GgufFile file, GgufFile::open(options.request.path, options.request.open_file));
  PUMICE_TRY(const ModelSource source, host::source_of(file, options));
  PUMICE_TRY(const std::shared_ptr<const ModelPlan> plan,
             ModelPlan::of_source(source, options.predicts));
  const uint32_t trained = plan->program().context_length;
  EngineOptions engine = options.request.engine;
  if (engine.context_tokens == 0) engine.context_tokens = host::default_context_tokens(trained);
  std::optional<DeviceMemory> memory;
  PUMICE_TRY_STATUS(
      device.owner->with_device([&](vk::Device& opened) { memory = device_memory(opened); }));
  PUMICE_TRY(const MemoryPlanner planner, MemoryPlanner::of_plan(plan, *memory, engine.fusion));
  PUMICE_TRY(const MemoryPlan planned, planner.plan(engine));
  pumice_memory_estimate estimate{sizeof estimate};
  estimate.fits = planner.fits(planned);
  estimate.context_tokens = planned.context_tokens;
  estimate.most_context_tokens = planner.largest_context(engine, trained);
  estimate.trained_context_tokens = trained;
  estimate.total_bytes = planned.budgeted_bytes;
  estimate.weight_bytes = planned.bytes(MemoryUse::kWeights) - planned.beside_bytes;
  estimate.kv_bytes = planned.bytes(MemoryUse::kKv);
  estimate.activation_bytes = planned.bytes(MemoryUse::kActivations);
  estimate.weight_bytes_beside = planned.beside_bytes;
  estimate.free_bytes = memory->free_bytes;
  return estimate;
}

ApiStatus tokenize(const pumice_model* model, pumice_string text, pumice_bool special,
                   uint32_t* tokens, size_t capacity, size_t* n_tokens) {
  PUMICE_TRY_STATUS(check_output_array(tokens, capacity, n_tokens));
  PUMICE_TRY_STATUS(check_handle(model, "model"));
  PUMICE_TRY(const std::string_view view, read_text(text, "text"));
  PUMICE_TRY(const bool is_special, read_bool(special, "special"));
  PUMICE_TRY(const std::vector<TokenId> ids,
             model->owner->texts().tokenizer->encode(
                 view, {.add_special = is_special, .parse_special = is_special}));
  return write_array(std::span<const uint32_t>(ids), tokens, capacity, n_tokens);
}

ApiStatus detokenize_to(const pumice_model* model, const uint32_t* tokens, size_t n_tokens,
                        char* text, size_t capacity, size_t* n_bytes) {
  PUMICE_TRY_STATUS(check_output_array(text, capacity, n_bytes));
  PUMICE_TRY_STATUS(check_handle(model, "model"));
  PUMICE_TRY(const std::span<const uint32_t> ids, read_array(tokens, n_tokens, "tokens"));
  const uint32_t n_vocab = model->info.n_vocabulary;
  for (const uint32_t id : ids) {
    if (id >= n_vocab) return invalid("token {} is outside the vocabulary of {}", id, n_vocab);
  }
  const std::string bytes = detokenize(*model->owner->texts().tokenizer, ids);
  return write_array(std::span<const char>(bytes), text, capacity, n_bytes);
}

}  // namespace

Result<std::unique_ptr<pumice_model>> make_model(std::shared_ptr<host::ModelOwner> owner) {
  PUMICE_TRY(const host::OpenedModel opened, owner->current());
  auto model = std::make_unique<pumice_model>();
  model->info = info_of(*opened.model, owner->texts());
  model->owner = std::move(owner);
  return model;
}

}  // namespace pumice::api

using namespace pumice;
using namespace pumice::api;

pumice_status pumice_model_load(pumice_device* device, const pumice_model_options* options,
                                pumice_model** model) {
  return guarded([&]() -> ApiStatus {
    if (model == nullptr) return invalid("model is NULL");
    *model = nullptr;
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    Result<std::unique_ptr<pumice_model>> loaded = load(*device, options);
    if (!loaded.ok()) return loaded.error();
    *model = loaded->release();
    return {};
  });
}

pumice_status pumice_model_get_info(const pumice_model* model, pumice_model_info* info) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(info, "info"));
    write_struct(pumice_model_info{}, info);
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    write_struct(model->info, info);
    return {};
  });
}

pumice_status pumice_model_estimate(pumice_device* device, const pumice_model_options* options,
                                    pumice_memory_estimate* estimate) {
  return guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_struct(estimate, "estimate"));
    write_struct(pumice_memory_estimate{}, estimate);
    PUMICE_TRY_STATUS(check_handle(device, "device"));
    const Result<pumice_memory_estimate> estimated = estimate_of(*device, options);
    if (!estimated.ok()) return estimated.error();
    write_struct(*estimated, estimate);
    return {};
  });
}

void pumice_model_close(pumice_model* model) {
  if (model == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    delete model;
    return {};
  });
}

pumice_status pumice_constraint_compile(const pumice_model* model,
                                        const pumice_constraint_options* options,
                                        pumice_constraint** constraint) {
  return guarded([&]() -> ApiStatus {
    if (constraint == nullptr) return invalid("constraint is NULL");
    *constraint = nullptr;
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    PUMICE_TRY(const ConstraintText given, read_constraint_options(options));
    PUMICE_TRY(std::shared_ptr<const Constraint> compiled,
               model->owner->texts().constraints->compile(given.kind, given.text));
    *constraint =
        new pumice_constraint{.constraint = std::move(compiled),
                              .wish = {.kind = given.kind, .text = std::string(given.text)}};
    return {};
  });
}

void pumice_constraint_close(pumice_constraint* constraint) {
  if (constraint == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(constraint, "constraint"));
    delete constraint;
    return {};
  });
}

pumice_status pumice_tokenize(const pumice_model* model, pumice_string text, pumice_bool special,
                              uint32_t* tokens, size_t capacity, size_t* n_tokens) {
  return guarded([&] { return tokenize(model, text, special, tokens, capacity, n_tokens); });
}

pumice_status pumice_detokenize(const pumice_model* model, const uint32_t* tokens, size_t n_tokens,
                                char* text, size_t capacity, size_t* n_bytes) {
  return guarded([&] { return detokenize_to(model, tokens, n_tokens, text, capacity, n_bytes); });
}
