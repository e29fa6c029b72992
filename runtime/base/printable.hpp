// Text of others in messages of ours.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pumice {

/// `text` as it may stand in a one-line message: control characters (those of Unicode beyond ASCII
/// too, which terminals also obey) and invalid UTF-8 escaped, cut with "…" after about `max_bytes`.
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace pumice
