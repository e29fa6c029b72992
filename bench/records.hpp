// Records of benchmarks in the formats of llama-bench.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace pumice::bench {

/// What -o may say.
inline constexpr std::string_view kRecordFormats[] = {"md", "csv", "json", "jsonl", "sql"};

/// A record as one line, without the end of line. Text that is not UTF-8 is replaced.
std::string to_jsonl(const nlohmann::json& record);

/// A line with the columns' names, then a line a record (RFC 4180). Records may lack keys; what is
/// not a number, a text or a truth value is written as JSON.
std::string to_csv(std::span<const nlohmann::json> records);

/// Statements that make a table `llama_bench` where there is none and fill it. Values as in to_csv.
std::string to_sql(std::span<const nlohmann::json> records);

}  // namespace pumice::bench
