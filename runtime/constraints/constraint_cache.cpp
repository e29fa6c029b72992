#include "constraints/constraint_cache.hpp"

#include <algorithm>

namespace pumice {

Result<std::shared_ptr<const Constraint>> ConstraintCache::get(
    const std::string& key, const std::function<Result<Grammar>()>& make) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(kept_.begin(), kept_.end(),
                                 [&](const auto& entry) { return entry.first == key; });
    if (it != kept_.end()) {
      kept_.splice(kept_.begin(), kept_, it);
      return it->second;
    }
  }
  // Two requests may make the same; a lock would make all others wait.
  PUMICE_TRY(Grammar grammar, make());
  PUMICE_TRY(std::shared_ptr<const Constraint> made, compiler_->compile(std::move(grammar)));
  const std::lock_guard lock(mutex_);
  kept_.emplace_front(key, made);
  if (kept_.size() > kMostKept) kept_.pop_back();
  return made;
}

}  // namespace pumice
