#include "host/load_model.hpp"

#include <algorithm>
#include <utility>

#include "format/gguf.hpp"
#include "models/embedding.hpp"
#include "models/model_plan.hpp"

namespace pumice::host {
namespace {

constexpr uint32_t kDefaultContextTokens = 4096;

Result<std::shared_ptr<const ModelPlan>> plan_of(const ModelSource& source,
                                                 const LoadOptions& options) {
  if (!options.embeds) return ModelPlan::of_source(source, options.predicts);
  PUMICE_TRY(Program program, build_embedding_program(source, options.pooling));
  if (*program.pooling == Pooling::kNone) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "the vectors of a text's tokens must become one: give a pooling, mean, cls or "
        "last, as the model was trained");
  }
  return ModelPlan::of_program(source, std::move(program));
}

}  // namespace

uint32_t default_context_tokens(uint32_t trained_context_tokens) {
  return std::min(trained_context_tokens, kDefaultContextTokens);
}

Result<ModelSource> source_of(const GgufFile& file, const LoadOptions& options,
                              const LoadWatch& watch) {
  std::vector<AdapterSource> adapters;
  for (const AdapterRequest& adapter : options.adapters) {
    PUMICE_TRY(GgufFile opened, GgufFile::open(adapter.path, watch.opening(adapter.open_file)));
    PUMICE_TRY(
        adapters.emplace_back(),
        AdapterSource::of_file(adapter.name, std::make_shared<const GgufFile>(std::move(opened)),
                               adapter.scale));
  }
  return ModelSource(file).with_adapters(std::move(adapters));
}

Result<std::shared_ptr<ModelOwner>> load_model(std::shared_ptr<DeviceOwner> device,
                                               LoadOptions options, const LoadWatch& watch) {
  ModelRequest& request = options.request;
  PUMICE_TRY(const GgufFile file, GgufFile::open(request.path, watch.opening(request.open_file)));
  PUMICE_TRY(ModelTexts texts,
             ModelTexts::read(file, options.chat_template, options.answer_format));
  PUMICE_TRY(const ModelSource source, source_of(file, options, watch));
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan, plan_of(source, options));
  if (request.engine.context_tokens == 0) {
    request.engine.context_tokens = default_context_tokens(plan->program().context_length);
  }
  request.plan = plan;
  const auto loading = [&](uint64_t done, uint64_t total) {
    if (watch.on_progress) watch.on_progress({LoadProgress::Phase::kWeights, done, total});
  };
  const Logger logger = device->options().logger;
  PUMICE_TRY(std::shared_ptr<ModelOwner> owner,
             ModelOwner::load(std::move(device), std::move(request), source, std::move(texts),
                              loading, std::move(plan)));
  const Result<ChatFormat>& format = *owner->texts().format;
  if (!format.ok()) {
    logger.warning("the model's chat template is not used: {}", format.error().message);
  }
  return owner;
}

}  // namespace pumice::host
