// What flags hold that is more than a number: lists, amounts that may be unlimited, pairs. Errors
// (kInvalidArgument) name the flag and the part that cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice::tools {

/// "1,2,3", "1-4" (1,2,3,4), "512-2048+512" and "1-8*2" (1,2,4,8), mixed at will: at least one
/// number, and at most 1000 that ranges stand for.
Result<std::vector<uint32_t>> parse_numbers(std::string_view flag, std::string_view text);

/// "512,128".
Result<std::pair<uint32_t, uint32_t>> parse_pair(std::string_view flag, std::string_view text);

/// A positive number, or nothing for "inf".
Result<std::optional<uint32_t>> parse_limit_or_inf(std::string_view flag, std::string_view text);

struct Goodput {
  double ttft_s = 0;  ///< 0: not given
  double tpot_s = 0;
};
/// "ttft:500 tpot:50", milliseconds; both, one or none, the later of two counts.
Result<Goodput> parse_goodput(std::string_view text);

}  // namespace pumice::tools
