// An engine that another one's guesses come from.
#pragma once

#include <memory>
#include <utility>

#include "base/log.hpp"
#include "engine/drafter.hpp"
#include "engine/engine.hpp"

namespace pumice {

/// Waits for the device, so not for hosts with frames to draw. Not thread-safe.
class DraftingEngine {
 public:
  /// `what` in a warning: "the draft model".
  DraftingEngine(std::unique_ptr<Engine> engine, const char* what, const Logger& logger)
      : engine_(std::move(engine)), what_(what), logger_(logger) {}

  /// Null once it has failed.
  const Engine* engine() const { return engine_.get(); }
  /// What the request generates. Nothing, and nothing more, with a warning, once a device was lost
  /// or a step failed.
  Guess guess(GenerationRequest request);

 private:
  Result<Guess> say(GenerationRequest request);

  std::unique_ptr<Engine> engine_;
  const char* what_;
  Logger logger_;
};

}  // namespace pumice
