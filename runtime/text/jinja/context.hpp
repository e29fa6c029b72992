// What the caller gives a template, as values.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"
#include "text/jinja/value.hpp"

namespace pumice::jinja {

struct Context {
  Value value;
  size_t n_bytes;  ///< about what `json` has as text
};

/// The strings stay those of `json`, which must outlive the values: a message takes the room of its
/// names and references, whatever its length. Errors: kDoesNotFit where values are nested deeper
/// than kMaxDepth, kInvalidArgument for integers beyond 64 bits, kCancelled.
Result<Context> context_of(Budget& budget, const nlohmann::ordered_json& json);

}  // namespace pumice::jinja
