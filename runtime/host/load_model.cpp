#include "host/load_model.hpp"

#include <algorithm>
#include <utility>

#include "format/gguf.hpp"
#include "models/embedding.hpp"
#include "models/model_plan.hpp"

namespace pumice::host {
namespace {

constexpr uint32_t kDefaultContextTokens = 4096;

Result<std::shared_ptr<const ModelPlan>> plan_of(const GgufFile& file, const LoadOptions& options) {
  if (!options.embeds) return ModelPlan::of_source(file, options.predicts);
  PUMICE_TRY(Program program, build_embedding_program(file, options.pooling));
  if (*program.pooling == Pooling::kNone) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "the vectors of a text's tokens must become one: give a pooling, mean, cls or "
        "last, as the model was trained");
  }
  return ModelPlan::of_program(file, std::move(program));
}

}  // namespace

uint32_t default_context_tokens(uint32_t trained_context_tokens) {
  return std::min(trained_context_tokens, kDefaultContextTokens);
}

Result<std::shared_ptr<ModelOwner>> load_model(std::shared_ptr<DeviceOwner> device,
                                               LoadOptions options, const LoadWatch& watch) {
  ModelRequest& request = options.request;
  PUMICE_TRY(const GgufFile file,
             GgufFile::open(request.path, watch.open_file ? watch.open_file : request.open_file));
  PUMICE_TRY(ModelTexts texts,
             ModelTexts::read(file, options.chat_template, options.answer_format));
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan, plan_of(file, options));
  if (request.engine.context_tokens == 0) {
    request.engine.context_tokens = default_context_tokens(plan->program().context_length);
  }
  request.plan = plan;
  const auto loading = [&](uint64_t done, uint64_t total) {
    if (watch.on_progress) watch.on_progress({LoadProgress::Phase::kWeights, done, total});
  };
  const Logger logger = device->options().logger;
  PUMICE_TRY(std::shared_ptr<ModelOwner> owner,
             ModelOwner::load(std::move(device), std::move(request), file, std::move(texts),
                              loading, std::move(plan)));
  const Result<ChatFormat>& format = *owner->texts().format;
  if (!format.ok()) {
    logger.warning("the model's chat template is not used: {}", format.error().message);
  }
  return owner;
}

}  // namespace pumice::host
