#include "text/jinja/arguments.hpp"

#include <algorithm>

#include "base/printable.hpp"

namespace pumice::jinja {

Result<Bound> Bound::bind(std::string_view what, const Arguments& arguments,
                          std::initializer_list<std::string_view> parameters, size_t n_required) {
  Bound bound;
  bound.what_ = what;
  bound.budget_ = &budget_of(arguments.positional);
  if (arguments.positional.size() > parameters.size()) {
    return fail("{}() takes at most {} arguments ({} given)", what, parameters.size(),
                arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto* known = std::ranges::find(parameters, name);
    const auto i = static_cast<size_t>(known - parameters.begin());
    if (known == parameters.end() || bound.values_[i] != nullptr) {
      return fail("{}() got an unexpected or repeated argument '{}'", what, printable(name, 40));
    }
    bound.values_[i] = &value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (bound.values_[i] == nullptr) {
      return fail("{}() misses its argument '{}'", what, *(parameters.begin() + i));
    }
  }
  return bound;
}

Result<int64_t> Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  if (const auto value = values_[i]->integer()) return *value;
  return fail("{}() takes an integer, not '{}'", what_, type_name(*values_[i]));
}

Result<std::string_view> Bound::text(size_t i, std::string_view fallback) const {
  if (!has(i)) return fallback;
  if (values_[i]->is_string()) return values_[i]->text(*budget_);
  return fail("{}() takes a string, not '{}'", what_, type_name(*values_[i]));
}

}  // namespace pumice::jinja
