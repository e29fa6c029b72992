// Unicode's properties of characters (categories, scripts), as PCRE2 knows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "constraints/expression.hpp"

namespace pumice {

/// What one unicode_property() costs: it asks about every character.
inline constexpr uint64_t kUnicodePropertyFuel = 1'000'000;

/// The characters of which \p{name} is true, in order: "L", "Lu", "Greek". Nothing if the
/// name is not known.
std::optional<std::vector<CodePointRange>> unicode_property(std::string_view name);

}  // namespace pumice
