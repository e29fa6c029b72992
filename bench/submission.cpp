#include "bench/submission.hpp"

#include <fmt/format.h>

#include <memory>

#include "base/json.hpp"
#include "base/printable.hpp"
#include "bench/evaluation.hpp"
#include "bench/result_file.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

/// A value within others; null where there is none.
const Json& value_at(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNull;
  const Json* at = &json;
  for (const char* const key : path) {
    if (!at->is_object()) return kNull;
    const auto found = at->find(key);
    if (found == at->end()) return kNull;
    at = &*found;
  }
  return *at;
}

bool is_text(const Json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}

/// A clock of the processor is its cores' least and most.
bool is_clock(const Json& value) {
  if (value.is_number()) return value.get<double>() > 0;
  return value.is_array() && !value.empty() && is_clock(value.front());
}

/// Of one reading of the sensors: a CPU driver's clock is the processor's.
bool has_clock(const Json& record, const char* when) {
  const bool is_cpu = value_at(record, {"device", "type"}) == "cpu";
  return is_clock(value_at(record, {"machine", when, is_cpu ? "processor" : "gpu", "clock_mhz"}));
}

Result<std::shared_ptr<const SchemaJudge>> record_judge() {
  PUMICE_TRY(const Json schema, read_json(record_schema_text(), record_schema_text().size()));
  return SchemaJudge::create(schema);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// A path tells others how somebody's disk is arranged.
void cut_paths(Json& record) {
  const std::string path = record["model_filename"];
  const size_t slash = path.find_last_of("/\\");
  if (slash == path.npos) return;
  const std::string name = path.substr(slash + 1);
  record["model_filename"] = name;
  std::string command = replaced(record["command"], path, name);
  // As it is written within quotes.
  const auto in_quotes = [](const std::string& text) { return replaced(text, "'", "'\\''"); };
  record["command"] = replaced(command, in_quotes(path), in_quotes(name));
}

}  // namespace

std::vector<std::string> missing_evidence(const Json& record) {
  std::vector<std::string> missing;
  if (is_text(value_at(record, {"error"}))) {
    const std::string error = value_at(record, {"error"});
    missing.push_back(fmt::format("a score (its test ended with: {})", printable(error, 200)));
  } else if (const Json& samples = value_at(record, {"samples_ns"});
             !samples.is_array() || samples.empty()) {
    missing.emplace_back("a score (there are no samples)");
  }
  if (value_at(record, {"evidence", "checked"}) != true) {
    missing.emplace_back("an output check (evidence; measure without --no-check)");
  } else if (value_at(record, {"evidence", "passed"}) != true) {
    missing.emplace_back("an output check that passed (evidence.passed)");
  } else if (value_at(record, {"checked_after"}) != true) {
    missing.emplace_back("an output check after the test (checked_after)");
  }
  for (const char* const when : {"before", "after"}) {
    if (has_clock(record, when)) continue;
    missing.push_back(fmt::format(
        "clocks {} the test (machine.{}; its \"absent\" says what no sensor told)", when, when));
  }
  for (const char* const key : {"driver_name", "driver_info"}) {
    if (!is_text(value_at(record, {"device", key}))) {
      missing.push_back(fmt::format("the driver (device.{})", key));
    }
  }
  if (!is_text(value_at(record, {"model_hash"}))) {
    missing.emplace_back("the model's hash (model_hash)");
  }
  return missing;
}

Result<Json> submission(std::string_view text, const std::string& name) {
  PUMICE_TRY(std::vector<JsonPart> parts, read_json_parts(text, name));
  if (parts.size() == 1 && parts[0].value.is_array()) {
    const Json array = std::move(parts[0].value);
    const std::string where = parts[0].where;
    parts.clear();
    for (const Json& record : array) {
      parts.push_back({fmt::format("{}: record {}", where, parts.size() + 1), record});
    }
  }
  if (parts.empty()) {
    return make_error(ErrorCode::kBadFile, "{}: there are no records in it", printable(name, 200));
  }
  PUMICE_TRY(const auto judge, record_judge());
  Json records = Json::array();
  for (JsonPart& part : parts) {
    // Before the schema, which says less about what lacks.
    const bool is_of_model = part.value.is_object() && part.value.contains("n_prompt");
    const std::vector<std::string> missing =
        is_of_model ? missing_evidence(part.value) : std::vector<std::string>();
    if (!missing.empty()) {
      return make_error(ErrorCode::kBadFile, "{} cannot be submitted; it lacks {}", part.where,
                        fmt::join(missing, ", "));
    }
    if (const std::string problem = judge->problem_with(part.value); !problem.empty()) {
      return make_error(ErrorCode::kBadFile,
                        "{} cannot be submitted; it is not a record of pumice bench on a model "
                        "(bench/record.schema.json): {}",
                        part.where, printable(problem, 300));
    }
    cut_paths(part.value);
    records.push_back(std::move(part.value));
  }
  return Json{{"pumice_submission", 1}, {"records", std::move(records)}};
}

}  // namespace pumice::bench
