// Arguments of a call by parameter, as Python binds them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/result.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

class Bound {
 public:
  /// `what` names the function in errors, of which there are for missing and unknown arguments.
  /// The first `n_required` parameters must be given.
  static Result<Bound> bind(std::string_view what, const Arguments& arguments,
                            std::initializer_list<std::string_view> parameters,
                            size_t n_required = 0);

  /// For functions without parameters.
  static Status none(std::string_view what, const Arguments& arguments) {
    const Result<Bound> bound = bind(what, arguments, {});
    return bound.ok() ? Status() : Status(bound.error());
  }

  /// Null where the caller gave none.
  const Value* operator[](size_t i) const { return values_[i]; }
  bool has(size_t i) const { return values_[i] != nullptr && !values_[i]->is_none(); }
  Value value(size_t i, Value fallback) const { return values_[i] ? *values_[i] : fallback; }
  bool truth(size_t i, bool fallback) const {
    return values_[i] == nullptr ? fallback : is_true(*values_[i]);
  }
  /// Errors where it is given and no integer (no string). None counts as not given.
  Result<int64_t> integer(size_t i, int64_t fallback) const;
  /// A view of the argument.
  Result<std::string_view> text(size_t i, std::string_view fallback) const;

 private:
  Budget* budget_ = nullptr;
  std::string_view what_;
  std::array<const Value*, 8> values_{};  ///< more than any of them takes
};

}  // namespace pumice::jinja
