#include "models/fusion_rules.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace pumice {
namespace {

constexpr std::array<std::string_view, kFusionRuleCount> kRuleNames = {
    "stack", "embed_scale", "residual", "bias",       "head_norm",
    "gate",  "expand",      "norm",     "activation", "planes"};

}  // namespace

std::string_view fusion_rule_name(FusionRule rule) {
  return kRuleNames.at(static_cast<size_t>(rule));
}

Result<FusionRules> FusionRules::parse(std::string_view text) {
  if (text == "all") return FusionRules();
  if (text == "none") return none();
  const bool without = text.starts_with('-');
  FusionRules rules = without ? FusionRules() : none();
  const auto found = std::ranges::find(kRuleNames, without ? text.substr(1) : text);
  if (found == kRuleNames.end()) {
    std::string names;
    for (const std::string_view name : kRuleNames) names += fmt::format(", {}", name);
    return make_error(ErrorCode::kInvalidArgument, "all, none, RULE or -RULE, of the rules{}",
                      names.substr(1));
  }
  rules.rules_.flip(static_cast<size_t>(found - kRuleNames.begin()));
  return rules;
}

std::string FusionRules::text() const {
  if (rules_.all()) return "all";
  std::string names;
  for (size_t i = 0; i < kFusionRuleCount; ++i) {
    if (rules_.test(i)) names += fmt::format("{}{}", names.empty() ? "" : ",", kRuleNames[i]);
  }
  return names.empty() ? "none" : names;
}

}  // namespace pumice
