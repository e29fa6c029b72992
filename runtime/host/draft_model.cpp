#include "host/draft_model.hpp"

#include <algorithm>
#include <utility>

#include "base/path.hpp"
#include "base/printable.hpp"
#include "format/gguf.hpp"
#include "models/vocabulary_loader.hpp"

namespace pumice::host {

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
                                                     uint32_t context_tokens) {
  {
    PUMICE_TRY(const GgufFile gguf, GgufFile::open(file));
    PUMICE_TRY(const Tokenizer tokenizer, load_tokenizer(gguf));
    PUMICE_TRY_STATUS(
        check_same_vocabulary(vocabulary, tokenizer.vocabulary(), to_utf8(file.filename())));
  }
  PUMICE_TRY(const ModelSource source, ModelSource::open(file));
  OpenedModel own = beside;
  PUMICE_TRY(own.options.plan, ModelPlan::of_source(source));
  const uint32_t trained = own.options.plan->program().context_length;
  const uint32_t most = std::min({beside.model->program.context_length, trained, kMostContext});
  EngineOptions engine{.context_tokens = context_tokens != 0 ? context_tokens : most};
  engine.spare_logit_rows = 0;
  engine.greedy_only = true;
  own.options.engine = engine;
  own.options.engine_may_differ = false;
  PUMICE_TRY_STATUS(own.load(source));
  PUMICE_TRY(std::unique_ptr<Engine> made, own.make_engine(engine));
  return std::shared_ptr<DraftModel>(new DraftModel(std::move(made), beside.options.logger));
}

Guess DraftModel::guess(std::span<const TokenId> tokens, uint32_t most) {
  if (engine_ == nullptr || tokens.size() + most > engine_->options().context_tokens) return {};
  Result<Guess> said = say(tokens, most);
  if (said.ok()) return *std::move(said);
  logger_.warning("the draft model guesses no more: {}", said.error().message);
  engine_.reset();
  return {};
}

Result<Guess> DraftModel::say(std::span<const TokenId> tokens, uint32_t most) {
  PUMICE_TRY_STATUS(
      engine_->submit({.prompt = {tokens.begin(), tokens.end()}, .max_new_tokens = most}));
  Guess guess;
  while (!engine_->idle()) {
    PUMICE_TRY(const std::vector<StepEvent> events, engine_->step());
    for (const StepEvent& event : events) {
      if (event.token) guess.tokens.push_back(*event.token);
    }
  }
  return guess;
}

}  // namespace pumice::host
