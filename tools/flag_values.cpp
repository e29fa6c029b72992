#include "tools/flag_values.hpp"

#include <charconv>

#include "base/printable.hpp"

namespace pumice::tools {
namespace {

constexpr size_t kShownBytes = 40;  // of what cannot be read

/// The whole text as a number; nothing if it is not one.
template <typename T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Up to the next separator, which goes with it.
std::string_view take_part(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace

Result<std::vector<uint32_t>> parse_numbers(std::string_view flag, std::string_view text) {
  std::vector<uint32_t> numbers;
  std::string_view rest = text;
  do {
    const std::string_view part = take_part(rest, ',');
    const std::optional<uint32_t> number = number_of<uint32_t>(part);
    if (!number || (rest.empty() && text.ends_with(','))) {
      return make_error(ErrorCode::kInvalidArgument,
                        "{}: expected numbers like 1,2,3; cannot read '{}'", flag,
                        printable(number || part.empty() ? text : part, kShownBytes));
    }
    numbers.push_back(*number);
  } while (!rest.empty());
  return numbers;
}

Result<std::optional<uint32_t>> parse_limit_or_inf(std::string_view flag, std::string_view text) {
  if (text == "inf") return std::optional<uint32_t>();
  const std::optional<uint32_t> number = number_of<uint32_t>(text);
  if (!number || *number == 0) {
    return make_error(ErrorCode::kInvalidArgument, "{} takes a positive number or 'inf', not '{}'",
                      flag, printable(text, kShownBytes));
  }
  return number;
}

Result<Goodput> parse_goodput(std::string_view text) {
  Goodput goodput;
  while (!text.empty()) {
    const std::string_view part = take_part(text, ' ');
    const size_t value = part.find(':') + 1;  // 0 if there is none
    const double ms = number_of<double>(part.substr(value)).value_or(0);
    const std::string_view name = part.substr(0, value);
    if (!(ms > 0) || (name != "ttft:" && name != "tpot:")) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--goodput takes milliseconds like 'ttft:500 tpot:50', not '{}'",
                        printable(part, kShownBytes));
    }
    (name == "ttft:" ? goodput.ttft_s : goodput.tpot_s) = ms / 1e3;
  }
  return goodput;
}

}  // namespace pumice::tools
