// Numbers of a schema as JSON writes them.
//
// No more digits than kMaxDigits on each side of the point (or than a bound has), so that every answer ends;
// no leading zeros, no "-0" for whole numbers; whole numbers without a point where only those are allowed;
// exponents only where nothing bounds the value. Multiples of a unit that is no power of ten are counted digit by digit
// and have as many digits as they like.
#pragma once

#include <optional>

#include "constraints/grammar.hpp"
#include "constraints/schema_model.hpp"

namespace pumice::schema {

constexpr uint32_t kMaxDigits = 24;

/// Nothing if no number is as the shape says, or none that can be written here. May throw OutOfFuel.
std::optional<Symbol> number_symbol(GrammarBuilder& grammar, const NumberShape& shape);

}  // namespace pumice::schema
