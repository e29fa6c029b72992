#include "vk/plan_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/printable.hpp"

namespace pumice::vk {
namespace {

/// What people call features; a name of several rows means all of them. Vulkan's names are known
/// as well.
struct ShortName {
  std::string_view name;
  std::string_view feature;
};
constexpr ShortName kShortNames[] = {
    {"fp16", "shaderFloat16"},
    {"int8", "shaderInt8"},
    {"int16", "shaderInt16"},
    {"int64", "shaderInt64"},
    {"8bit-storage", "storageBuffer8BitAccess"},
    {"16bit-storage", "storageBuffer16BitAccess"},
    {"intdot", "shaderIntegerDotProduct"},
    {"bf16", "shaderBFloat16Type"},
    {"coopmat", "cooperativeMatrix"},
    {"coopmat2", "cooperativeMatrixWorkgroupScope"},
    {"coopmat2", "cooperativeMatrixFlexibleDimensions"},
    {"coopmat2", "cooperativeMatrixReductions"},
    {"coopmat2", "cooperativeMatrixConversions"},
    {"coopmat2", "cooperativeMatrixPerElementOperations"},
    {"coopmat2", "cooperativeMatrixTensorAddressing"},
    {"coopmat2", "cooperativeMatrixBlockLoads"},
    {"subgroup", "subgroupOperations"},
    {"subgroup-arithmetic", "subgroupArithmetic"},
    {"subgroup-shuffle", "subgroupShuffle"},
};

Error unknown_word(std::string_view word) {
  std::vector<std::string_view> names;
  for (const ShortName& known : kShortNames) {
    if (names.empty() || names.back() != known.name) names.push_back(known.name);
  }
  constexpr size_t kShown = 40;
  return make_error(ErrorCode::kInvalidArgument,
                    "cannot read the limit '{}'; known are shared= workgroup= binding= (or slab=) "
                    "budget= with sizes like 16k or 128M, subgroup=N, floor, none, no-all, and no- "
                    "followed by {} or a feature that `pumice info` lists",
                    printable(word, kShown), fmt::join(names, ", "));
}

/// Bytes of "16384", "16k", "128M", "1G".
Result<uint64_t> parse_size(std::string_view word, std::string_view value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const std::string_view unit = value.substr(static_cast<size_t>(end - value.data()));
  constexpr std::string_view kUnits = "kKmMgG";
  const size_t index = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
  if (error != std::errc{} || number == 0 || (!unit.empty() && index == std::string_view::npos)) {
    return unknown_word(word);
  }
  const uint32_t shift = unit.empty() ? 0 : 10 * (static_cast<uint32_t>(index) / 2 + 1);
  if (number > std::numeric_limits<uint64_t>::max() >> shift) return unknown_word(word);
  return number << shift;
}

Status at_least(std::string_view word, uint64_t value, uint64_t floor) {
  if (value >= floor) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "the limit '{}' is below {}, which every usable device has", printable(word),
                    floor);
}

Status apply_setting(std::string_view word, size_t equals, PlanOptions& options) {
  const std::string_view name = word.substr(0, equals);
  PUMICE_TRY(const uint64_t value, parse_size(word, word.substr(equals + 1)));
  const auto clamp32 = [&] {  // clamps never raise, so more than 32 bits hold is no clamp
    return static_cast<uint32_t>(std::min<uint64_t>(value, std::numeric_limits<uint32_t>::max()));
  };
  if (name == "shared") {
    PUMICE_TRY_STATUS(at_least(word, value, kFloorSharedBytes));
    options.max_shared_bytes = clamp32();
  } else if (name == "workgroup") {
    PUMICE_TRY_STATUS(at_least(word, value, kFloorWorkgroupInvocations));
    options.max_workgroup_invocations = clamp32();
  } else if (name == "subgroup") {
    options.subgroup_size = clamp32();
  } else if (name == "binding" || name == "slab") {
    options.slab_bytes = value;
  } else if (name == "budget") {
    options.device_budget_bytes = value;
  } else {
    return unknown_word(word);
  }
  return {};
}

Status withdraw(std::string_view word, std::string_view name, PlanOptions& options) {
  const std::vector<std::string> features = withdrawable_features();
  if (name == "all") {
    options.disable = {features.begin(), features.end()};
    return {};
  }
  bool known = false;
  const auto add = [&](std::string_view feature) {
    known = true;
    options.disable.emplace(feature);
  };
  for (const ShortName& row : kShortNames) {
    if (row.name == name) add(row.feature);
  }
  if (std::ranges::find(features, name) != features.end()) add(name);
  if (!known) return unknown_word(word);
  return {};
}

/// "16k" where it divides, plain bytes where not.
std::string format_size(uint64_t bytes) {
  constexpr std::string_view kUnits = "kMG";
  size_t unit = 0;
  while (unit < kUnits.size() && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? std::to_string(bytes) : fmt::format("{}{}", bytes, kUnits[unit - 1]);
}

}  // namespace

PlanOptions floor_options() {
  const std::vector<std::string> features = withdrawable_features();
  return {.disable = {features.begin(), features.end()},
          .max_shared_bytes = kFloorSharedBytes,
          .max_workgroup_invocations = kFloorWorkgroupInvocations,
          .slab_bytes = kFloorBindingBytes};
}

Result<PlanOptions> parse_plan_options(std::string_view text) {
  PlanOptions options;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t equals = word.find('=');
    if (word.empty() || word == "none") {
      if (!word.empty()) options = {};
    } else if (word == "floor") {
      options = floor_options();
    } else if (equals != std::string_view::npos) {
      PUMICE_TRY_STATUS(apply_setting(word, equals, options));
    } else if (word.starts_with("no-")) {
      PUMICE_TRY_STATUS(withdraw(word, word.substr(3), options));
    } else {
      return unknown_word(word);
    }
  }
  return options;
}

std::string format_plan_options(const PlanOptions& options) {
  std::vector<std::string> words;
  const auto add = [&](std::string_view name, uint64_t value, bool is_size = true) {
    if (value == 0) return;
    words.push_back(
        fmt::format("{}={}", name, is_size ? format_size(value) : std::to_string(value)));
  };
  add("shared", options.max_shared_bytes);
  add("workgroup", options.max_workgroup_invocations, false);
  add("subgroup", options.subgroup_size, false);
  add("binding", options.slab_bytes);
  add("budget", options.device_budget_bytes);
  if (options.disable.size() == withdrawable_features().size()) {
    words.emplace_back("no-all");
  } else {
    for (const std::string& name : options.disable) words.push_back("no-" + name);
  }
  return fmt::format("{}", fmt::join(words, ","));
}

}  // namespace pumice::vk
