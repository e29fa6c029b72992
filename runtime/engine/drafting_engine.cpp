#include "engine/drafting_engine.hpp"

#include <utility>
#include <vector>

namespace pumice {

Guess DraftingEngine::guess(GenerationRequest request) {
  if (engine_ == nullptr) return {};
  Result<Guess> said = say(std::move(request));
  if (said.ok()) return *std::move(said);
  logger_.warning("{} guesses no more: {}", what_, said.error().message);
  engine_.reset();
  return {};
}

Result<Guess> DraftingEngine::say(GenerationRequest request) {
  PUMICE_TRY_STATUS(engine_->submit(std::move(request)));
  Guess guess;
  while (!engine_->idle()) {
    PUMICE_TRY(const std::vector<StepEvent> events, engine_->step());
    for (const StepEvent& event : events) {
      if (event.token) guess.tokens.push_back(*event.token);
    }
  }
  return guess;
}

}  // namespace pumice
