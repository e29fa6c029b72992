#include "vk/tuning_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.hpp"

namespace pumice::vk {
namespace {

using Comparison = TuningCondition::Comparison;

bool holds_between(Comparison comparison, const TuningFacts::Value& fact,
                   const TuningFacts::Value& value) {
  switch (comparison) {
    case Comparison::kEqual:
      return fact == value;
    case Comparison::kNotEqual:
      return fact != value;
    case Comparison::kLess:
      return fact < value;
    case Comparison::kAtMost:
      return fact <= value;
    case Comparison::kMore:
      return fact > value;
    case Comparison::kAtLeast:
      return fact >= value;
  }
  return false;
}

}  // namespace

TuningFacts& TuningFacts::set(std::string_view name, std::string_view word) {
  values_.insert_or_assign(std::string(name), std::string(word));
  return *this;
}

TuningFacts& TuningFacts::set(std::string_view name, const TuningSize& version) {
  values_.insert_or_assign(std::string(name), version);
  return *this;
}

const TuningFacts::Value* TuningFacts::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

TuningFacts device_facts(const DevicePlan& plan) {
  TuningFacts facts;
  facts.set("class", device_class_name(plan.device_class)).set("driver", plan.driver.name);
  if (const auto& [major, minor, patch] = plan.driver.version; major + minor + patch > 0) {
    facts.set("driver_version", TuningSize{major, minor, patch});
  }
  if (plan.subgroup.max_workgroup_subgroups != 0) {
    facts.set("workgroup_subgroups", plan.subgroup.max_workgroup_subgroups);
  }
  return facts.set("subgroup", plan.subgroup_size)
      .set("subgroup_min", plan.subgroup.min_size)
      .set("subgroup_max", plan.subgroup.max_size)
      .set("matrix_subgroup", plan.matrix_subgroup_size)
      .set("workgroup", plan.max_workgroup_invocations)
      .set("shared_bytes", plan.max_shared_bytes)
      .set("unified_memory", plan.unified_memory ? 1 : 0)
      .set("int8_dot", plan.integer_dot.packed_signed_accelerated ? 1 : 0)
      .set("emulated_matrices", plan.driver.emulates_matrices ? 1 : 0);
}

std::vector<std::string> TuningFacts::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) names.push_back(name);
  return names;
}

std::string TuningFacts::text() const {
  std::string text;
  for (const auto& [name, value] : values_) {
    text += fmt::format("{}{}=", text.empty() ? "" : " ", name);
    if (const auto* word = std::get_if<std::string>(&value)) {
      text += *word;
    } else {
      std::span<const uint64_t> parts = std::get<TuningSize>(value);
      while (parts.size() > 1 && parts.back() == 0) parts = parts.first(parts.size() - 1);
      text += fmt::format("{}", fmt::join(parts, "."));
    }
  }
  return text;
}

bool TuningCondition::holds(const TuningFacts& facts) const {
  const TuningFacts::Value* known = facts.find(fact);
  return known != nullptr && std::ranges::any_of(values, [&](const TuningFacts::Value& value) {
           return known->index() == value.index() && holds_between(comparison, *known, value);
         });
}

bool TuningRow::holds(const TuningFacts& facts) const {
  return std::ranges::all_of(conditions,
                             [&](const TuningCondition& one) { return one.holds(facts); });
}

uint32_t TuningRow::number(std::string_view name) const {
  const auto found = std::ranges::find(numbers, name, &std::pair<std::string, uint32_t>::first);
  PUMICE_CHECK(found != numbers.end(), fmt::format("{} lacks {}", origin, name));
  return found->second;
}

bool TuningTable::has(const Number& number, std::string_view choice) const {
  return number.choices.empty() ||
         std::ranges::find(number.choices, choice) != number.choices.end();
}

}  // namespace pumice::vk
