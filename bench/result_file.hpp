// Results of benchmarks as they were written to files: by `pumice bench` (models, --ops, --serve),
// bench/peers.py, tools/gpu-check, and llama-bench (-o json or jsonl). What others wrote is checked
// here; readers of a ResultFile can trust its types.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace pumice::bench {

/// One thing that was measured repeatedly.
struct ResultRow {
  enum class Kind { kModel, kFirstToken, kOp, kPeak, kServe };

  Kind kind = Kind::kModel;
  std::string test;  ///< "pp512 @ d4096", "gemv Q4_K …", "chunks of 64 of 8192: gap p99"
  std::string model;
  std::string device;
  std::string driver;
  std::string commit;
  /// What else may distinguish two rows: ("type_k", "f16"), …
  std::vector<std::pair<std::string, std::string>> settings;

  bool is_part = false;         ///< prefill or decode of the test in the row before
  std::string unit;             ///< of the samples: "t/s", "us", "ms", "GB/s", "TFLOP/s"
  bool more_is_better = false;  ///< a speed; else a time
  std::vector<double> samples;  ///< positive
  std::string problem;          ///< why this has no score; empty if it has one
  nlohmann::json facts = nlohmann::json::object();  ///< other checked numbers and strings
};
std::string_view kind_name(ResultRow::Kind kind);  ///< "model", "first_token", "op", …

struct ResultFile {
  std::string name;
  std::vector<ResultRow> rows;
};

/// Larger files are refused.
inline constexpr size_t kMaxResultBytes = size_t{256} << 20;

struct JsonPart {
  std::string where;  ///< begins messages: "a.json", "a.json: line 3"
  nlohmann::json value;
};
/// The one value that is the text of a results file, or those on its lines. `name` goes into
/// messages. Errors: kBadFile.
Result<std::vector<JsonPart>> read_json_parts(std::string_view text, const std::string& name);

/// Read the text of a results file; `name` goes into messages. Errors: kBadFile, naming the record
/// and the field.
Result<ResultFile> parse_results(std::string_view text, const std::string& name);

}  // namespace pumice::bench
