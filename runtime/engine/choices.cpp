#include "engine/choices.hpp"

#include <algorithm>
#include <utility>

namespace pumice {

Result<Choices> Choices::submit(Engine& engine, GenerationRequest request, uint32_t n) {
  if (n == 0) return make_error(ErrorCode::kInvalidArgument, "no choices are asked for");
  Choices choices(engine, std::move(request), n);
  PUMICE_TRY(const RequestId first, engine.submit(choices.request_));
  choices.ids_.push_back(first);
  return choices;
}

/// The prompt is read when the first has a token, or has ended otherwise.
Result<std::optional<uint32_t>> Choices::take(const StepEvent& event) {
  const auto it = std::ranges::find(ids_, event.request);
  if (it == ids_.end()) return std::optional<uint32_t>();
  const auto choice = static_cast<uint32_t>(it - ids_.begin());
  if (event.finished) ++n_ended_;
  if (event.token || event.finished) {
    while (ids_.size() < n_) {
      GenerationRequest other = request_;
      other.sampling.seed += ids_.size();
      PUMICE_TRY(const RequestId id, engine_->submit(std::move(other)));
      ids_.push_back(id);
    }
  }
  return std::optional(choice);
}

}  // namespace pumice
