#include "host/draft_model.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"
#include "base/printable.hpp"
#include "format/gguf.hpp"
#include "models/families.hpp"
#include "models/vocabulary_loader.hpp"

namespace pumice::host {
namespace {

/// For greedy requests, one at a time.
Result<std::unique_ptr<Engine>> drafting_engine(const OpenedModel& beside,
                                                const ModelSource& source,
                                                std::shared_ptr<const ModelPlan> plan,
                                                uint32_t context_tokens) {
  OpenedModel own = beside;
  const uint32_t most = std::min({beside.model->program.context_length,
                                  plan->program().context_length, DraftModel::kMostContext});
  EngineOptions engine{.context_tokens = context_tokens != 0 ? context_tokens : most};
  engine.spare_logit_rows = 0;
  engine.greedy_only = true;
  own.options.plan = std::move(plan);
  own.options.engine = engine;
  own.options.engine_may_differ = false;
  PUMICE_TRY_STATUS(own.load(source));
  return own.make_engine(engine);
}

}  // namespace

Status check_same_vocabulary(const Vocabulary& model, const Vocabulary& draft,
                             std::string_view draft_name) {
  const size_t n_common = std::min(model.size(), draft.size());
  for (TokenId id = 0; id < n_common; ++id) {
    if (model.text(id) == draft.text(id)) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{} has another vocabulary: token {} is \"{}\" in it and \"{}\" in the model",
                      draft_name, id, printable(draft.text(id)), printable(model.text(id)));
  }
  const Vocabulary& longer = model.size() > draft.size() ? model : draft;
  for (size_t id = n_common; id < longer.size(); ++id) {
    if (longer.type(static_cast<TokenId>(id)) == TokenType::kUnused) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "{} has another vocabulary: it has {} tokens and the model {}, of which "
                      "number {} is \"{}\"",
                      draft_name, draft.size(), model.size(), id,
                      printable(longer.text(static_cast<TokenId>(id))));
  }
  return {};
}

Result<std::shared_ptr<DraftModel>> DraftModel::load(const OpenedModel& beside,
                                                     const Vocabulary& vocabulary,
                                                     const std::filesystem::path& file,
                                                     uint32_t context_tokens,
                                                     const OpenFile& open_file) {
  PUMICE_TRY(const GgufFile gguf, GgufFile::open(file, open_file));
  {
    PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(gguf));
    PUMICE_TRY_STATUS(
        check_same_vocabulary(vocabulary, tokenizer.vocabulary(), to_utf8(file.filename())));
  }
  const ModelSource source(gguf);
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan, ModelPlan::of_source(source));
  PUMICE_TRY(std::unique_ptr<Engine> engine,
             drafting_engine(beside, source, std::move(plan), context_tokens));
  return std::shared_ptr<DraftModel>(new DraftModel(std::move(engine), beside.options.logger));
}

Guess DraftModel::guess(std::span<const TokenId> tokens, uint32_t most) {
  const Engine* const engine = engine_.engine();
  if (engine == nullptr || tokens.size() + most > engine->options().context_tokens) return {};
  return engine_.guess({.prompt = {tokens.begin(), tokens.end()}, .max_new_tokens = most});
}

Result<std::shared_ptr<PredictionDrafter>> load_prediction(const OpenedModel& beside,
                                                           const ModelSource& source,
                                                           uint32_t context_tokens) {
  PUMICE_TRY(Program block, build_prediction(source));
  PUMICE_TRY(block, with_hidden_rows(std::move(block)));
  PUMICE_TRY(std::shared_ptr<const ModelPlan> plan,
             ModelPlan::of_program(source, std::move(block)));
  PUMICE_TRY(std::unique_ptr<Engine> engine,
             drafting_engine(beside, source, std::move(plan), context_tokens));
  return std::make_shared<PredictionDrafter>(std::move(engine), beside.options.logger);
}

}  // namespace pumice::host
