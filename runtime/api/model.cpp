// The C ABI: models and their texts.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "api/structs.hpp"
#include "format/gguf.hpp"
#include "models/model_plan.hpp"
#include "models/vocabulary_loader.hpp"
#include "text/detokenizer.hpp"

namespace pumice::api {
namespace {

Result<ChatFormat> format_of(const GgufFile& file, const Vocabulary& vocabulary) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (file.find(kKey) == nullptr) return ChatFormat();
  PUMICE_TRY(const std::string_view source, file.get<std::string_view>(kKey));
  return ChatFormat::create(source, vocabulary);
}

pumice_model_info info_of(const Model& loaded, const pumice_model& model) {
  const Program& program = loaded.program;
  pumice_model_info info{sizeof info};
  write_text(program.name, info.name);
  write_text(program.architecture, info.architecture);
  info.resident_bytes = loaded.weights->now()->resident_bytes();
  info.n_vocabulary = program.n_vocab;
  info.n_layers = loaded.n_layers();
  info.trained_context_tokens = program.context_length;
  info.has_chat_template = model.format->ok() && !(*model.format)->is_plain();
  return info;
}

Result<std::unique_ptr<pumice_model>> load(const pumice_device& device,
                                           const pumice_model_options* given) {
  PUMICE_TRY(const pumice_model_options options, read_struct(given, "options"));
  PUMICE_TRY(const std::string_view path, read_path(options.path, "path"));
  if (path.empty()) return make_error(ErrorCode::kInvalidArgument, "path is empty");
  PUMICE_TRY(std::filesystem::path whole_path, absolute_path(path));
  auto model = std::make_unique<pumice_model>();
  model->owner = device.owner;
  PUMICE_TRY(const GgufFile file, GgufFile::open(path));
  PUMICE_TRY(Tokenizer tokenizer, load_tokenizer(file));
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(file));
  PUMICE_TRY(EngineOptions engine,
             read_engine_options(options.engine, "engine", plan->program().context_length));
  model->request = {.path = std::move(whole_path),
                    .engine = std::move(engine),
                    .engine_may_differ = options.engine == nullptr};
  PUMICE_TRY(host::OpenedModel opened, device.owner->load(model->request, plan));
  const std::shared_ptr<const Model> loaded = opened.model;
  const auto reload = [owner = model->owner, request = model->request] {
    return owner->load(request);
  };
  // One try, and as many losses as there are: hosts that poll are not to sleep in it.
  model->recovery = std::make_shared<host::Recovery>(
      std::move(opened), reload,
      host::RecoveryOptions{.attempts = 1,
                            .losses_in_a_row = std::numeric_limits<uint32_t>::max()});
  device.owner->add(model->recovery, model->request);
  model->tokenizer = std::make_shared<const Tokenizer>(std::move(tokenizer));
  model->format =
      std::make_shared<const Result<ChatFormat>>(format_of(file, model->tokenizer->vocabulary()));
  if (!model->format->ok()) {
    device.owner->options().logger.warning("the model's chat template is not used: {}",
                                           model->format->error().message);
  }
  model->info = info_of(*loaded, *model);
  return model;
}

ApiStatus tokenize(const pumice_model* model, pumice_string text, pumice_bool special,
                   uint32_t* tokens, size_t capacity, size_t* n_tokens) {
  PUMICE_TRY_STATUS(check_output_array(tokens, capacity, n_tokens));
  PUMICE_TRY_STATUS(check_handle(model, "model"));
  PUMICE_TRY(const std::string_view view, read_text(text, "text"));
  PUMICE_TRY(const bool is_special, read_bool(special, "special"));
  PUMICE_TRY(
      const std::vector<TokenId> ids,
      model->tokenizer->encode(view, {.add_special = is_special, .parse_special = is_special}));
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
  const std::string bytes = detokenize(*model->tokenizer, ids);
  return write_array(std::span<const char>(bytes), text, capacity, n_bytes);
}

}  // namespace

Result<host::OpenedModel> opened_model(const pumice_model& model) {
  host::OpenedModel opened = model.recovery->opened();
  const bool is_current = opened.device != nullptr && !opened.device->is_lost() &&
                          opened.device == model.owner->device();
  if (is_current) return opened;
  opened = {};  // which would keep it
  PUMICE_TRY_STATUS(model.recovery->replace([&] { return model.owner->load(model.request); }, {}));
  return model.recovery->opened();
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

void pumice_model_close(pumice_model* model) {
  if (model == nullptr) return;
  (void)guarded([&]() -> ApiStatus {
    PUMICE_TRY_STATUS(check_handle(model, "model"));
    delete model;
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
