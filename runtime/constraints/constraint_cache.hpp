// Constraints that requests ask for again and again are made once.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "constraints/constraint_compiler.hpp"

namespace pumice {

/// Any thread.
class ConstraintCache {
 public:
  explicit ConstraintCache(std::shared_ptr<ConstraintCompiler> compiler)
      : compiler_(std::move(compiler)) {}

  /// That of `key`, which says all that `make` depends on. Errors: those of `make` and of
  /// ConstraintCompiler::compile; they are not kept.
  Result<std::shared_ptr<const Constraint>> get(const std::string& key,
                                                const std::function<Result<Grammar>()>& make);

 private:
  static constexpr size_t kMostKept = 32;

  const std::shared_ptr<ConstraintCompiler> compiler_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Constraint>>> kept_;  // latest first
};

}  // namespace pumice
