// What somebody measured, made ready to be handed to others: only records of models with the
// evidence that lets a reader believe them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice::bench {

/// The text of bench/record.schema.json.
std::string_view record_schema_text();

/// What `record` lacks, in words that stand after "lacks": "an output check (…)". Empty: nothing.
/// Evidence is an output check that passed before and after the test, clocks before and after it,
/// the driver's name and version, and the model's hash; and there must be a score.
std::vector<std::string> missing_evidence(const nlohmann::json& record);

/// {"pumice_submission": 1, "records": […]} of the text of a file of results (JSON or JSON lines,
/// of pumice bench on models). Paths of models are cut to their names, in `command` too. Errors
/// (kBadFile), naming the record: it is not one by the schema, or lacks evidence, which is named.
Result<nlohmann::json> submission(std::string_view text, const std::string& name);

}  // namespace pumice::bench
