// Any text as what flags take: limits, lists of numbers, amounts, devices. The first byte chooses.
#include <fmt/ranges.h>

#include "tests/fuzz/fuzz.hpp"
#include "tools/flag_values.hpp"
#include "vk/device_choice.hpp"
#include "vk/plan_options.hpp"

namespace pumice::fuzz {
namespace {

void parse_limit(std::string_view text) {
  const Result<vk::PlanOptions> options = vk::parse_plan_options(text);
  if (!options.ok()) return check_error(options.error());
  const Result<vk::PlanOptions> again = vk::parse_plan_options(vk::format_plan_options(*options));
  promise(again.ok() && *again == *options, "limits written are limits read");
}

void parse_list(std::string_view text) {
  const Result<std::vector<uint32_t>> numbers = tools::parse_numbers("--tokens", text);
  if (!numbers.ok()) return check_error(numbers.error());
  promise(!numbers->empty(), "a list has a number at least");
  const std::string written = fmt::format("{}", fmt::join(*numbers, ","));
  if (text.find('-') == text.npos) {
    promise(written.size() <= text.size(), "leading zeros are all that is lost");
  } else {
    promise(numbers->size() <= text.size() + 1000, "ranges stand for a bounded amount");
  }
  const Result<std::vector<uint32_t>> again = tools::parse_numbers("--tokens", written);
  promise(again.ok() && *again == *numbers, "lists written are lists read");
}

void parse_amounts(std::string_view text) {
  const auto limit = tools::parse_limit_or_inf("--blocks", text);
  if (!limit.ok()) {
    check_error(limit.error());
  } else {
    promise(!*limit || **limit > 0, "a limit is positive");
  }
  const Result<tools::Goodput> goodput = tools::parse_goodput(text);
  if (!goodput.ok()) return check_error(goodput.error());
  promise(goodput->ttft_s >= 0 && goodput->tpot_s >= 0, "times are not negative");
}

void choose(std::string_view text) {
  std::vector<vk::DeviceSnapshot> devices(2);
  devices[0].name = "Fuzzed 4090";
  const Result<size_t> chosen = vk::choose_device(devices, text);
  promise(!chosen.ok(), "a device that lacks everything is never chosen");
  check_error(chosen.error());
}

void run(uint8_t choice, std::string_view text) {
  switch (choice % 4) {
    case 0:
      return parse_amounts(text);
    case 1:
      return parse_limit(text);
    case 2:
      return parse_list(text);
    default:
      return choose(text);
  }
}

}  // namespace
}  // namespace pumice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) {
    pumice::fuzz::run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  }
  return 0;
}
