// Several continuations of one prompt, whose prompt is computed once: the others begin when it has been
// read, and find it in the cache. What is computed for each is the block that the prompt's end lies in,
// at most, and its own text.
#pragma once

#include <optional>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"

namespace pumice {

/// Not thread-safe; the engine must outlive it. It ends no request: who has no use for the rest
/// cancels the ids.
class Choices {
 public:
  /// Choice i is what the request says with its seed + i. They run beside one another where the
  /// engine has that many sequences (EngineOptions::n_sequences), else as they find room. Errors:
  /// those of Engine::submit, kInvalidArgument for none.
  static Result<Choices> submit(Engine& engine, GenerationRequest request, uint32_t n);

  /// Which choice an event of the engine is of; none: another request's. To be called with all
  /// events, as it submits the others. Errors: those of Engine::submit.
  Result<std::optional<uint32_t>> take(const StepEvent& event);

  /// By choice, as far as they are submitted.
  const std::vector<RequestId>& ids() const { return ids_; }
  /// Every choice has had its last event.
  bool ended() const { return n_ended_ == n_; }

 private:
  Choices(Engine& engine, GenerationRequest request, uint32_t n)
      : engine_(&engine), request_(std::move(request)), n_(n) {}

  Engine* engine_;
  GenerationRequest request_;
  uint32_t n_;
  uint32_t n_ended_ = 0;
  std::vector<RequestId> ids_;
};

}  // namespace pumice
