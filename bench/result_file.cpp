#include "bench/result_file.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/ascii.hpp"
#include "base/json.hpp"
#include "base/printable.hpp"
#include "bench/record_reader.hpp"
#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;

Result<Json> parse_json(std::string_view text, const std::string& where) {
  Result<Json> json = read_json(text, kMaxResultBytes);
  if (!json.ok()) return make_error(ErrorCode::kBadFile, "{}: {}", where, json.error().message);
  return json;
}

/// The part after the last slash of either kind.
std::string base_name(const std::string& path) {
  const size_t slash = path.find_last_of("/\\");
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

/// As llama-bench names tests; several streams at once are ours.
std::string test_name(double n_prompt, double n_gen, double n_depth, double n_parallel) {
  std::string name;
  if (n_prompt > 0) name = fmt::format("pp{:.0f}", n_prompt);
  if (n_gen > 0) name += fmt::format("{}tg{:.0f}", name.empty() ? "" : "+", n_gen);
  if (n_depth > 0) name += fmt::format(" @ d{:.0f}", n_depth);
  if (n_parallel > 1) name += fmt::format(" x{:.0f}", n_parallel);
  return name;
}

/// Why a record that has times must not have a score: its error, or logits that are wrong.
Result<std::string> problem_of(const RecordReader& record) {
  PUMICE_TRY(std::string error, record.text("error"));
  if (!error.empty() || !record.has("evidence")) return error;
  PUMICE_TRY(const RecordReader evidence, record.object("evidence"));
  const bool wrong = evidence.has("passed") && evidence["passed"] == false;
  return std::string(wrong ? "wrong logits" : "");
}

/// How far the logits were from the reference, in a few words; empty if nothing is said about it.
Result<std::string> evidence_of(const RecordReader& record) {
  if (!record.has("evidence")) return std::string();
  PUMICE_TRY(const RecordReader evidence, record.object("evidence"));
  if (!evidence.has("passed")) return std::string("not checked");
  PUMICE_TRY(const Json* const passes, evidence.array("passes"));
  double worst = 0;
  std::string digest;
  for (const Json& json : *passes) {
    if (!json.is_object()) return evidence.error("passes", "objects");
    const RecordReader pass(json, evidence.where());
    if (pass.has("nmse") && pass["nmse"].is_string()) return std::string("logits not finite");
    PUMICE_TRY(const double nmse, pass.number("nmse"));
    worst = std::max(worst, nmse);
    if (digest.empty()) {
      PUMICE_TRY(digest, pass.text("digest"));
    }
  }
  PUMICE_TRY(const double bound, evidence.number("nmse_bound"));
  PUMICE_TRY(const double checked, evidence.number("layers_checked"));
  PUMICE_TRY(const double layers, evidence.number("layers"));
  return fmt::format(
      "nmse {:.1e} of {:.0e}, digest {}{}", worst, bound, digest,
      checked < layers ? fmt::format(", {:.0f} of {:.0f} layers", checked, layers) : "");
}

/// Collects the rows of one file.
class Rows {
 public:
  explicit Rows(std::vector<ResultRow>& rows) : rows_(rows) {}

  /// Any record, or an array of records.
  Status add(const Json& json, const std::string& where) {
    if (json.is_array()) return add_array(json, where);
    if (json.is_object()) {
      const RecordReader record(json, where);
      if (record.has("gpu_check")) return add_gpu_check(record);
      if (record.has("peaks") && record.has("ops")) return add_ops(record);
      if (record.has("arrivals")) return add_serve(record);
      if (record.has("records")) {
        PUMICE_TRY(const Json* const records, record.array("records"));
        return add_array(*records, where);
      }
      if (record.has("n_prompt") && record.has("n_gen")) return add_model(record);
      if (record.has("bench")) {
        PUMICE_TRY(const std::string kind, record.text("bench"));
        return make_error(ErrorCode::kBadFile,
                          "{}: results of bench --{} are for reading as they are", where, kind);
      }
    }
    return make_error(ErrorCode::kBadFile,
                      "{}: neither a record of pumice bench nor of llama-bench (-o json, -o jsonl)",
                      where);
  }

 private:
  Status add_array(const Json& records, const std::string& where) {
    size_t number = 0;
    for (const Json& record : records) {
      ++number;
      if (record.is_array()) {
        return make_error(ErrorCode::kBadFile, "{}: record {} must be an object", where, number);
      }
      PUMICE_TRY_STATUS(add(record, fmt::format("{}: record {}", where, number)));
    }
    return {};
  }

  Status add_model(const RecordReader& record) {
    PUMICE_TRY(ResultRow row, origin(record));
    double size[4] = {};
    constexpr const char* kSizes[] = {"n_prompt", "n_gen", "n_depth", "n_parallel"};
    for (size_t i = 0; i < 4; ++i) {
      PUMICE_TRY(size[i], record.number(kSizes[i]));
      row.facts[kSizes[i]] = size[i];
    }
    row.test = test_name(size[0], size[1], size[2], size[3]);
    row.facts["test_name"] = test_name(size[0], size[1], 0, size[3]);
    if (row.test.empty()) {
      PUMICE_TRY(row.test, record.text("test", "nothing"));
    }
    for (const char* const key : {"peer", "type_k", "type_v", "n_batch", "n_ubatch", "n_threads",
                                  "n_gpu_layers", "flash_attn", "math"}) {
      if (!record.has(key)) continue;
      PUMICE_TRY(std::string value, record.text(key));
      row.settings.emplace_back(key, std::move(value));
    }
    if (record.has("options")) {
      PUMICE_TRY(const RecordReader options, record.object("options"));
      for (const auto& [key, value] : record["options"].items()) {
        if (value.is_structured()) continue;
        PUMICE_TRY(std::string text, options.text(key.c_str()));
        row.settings.emplace_back(printable(key), std::move(text));
      }
    }
    PUMICE_TRY(row.facts["model_type"], record.text("model_type"));
    for (const char* const key : {"model_size", "model_n_params"}) {
      PUMICE_TRY(row.facts[key], record.number(key));
    }
    PUMICE_TRY(row.problem, problem_of(record));
    PUMICE_TRY(row.facts["evidence"], evidence_of(record));
    row.unit = "t/s";
    row.more_is_better = true;
    PUMICE_TRY(row.samples, record.samples("samples_ts"));
    if (row.samples.empty()) {
      PUMICE_TRY(const std::vector<double> times_ns, record.samples("samples_ns"));
      const double n_tokens = (size[0] + size[1]) * std::max(size[3], 1.0);
      for (const double ns : times_ns) row.samples.push_back(n_tokens * 1e9 / ns);
    }
    if (row.samples.empty() && row.problem.empty()) row.problem = "no samples";
    rows_.push_back(row);
    return add_parts(record, row);
  }

  /// Prefill, decode and the first token of a test, where they are recorded apart.
  Status add_parts(const RecordReader& record, const ResultRow& whole) {
    ResultRow row = whole;
    if (whole.facts["n_prompt"] > 0 && whole.facts["n_gen"] > 0) {
      constexpr std::pair<const char*, const char*> kParts[] = {{"samples_prefill_ts", ": prefill"},
                                                                {"samples_decode_ts", ": decode"}};
      for (const auto& [key, name] : kParts) {
        PUMICE_TRY(row.samples, record.samples(key));
        row.test = whole.test + name;
        row.facts["test_name"] = whole.facts["test_name"].get<std::string>() + name;
        row.is_part = true;
        if (!row.samples.empty()) rows_.push_back(row);
      }
    }
    PUMICE_TRY(row.samples, record.samples("samples_ttft_ns"));
    if (row.samples.empty()) return {};
    for (double& sample : row.samples) sample *= 1e-6;
    row.kind = ResultRow::Kind::kFirstToken;
    row.test = whole.test + ": TTFT";
    row.is_part = false;
    row.facts["test_name"] = whole.facts["test_name"];
    row.unit = "ms";
    row.more_is_better = false;
    rows_.push_back(std::move(row));
    return {};
  }

  Status add_ops(const RecordReader& report) {
    PUMICE_TRY(const ResultRow row, origin(report));
    PUMICE_TRY(const Json* const peaks, report.array("peaks"));
    PUMICE_TRY(const Json* const ops, report.array("ops"));
    const auto each = [&](const Json& records, const char* key, auto add_record) -> Status {
      size_t number = 0;
      for (const Json& record : records) {
        const std::string where = fmt::format("{}: {} {}", report.where(), key, ++number);
        if (!record.is_object()) {
          return make_error(ErrorCode::kBadFile, "{} must be an object", where);
        }
        PUMICE_TRY_STATUS(add_record(RecordReader(record, where)));
      }
      return {};
    };
    PUMICE_TRY_STATUS(
        each(*peaks, "peak", [&](const RecordReader& record) { return add_peak(record, row); }));
    return each(*ops, "op", [&](const RecordReader& record) { return add_op(record, row); });
  }

  Status add_op(const RecordReader& record, ResultRow row) {
    row.kind = ResultRow::Kind::kOp;
    PUMICE_TRY(const std::string op, record.text("op"));
    PUMICE_TRY(const std::string name, record.text("case"));
    row.test = op + " " + name;
    row.facts.update({{"op", op}, {"case", name}});
    PUMICE_TRY(const std::string error, record.text("error"));
    if (!error.empty()) {
      row.problem = (record.has("wrong") && record["wrong"] == true ? "WRONG: " : "") + error;
    }
    for (const char* const key : {"bytes", "flops", "limit_ns"}) {
      PUMICE_TRY(row.facts[key], record.number(key));
    }
    PUMICE_TRY(row.facts["limit"], record.text("limit"));
    PUMICE_TRY(const Json* const labels, record.array("labels"));
    std::string kernels;
    for (const Json& label : *labels) {
      if (!label.is_string()) return record.error("labels", "strings");
      kernels += (kernels.empty() ? "" : " + ") + printable(label.get_ref<const std::string&>());
      if (kernels.size() > 300) break;
    }
    row.facts["kernels"] = kernels;
    row.unit = "us";
    PUMICE_TRY(row.samples, record.samples("samples_ns"));
    for (double& sample : row.samples) sample *= 1e-3;
    if (row.samples.empty() && row.problem.empty()) row.problem = "no samples";
    rows_.push_back(std::move(row));
    return {};
  }

  Status add_peak(const RecordReader& record, ResultRow row) {
    row.kind = ResultRow::Kind::kPeak;
    PUMICE_TRY(const std::string name, record.text("name"));
    PUMICE_TRY(row.unit, record.text("unit"));
    PUMICE_TRY(const double bytes, record.number("bytes"));
    PUMICE_TRY(const double flops, record.number("flops"));
    PUMICE_TRY(row.samples, record.samples("samples_ns"));
    row.more_is_better = row.unit != "us";
    if (row.more_is_better && row.unit != "GB/s" && row.unit != "TFLOP/s") {
      return record.error("unit", "GB/s, TFLOP/s or us");
    }
    for (double& sample : row.samples) {
      if (row.unit == "us") sample *= 1e-3;
      if (row.unit == "GB/s") sample = bytes / sample;
      if (row.unit == "TFLOP/s") sample = flops / sample * 1e-3;
      if (!(sample > 0)) return record.error("bytes and flops", "what the peak moved or computed");
    }
    row.test = "peak " + name;
    if (row.samples.empty()) {
      row.problem = "no samples";
    } else {  // as Peak::value
      const double value = row.more_is_better ? *std::ranges::max_element(row.samples)
                                              : summarize(row.samples).median;
      row.facts.update({{"name", name}, {"value", value}});
    }
    rows_.push_back(std::move(row));
    return {};
  }

  Status add_serve(const RecordReader& report) {
    PUMICE_TRY(ResultRow row, origin(report));
    row.kind = ResultRow::Kind::kServe;
    row.unit = "ms";
    PUMICE_TRY(const double length, report.number("long_prompt_tokens"));
    PUMICE_TRY(const Json* const arrivals, report.array("arrivals"));
    size_t number = 0;
    for (const Json& json : *arrivals) {
      const std::string where = fmt::format("{}: arrival {}", report.where(), ++number);
      if (!json.is_object()) return make_error(ErrorCode::kBadFile, "{} must be an object", where);
      const RecordReader arrival(json, where);
      PUMICE_TRY(const std::string chunk, arrival.text("chunk"));
      ResultRow like = row;
      like.facts.update({{"chunk", chunk}, {"long_prompt_tokens", length}});
      for (const char* const key : {"ttft_s", "itl_p50_s", "itl_p99_s", "itl_max_s", "idle_itl_s",
                                    "tpot_target_s", "prefill_iterations", "tokens_per_s"}) {
        PUMICE_TRY(like.facts[key], arrival.number(key));
      }
      const std::string name = fmt::format("prompt of {:.0f}, chunks {}: ", length, chunk);
      PUMICE_TRY_STATUS(add_once(like, name + "TTFT", arrival, "ttft_s"));
      like.facts = Json::object();  // the report draws an arrival once
      PUMICE_TRY_STATUS(add_once(like, name + "gap p50", arrival, "itl_p50_s"));
      PUMICE_TRY_STATUS(add_once(like, name + "gap p99", arrival, "itl_p99_s"));
    }
    PUMICE_TRY(const RecordReader shared, report.object("shared_prompt"));
    PUMICE_TRY_STATUS(add_once(row, "shared prompt, cold: TTFT", shared, "cold_ttft_s"));
    PUMICE_TRY_STATUS(add_once(row, "shared prompt, warm: TTFT", shared, "warm_ttft_s"));
    PUMICE_TRY(const RecordReader repeat, report.object("repeat"));
    PUMICE_TRY_STATUS(add_once(row, "prompt again, cold: TTFT", repeat, "cold_ttft_s"));
    return add_once(row, "prompt again, cached: TTFT", repeat, "cached_ttft_s");
  }

  Status add_gpu_check(const RecordReader& report) {
    for (const char* const stage :
         {"bench ops", "peaks"}) {  // the first has the second's peaks too
      PUMICE_TRY(const RecordReader ops, report.object(stage));
      if (!ops.has("peaks")) continue;
      PUMICE_TRY_STATUS(add_ops(ops));
      break;
    }
    PUMICE_TRY(const Json* const models, report.array("models"));
    for (const Json& model : *models) {
      const auto records = model.is_object() ? model.find("records") : model.end();
      if (records != model.end() && records->is_array()) {
        PUMICE_TRY_STATUS(add_array(*records, report.where()));
      }
    }
    return {};
  }

  /// A row with what all kinds of records say about themselves.
  static Result<ResultRow> origin(const RecordReader& record) {
    ResultRow row;
    PUMICE_TRY(row.commit, record.text("build_commit"));
    if (record.has("build_dirty") && record["build_dirty"] == true) row.commit += " (dirty)";
    for (const char* const key : {"command", "test_time", "shader_hash", "clock"}) {
      if (record.has(key)) {
        PUMICE_TRY(row.facts[key], record.text(key));
      }
    }
    if (record.has("device") && record["device"].is_object()) {
      PUMICE_TRY(const RecordReader device, record.object("device"));
      PUMICE_TRY(row.device, device.text("name"));
      PUMICE_TRY(const std::string driver, device.text("driver_name"));
      PUMICE_TRY(const std::string info, device.text("driver_info"));
      row.driver = driver + (driver.empty() || info.empty() ? "" : " ") + info;
      PUMICE_TRY(const std::string limit, device.text("limit"));
      if (!limit.empty()) row.settings.emplace_back("limit", limit);
      for (const char* const key : {"uuid", "type", "api_version", "class"}) {
        PUMICE_TRY(row.facts["device_" + std::string(key)], device.text(key));
      }
    }
    if (row.device.empty()) {
      PUMICE_TRY(row.device, record.text("gpu_info"));
    }
    if (row.device.empty()) {
      PUMICE_TRY(row.device, record.text("cpu_info"));
    }
    PUMICE_TRY_STATUS(record.text("model_filename"));  // a string, if it is there
    const Json* const filename = record.has("model_filename") ? &record["model_filename"] : nullptr;
    if (filename != nullptr && filename->is_string()) {
      row.model = printable(base_name(filename->get_ref<const std::string&>()));
    }
    return row;
  }

  /// A time in seconds that was measured once.
  Status add_once(const ResultRow& like, const std::string& test, const RecordReader& from,
                  const char* key) {
    PUMICE_TRY(const double seconds, from.number(key));
    if (seconds <= 0) return {};
    ResultRow row = like;
    row.test = test;
    row.samples = {seconds * 1e3};
    rows_.push_back(std::move(row));
    return {};
  }

  std::vector<ResultRow>& rows_;
};

}  // namespace

