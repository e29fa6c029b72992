// Alone, because the validator's headers are large.
#include "tests/answers/schema_check.hpp"

#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "base/json.hpp"

namespace pumice::test {

std::string schema_problem(const std::string& schema, const std::string& text) {
  const Result<nlohmann::json> value = read_json(text, text.size());
  if (!value.ok()) return value.error().message + ": " + text;
  const nlohmann::json words = read_json(schema, schema.size()).value();
  valijson::Schema parsed;
  valijson::SchemaParser().populateSchema(valijson::adapters::NlohmannJsonAdapter(words), parsed);
  const bool is_right = valijson::Validator().validate(
      parsed, valijson::adapters::NlohmannJsonAdapter(*value), nullptr);
  return is_right ? "" : text;
}

}  // namespace pumice::test
