// Expressions, with Jinja2's precedence: a filter or test binds closer than arithmetic, "~" closer
// than "+", and "**" joins from the left.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "text/jinja/ast.hpp"
#include "text/jinja/token_stream.hpp"

namespace pumice::jinja {

Result<ExprPtr> parse_expression(TokenStream& stream);
/// An expression or, with commas, a tuple; ends before the name `end`. `conditional`: there may be
/// "if … else" at its top.
Result<ExprPtr> parse_tuple(TokenStream& stream, bool conditional, std::string_view end = {});
/// A name and its filters, applied to nothing: of filter and set blocks.
Result<ExprPtr> parse_filter_chain(TokenStream& stream);

}  // namespace pumice::jinja