std::string_view kind_name(ResultRow::Kind kind) {
  constexpr std::string_view kNames[] = {"model", "first_token", "op", "peak", "serve"};
  return kNames[static_cast<size_t>(kind)];
}

Result<std::vector<JsonPart>> read_json_parts(std::string_view text, const std::string& name) {
  const std::string where = printable(name, 200);
  if (text.size() > kMaxResultBytes) {
    return make_error(ErrorCode::kBadFile, "{}: larger than {} MiB", where, kMaxResultBytes >> 20);
  }
  std::vector<JsonPart> parts;
  Result<Json> whole = parse_json(text, where);
  if (whole.ok()) {
    parts.push_back({where, std::move(*whole)});
    return parts;
  }
  // JSON lines if the first line alone is a record; else the error is about the whole.
  const std::string_view first = text.substr(0, text.find('\n'));
  const bool has_lines = first.size() < text.size() && parse_json(first, where).ok();
  if (!has_lines) return whole.error();
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_part(text, '\n');
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    JsonPart part{.where = fmt::format("{}: line {}", where, number), .value = {}};
    PUMICE_TRY(part.value, parse_json(line, part.where));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<ResultFile> parse_results(std::string_view text, const std::string& name) {
  PUMICE_TRY(const std::vector<JsonPart> parts, read_json_parts(text, name));
  ResultFile file{.name = printable(base_name(name)), .rows = {}};
  Rows rows(file.rows);
  for (const JsonPart& part : parts) PUMICE_TRY_STATUS(rows.add(part.value, part.where));
  if (file.rows.empty()) {
    return make_error(ErrorCode::kBadFile, "{}: no measurements in it", printable(name, 200));
  }
  return file;
}

}  // namespace pumice::bench
