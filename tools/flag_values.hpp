// What flags hold that is more than a number: lists, amounts that may be unlimited, pairs. Errors
// (kInvalidArgument) name the flag and the part that cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

/// What is wrong with `text` as a finite number from `least` to `most`; empty if nothing is. The
/// check of every option that takes a fraction: CLI11's own let NaN pass.
std::string number_problem(const std::string& text, double least, double most);

/// The same as CLI11 asks for it: `->check(number_in(0, 3600))`.
inline auto number_in(double least, double most) {
  return [=](const std::string& text) { return number_problem(text, least, most); };
}

/// What is wrong with `text` as -n: a number from `least` to `most`, or -1 or -2, which have no
/// end.
std::string n_predict_problem(const std::string& text, uint32_t least, uint32_t most);

/// `text` with \n \r \t \\ \' \" and \xHH replaced by what they stand for; other backslashes stay.
std::string unescaped(std::string_view text);

/// Limits of options in milliseconds, rates and factors.
inline constexpr double kLeastNumber = 1e-6;
inline constexpr double kMostNumber = 1e9;

struct Goodput {
  double ttft_s = 0;  ///< 0: not given
  double tpot_s = 0;
};
/// "ttft:500 tpot:50", milliseconds; both, one or none, the later of two counts.
Result<Goodput> parse_goodput(std::string_view text);

}  // namespace pumice::tools
