#include "bench/configuration.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "base/ascii.hpp"
#include "base/printable.hpp"
#include "shaders/spirv.hpp"
#include "vk/plan_options.hpp"

namespace pumice::bench {
namespace {

constexpr size_t kShownBytes = 40;  // of what cannot be read
constexpr std::string_view kKeys =
    "math, kv, chunk, batch, split, prefix_cache, run_ahead, invariant, fuse, variant, limit";

Error unreadable(std::string_view key, std::string_view value, std::string_view expected) {
  return make_error(ErrorCode::kInvalidArgument, "{}={}: expected {}", key,
                    printable(value, kShownBytes), expected);
}

Result<uint32_t> parse_tokens(std::string_view key, std::string_view value, uint32_t multiple) {
  constexpr uint32_t kMost = 1u << 16;
  const uint32_t number = parse_whole<uint32_t>(value).value_or(0);
  if (number == 0 || number > kMost || number % multiple != 0) {
    return unreadable(key, value,
                      multiple == 1 ? fmt::format("1 to {}", kMost)
                                    : fmt::format("a multiple of {} up to {}", multiple, kMost));
  }
  return number;
}

Result<bool> parse_switch(std::string_view key, std::string_view value) {
  if (value == "on") return true;
  if (value == "off") return false;
  return unreadable(key, value, "on or off");
}

Status set(Configuration& into, std::string_view key, std::string_view value) {
  if (key == "math") {
    into.math = ops::parse_math(value);
    if (!into.math)
      return unreadable(key, value, fmt::format("{}", fmt::join(ops::kMathNames, ", ")));
  } else if (key == "kv") {
    into.kv_type = KvTypes::parse(value);
    if (!into.kv_type) {
      return unreadable(key, value,
                        fmt::format("{}, or two for keys and values, as q8_0-f16",
                                    fmt::join(kKvTypeNames, ", ")));
    }
  } else if (key == "chunk") {
    PUMICE_TRY(into.chunk_tokens, parse_tokens(key, value, 1));
  } else if (key == "batch") {
    PUMICE_TRY(into.token_budget, parse_tokens(key, value, 1));
  } else if (key == "split") {
    PUMICE_TRY(into.split_tokens, parse_tokens(key, value, kKvBlockTokens));
  } else if (key == "prefix_cache") {
    PUMICE_TRY(into.prefix_cache, parse_switch(key, value));
  } else if (key == "run_ahead") {
    PUMICE_TRY(into.run_ahead, parse_switch(key, value));
  } else if (key == "invariant") {
    PUMICE_TRY(into.invariant, parse_switch(key, value));
  } else if (key == "fuse") {
    const Result<FusionRules> rules = FusionRules::parse(value);
    if (!rules.ok()) return unreadable(key, value, rules.error().message);
    into.fusion = *rules;
  } else if (key == "variant") {
    if (value.empty() || value == "-") return unreadable(key, value, "the name of a kernel");
    into.variants.emplace_back(value);
  } else if (key == "limit") {
    PUMICE_TRY_STATUS(vk::parse_plan_options(value));
    if (!into.limit.empty()) into.limit += ',';
    into.limit += value;
  } else {
    return make_error(ErrorCode::kInvalidArgument, "there is no option '{}'; the options are {}",
                      printable(key, kShownBytes), kKeys);
  }
  return {};
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Whether `name` is `pattern`, where * stands for any text; letters of either case are alike.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last one seen, and where its text ends
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && lower(pattern[p]) == lower(name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

Result<Configuration> Configuration::parse(std::string_view text) {
  Configuration configuration;
  if (text == "null") return configuration;
  configuration.text = text;
  while (!text.empty()) {
    const std::string_view word = take_part(text, ',');
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return make_error(ErrorCode::kInvalidArgument, "expected KEY=VALUE, not '{}'; keys are {}",
                        printable(word, kShownBytes), kKeys);
    }
    PUMICE_TRY_STATUS(set(configuration, word.substr(0, equals), word.substr(equals + 1)));
  }
  return configuration;
}

EngineOptions Configuration::applied_to(EngineOptions options) const {
  options.math = math.value_or(options.math);
  options.kv_type = kv_type.value_or(options.kv_type);
  options.chunk_tokens = chunk_tokens.value_or(options.chunk_tokens);
  options.token_budget = token_budget.value_or(options.token_budget);
  options.split_tokens = split_tokens.value_or(options.split_tokens);
  options.prefix_cache = prefix_cache.value_or(options.prefix_cache);
  options.run_ahead = run_ahead.value_or(options.run_ahead);
  options.invariant = invariant.value_or(options.invariant);
  options.fusion = fusion.value_or(options.fusion);
  return options;
}

Status choose_variants(vk::PipelineLibrary& pipelines, const Configuration& configuration) {
  for (const std::string& variant : configuration.variants) {
    const bool without = variant.starts_with('-');
    const std::string_view pattern = std::string_view(variant).substr(without ? 1 : 0);
    vk::PipelineLibrary::ModuleNames named;
    std::set<std::string_view> families;
    for (const vk::ShaderModule& module : spirv_modules()) {
      if (!matches(pattern, module.name)) continue;
      named.emplace(module.name);
      families.insert(module_family(module.name));
    }
    if (named.empty()) {
      for (const LeftOutModule& module : left_out_modules()) {
        if (!matches(pattern, module.name)) continue;
        return make_error(ErrorCode::kInvalidArgument,
                          "variant={}: not in this build, whose glslc does not know {}",
                          printable(variant, kShownBytes), module.glsl_extension);
      }
      return make_error(ErrorCode::kInvalidArgument,
                        "variant={}: this build has no such kernel (pumice info lists them)",
                        printable(variant, kShownBytes));
    }
    if (without) {
      pipelines.reject(std::move(named));
      continue;
    }
    vk::PipelineLibrary::ModuleNames others;
    for (const vk::ShaderModule& module : spirv_modules()) {
      if (families.contains(module_family(module.name)) && !named.contains(module.name)) {
        others.emplace(module.name);
      }
    }
    pipelines.reject(std::move(others));
    pipelines.accept(std::move(named));
  }
  return {};
}

nlohmann::json tuning_to_json(const vk::PipelineLibrary& pipelines) {
  nlohmann::json rows = nlohmann::json::array();
  for (const vk::TuningChoice& choice : pipelines.choices()) {
    rows.push_back(
        {{"shape", choice.shape.text()}, {"row", choice.row.text}, {"from", choice.row.origin}});
  }
  return rows;
}

nlohmann::json options_to_json(const EngineOptions& options) {
  return {{"math", ops::math_name(options.math)}, {"kv", options.kv_type.name()},
          {"chunk", options.chunk_tokens},        {"batch", options.token_budget},
          {"split", options.split_tokens},        {"prefix_cache", options.prefix_cache},
          {"run_ahead", options.run_ahead},       {"invariant", options.invariant},
          {"fuse", options.fusion.text()}};
}

}  // namespace pumice::bench
