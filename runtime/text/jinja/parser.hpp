// Tokens to a Template.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"

namespace pumice::jinja {

/// Errors: kBadFile, naming the line.
Result<Template> parse_template(std::string_view source);

}  // namespace pumice::jinja
