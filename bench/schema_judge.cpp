// Alone, because the validator's headers are large.
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include <array>
#include <exception>
#include <string_view>
#include <utility>

#include "base/json.hpp"
#include "bench/evaluation.hpp"

namespace pumice::bench {
namespace {

/// The validator's patterns recurse with the text's length.
constexpr size_t kMostTextBytes = 32768;

/// That constrain, of drafts after 7, which the validator would ignore.
constexpr std::array<std::string_view, 8> kLaterKeywords = {
    "prefixItems", "dependentSchemas",      "dependentRequired", "minContains",
    "maxContains", "unevaluatedProperties", "unevaluatedItems",  "$dynamicRef"};

/// The first of them, or nothing. Names of properties are looked at too: who has one of that name is told.
std::string_view later_keyword(const nlohmann::json& schema) {
  if (schema.is_object()) {
    for (const std::string_view keyword : kLaterKeywords) {
      if (schema.contains(std::string(keyword))) return keyword;
    }
  }
  if (schema.is_structured()) {
    for (const nlohmann::json& inner : schema) {
      if (const std::string_view found = later_keyword(inner); !found.empty()) return found;
    }
  }
  return {};
}

}  // namespace

struct SchemaJudge::Schema {
  valijson::Schema schema;
};

SchemaJudge::SchemaJudge(std::unique_ptr<const Schema> schema) : schema_(std::move(schema)) {}
SchemaJudge::~SchemaJudge() = default;

Result<std::shared_ptr<const SchemaJudge>> SchemaJudge::create(const nlohmann::json& schema) {
  if (const std::string_view keyword = later_keyword(schema); !keyword.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "\"schema\" uses \"{}\"; schemas here are JSON Schema draft 7, which does "
                      "not have it",
                      keyword);
  }
  auto parsed = std::make_unique<Schema>();
  try {
    valijson::SchemaParser().populateSchema(valijson::adapters::NlohmannJsonAdapter(schema),
                                            parsed->schema);
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kBadFile, "\"schema\" is not a valid JSON Schema: {}",
                      error.what());
  }
  return std::shared_ptr<const SchemaJudge>(new SchemaJudge(std::move(parsed)));
}

std::string SchemaJudge::problem(const std::string& text) const {
  const Result<nlohmann::json> value = read_json(text, kMostTextBytes);
  return value.ok() ? problem_with(*value) : value.error().message;
}

std::string SchemaJudge::problem_with(const nlohmann::json& value) const {
  valijson::ValidationResults results;
  try {
    if (valijson::Validator().validate(schema_->schema,
                                       valijson::adapters::NlohmannJsonAdapter(value), &results)) {
      return {};
    }
  } catch (const std::exception& error) {  // a pattern that is too costly
    return error.what();
  }
  valijson::ValidationResults::Error first;
  if (!results.popError(first)) return "not valid";
  std::string where;
  for (const std::string& part : first.context) where += part;
  return where + ": " + first.description;
}

}  // namespace pumice::bench
