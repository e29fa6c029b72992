#include "tools/flag_values.hpp"

#include <algorithm>
#include <charconv>

#include "base/ascii.hpp"
#include "base/printable.hpp"

namespace pumice::tools {
namespace {

constexpr size_t kShownBytes = 40;  // of what cannot be read
constexpr size_t kMaxOfRanges = 1000;

/// From `first` to `last`; the next of n is n * factor + step, which is larger.
struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t factor = 1;
  uint64_t step = 1;
};

/// "7", "1-4", "512-2048+512", "1-8*2".
std::optional<Range> range_of(std::string_view text) {
  const size_t dash = text.find('-');
  const size_t sign = dash == text.npos ? text.npos : text.find_first_of("+*", dash);
  const auto first = parse_whole<uint32_t>(text.substr(0, dash));
  const auto last =
      dash == text.npos ? first : parse_whole<uint32_t>(text.substr(dash + 1, sign - dash - 1));
  if (!first || !last || *last < *first) return std::nullopt;
  Range range{.first = *first, .last = *last};
  if (sign == text.npos) return range;
  const auto by = parse_whole<uint32_t>(text.substr(sign + 1));
  const bool grows = text[sign] == '*' ? by >= 2u && *first > 0 : by >= 1u;
  if (!grows) return std::nullopt;
  if (text[sign] == '*') {
    range.factor = *by;
    range.step = 0;
  } else {
    range.step = *by;
  }
  return range;
}

}  // namespace

Result<std::vector<uint32_t>> parse_numbers(std::string_view flag, std::string_view text) {
  std::vector<uint32_t> numbers;
  size_t n_of_ranges = 0;
  std::string_view rest = text;
  do {
    const std::string_view part = take_part(rest, ',');
    const std::optional<Range> range = range_of(part);
    if (!range || (rest.empty() && text.ends_with(','))) {
      return make_error(
          ErrorCode::kInvalidArgument,
          "{}: expected numbers and ranges like 1,2,3 or 512-2048+512 or 1-8*2; cannot read '{}'",
          flag, printable(range || part.empty() ? text : part, kShownBytes));
    }
    for (uint64_t n = range->first; n <= range->last; n = n * range->factor + range->step) {
      if (range->last > range->first && ++n_of_ranges > kMaxOfRanges) {
        return make_error(ErrorCode::kInvalidArgument,
                          "{}: ranges up to '{}' are more than {} numbers", flag,
                          printable(part, kShownBytes), kMaxOfRanges);
      }
      numbers.push_back(static_cast<uint32_t>(n));
    }
  } while (!rest.empty());
  return numbers;
}

Result<std::pair<uint32_t, uint32_t>> parse_pair(std::string_view flag, std::string_view text) {
  std::string_view rest = text;
  const std::optional<uint32_t> first = parse_whole<uint32_t>(take_part(rest, ','));
  const std::optional<uint32_t> second = parse_whole<uint32_t>(rest);
  if (!first || !second) {
    return make_error(ErrorCode::kInvalidArgument, "{} takes two numbers like 512,128, not '{}'",
                      flag, printable(text, kShownBytes));
  }
  return std::pair(*first, *second);
}

Result<std::optional<uint32_t>> parse_limit_or_inf(std::string_view flag, std::string_view text) {
  if (text == "inf") return std::optional<uint32_t>();
  const std::optional<uint32_t> number = parse_whole<uint32_t>(text);
  if (!number || *number == 0) {
    return make_error(ErrorCode::kInvalidArgument, "{} takes a positive number or 'inf', not '{}'",
                      flag, printable(text, kShownBytes));
  }
  return number;
}

std::string number_problem(const std::string& text, double least, double most) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const std::optional<double> number = parse_whole<double>(digits);
  if (number && *number >= least && *number <= most) return {};  // NaN is neither
  return fmt::format("'{}' is not a number from {:g} to {:g}", printable(text, kShownBytes), least,
                     most);
}

std::string n_predict_problem(const std::string& text, uint32_t least, uint32_t most) {
  const std::optional<int64_t> number = parse_whole<int64_t>(text);
  if (number && (*number == -1 || *number == -2)) return {};
  if (number && *number <= most && *number >= least) return {};
  return fmt::format("'{}' is not in range: {} to {}, or -1 (until the text ends)",
                     printable(text, kShownBytes), least, most);
}

std::string unescaped(std::string_view text) {
  constexpr std::string_view kLetters = "nrt\\'\"";
  constexpr std::string_view kMeanings = "\n\r\t\\'\"";
  std::string out;
  while (!text.empty()) {
    const size_t backslash = std::min(text.find('\\'), text.size());
    out += text.substr(0, backslash);
    text.remove_prefix(backslash);
    if (text.size() < 2) break;
    if (const size_t letter = kLetters.find(text[1]); letter != kLetters.npos) {
      out += kMeanings[letter];
      text.remove_prefix(2);
      continue;
    }
    unsigned byte = 0;
    const char* const digits = text.data() + 2;
    const bool is_byte = text[1] == 'x' && text.size() >= 4 &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += is_byte ? static_cast<char>(byte) : text[0];
    text.remove_prefix(is_byte ? 4 : 1);
  }
  out += text;
  return out;
}

Result<Goodput> parse_goodput(std::string_view text) {
  Goodput goodput;
  while (!text.empty()) {
    const std::string_view part = take_part(text, ' ');
    const size_t value = part.find(':') + 1;  // 0 if there is none
    const double ms = parse_whole<double>(part.substr(value)).value_or(0);
    const std::string_view name = part.substr(0, value);
    if (!(ms > 0 && ms <= kMostNumber) || (name != "ttft:" && name != "tpot:")) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--goodput takes milliseconds like 'ttft:500 tpot:50', not '{}'",
                        printable(part, kShownBytes));
    }
    (name == "ttft:" ? goodput.ttft_s : goodput.tpot_s) = ms / 1e3;
  }
  return goodput;
}

}  // namespace pumice::tools
