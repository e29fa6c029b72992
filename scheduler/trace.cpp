#include "scheduler/trace.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/json.hpp"
#include "base/path.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMooncakeBlockTokens = 512;
constexpr uint32_t kDefaultBlockTokens = 16;
constexpr size_t kMaxLineBytes = 1 << 20;  // the ids of 40 million tokens
constexpr uint32_t kMaxTokens = 1u << 24;  // of a prompt or an output: beyond it a line is damaged

Error bad_line(const std::filesystem::path& path, size_t line, std::string_view what) {
  return make_error(ErrorCode::kBadFile, "{} line {}: {}", to_utf8(path), line, what);
}

// A key that no other block of any request has.
uint64_t unshared_key(size_t request, size_t block) {
  return (uint64_t{request} + 1) << 32 | block;
}

std::vector<uint64_t> unshared_keys(size_t request, uint32_t prompt_tokens, uint32_t block_tokens) {
  std::vector<uint64_t> keys(prompt_tokens / block_tokens);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = unshared_key(request, i);
  return keys;
}

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Seconds since some midnight long ago of "2023-11-16 18:15:46.6805900".
bool parse_timestamp(std::string_view text, double& seconds) {
  int year = 0;
  unsigned month = 0, day = 0;
  double hour = 0, minute = 0, second = 0;
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' ||
      text[16] != ':' || !parse(text.substr(0, 4), year) || !parse(text.substr(5, 2), month) ||
      !parse(text.substr(8, 2), day) || !parse(text.substr(11, 2), hour) ||
      !parse(text.substr(14, 2), minute) || !parse(text.substr(17), second)) {
    return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || !std::isfinite(second)) return false;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  seconds = static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
  return true;
}

Result<Trace> read_azure(const std::filesystem::path& path, std::ifstream& file,
                         uint32_t block_tokens) {
  Trace trace{.block_tokens = block_tokens != 0 ? block_tokens : kDefaultBlockTokens,
              .requests = {}};
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("TIMESTAMP,ContextTokens,GeneratedTokens")) {
    return bad_line(path, 1, "expected TIMESTAMP,ContextTokens,GeneratedTokens");
  }
  for (size_t number = 2; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const size_t first = line.find(',');
    const size_t second = first == std::string::npos ? first : line.find(',', first + 1);
    TraceRequest request;
    const std::string_view text = line;
    if (second == std::string::npos || !parse_timestamp(text.substr(0, first), request.arrival_s) ||
        !parse(text.substr(first + 1, second - first - 1), request.prompt_tokens) ||
        !parse(text.substr(second + 1), request.output_tokens) || request.prompt_tokens == 0 ||
        request.prompt_tokens > kMaxTokens || request.output_tokens > kMaxTokens) {
      return bad_line(path, number, "expected a time, prompt tokens and generated tokens");
    }
    request.keys = unshared_keys(number, request.prompt_tokens, trace.block_tokens);
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

Result<Trace> read_mooncake(const std::filesystem::path& path, std::ifstream& file,
                            uint32_t block_tokens) {
  Trace trace{.block_tokens = block_tokens != 0 ? block_tokens : kMooncakeBlockTokens,
              .requests = {}};
  if (kMooncakeBlockTokens % trace.block_tokens != 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a block of {} tokens does not divide the {} that this trace's ids stand for",
                      trace.block_tokens, kMooncakeBlockTokens);
  }
  const uint32_t split = kMooncakeBlockTokens / trace.block_tokens;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const Result<nlohmann::json> record = read_json(line, kMaxLineBytes);
    if (!record.ok()) return bad_line(path, number, record.error().message);
    const nlohmann::json& json = *record;
    const auto length = [&](const char* name) -> std::optional<uint32_t> {
      if (!json.is_object() || !json.contains(name) || !json[name].is_number_unsigned()) return {};
      const auto value = json[name].get<uint64_t>();
      return value <= kMaxTokens ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
    };
    const auto prompt = length("input_length");
    const auto output = length("output_length");
    if (!prompt || !output || *prompt == 0 || !json.contains("timestamp") ||
        !json["timestamp"].is_number() || !json.contains("hash_ids") ||
        !json["hash_ids"].is_array()) {
      return bad_line(path, number, "expected timestamp, input_length, output_length and hash_ids");
    }
    TraceRequest request{.arrival_s = json["timestamp"].get<double>() / 1e3,
                         .prompt_tokens = *prompt,
                         .output_tokens = *output,
                         .keys = {}};
    for (const auto& id : json["hash_ids"]) {
      if (!id.is_number_unsigned()) return bad_line(path, number, "hash_ids must be numbers");
      for (uint32_t part = 0; part < split; ++part) {
        request.keys.push_back(id.get<uint64_t>() * split + part);
      }
    }
    const size_t n_full = *prompt / trace.block_tokens;
    if (request.keys.size() < n_full) return bad_line(path, number, "too few hash_ids");
    request.keys.resize(n_full);
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

}  // namespace

Result<Trace> read_trace(const std::filesystem::path& path, uint32_t block_tokens) {
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::kBadFile, "cannot read trace {}", to_utf8(path));
  const std::string extension = to_utf8(path.extension());
  if (extension != ".csv" && extension != ".jsonl") {
    return make_error(ErrorCode::kBadFile,
                      "{}: a trace is a .csv (Azure) or .jsonl (Mooncake) file", to_utf8(path));
  }
  PUMICE_TRY(Trace trace, extension == ".csv" ? read_azure(path, file, block_tokens)
                                              : read_mooncake(path, file, block_tokens));
  if (trace.requests.empty()) {
    return make_error(ErrorCode::kBadFile, "{} has no requests", to_utf8(path));
  }
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::arrival_s);
  const double first = trace.requests.front().arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  return trace;
}

Trace make_synthetic_trace(const SyntheticMix& mix, uint32_t block_tokens) {
  Trace trace{.block_tokens = block_tokens, .requests = {}};
  std::mt19937_64 random(mix.seed);
  const auto length = [&](uint32_t median) {
    std::lognormal_distribution<double> distribution(std::log(median), 0.8);
    return static_cast<uint32_t>(std::clamp(distribution(random), 1.0, 32.0 * median));
  };
  std::exponential_distribution<double> gap(mix.requests_per_s);
  double now = 0;
  for (size_t i = 0; i < mix.n_requests; ++i) {
    TraceRequest request;
    request.arrival_s = now;
    now += gap(random);
    const uint64_t system = random() % std::max(1u, mix.n_system_prompts);
    request.prompt_tokens = mix.system_prompt_tokens + length(mix.median_prompt_tokens);
    request.output_tokens = length(mix.median_output_tokens);
    request.keys = unshared_keys(i + mix.n_system_prompts, request.prompt_tokens, block_tokens);
    const size_t n_shared =
        std::min<size_t>(mix.system_prompt_tokens / block_tokens, request.keys.size());
    for (size_t block = 0; block < n_shared; ++block) {
      request.keys[block] = unshared_key(static_cast<size_t>(system), block);
    }
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

}  // namespace pumice
