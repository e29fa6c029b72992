#include "bench/load.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string_view>

#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

constexpr std::string_view kWords[] = {
    "the",  "and",    "was",    "day",   "time", "little", "big",   "dog",  "cat",   "girl",
    "boy",  "said",   "went",   "home",  "play", "happy",  "sad",   "tree", "house", "water",
    "sun",  "red",    "blue",   "ran",   "saw",  "found",  "made",  "good", "old",   "new",
    "long", "he",     "she",    "they",  "it",   "in",     "on",    "to",   "of",    "with",
    "for",  "from",   "but",    "then",  "some", "many",   "every", "back", "down",  "up",
    "away", "again",  "very",   "all",   "one",  "two",    "park",  "ball", "book",  "bird",
    "car",  "friend", "mother", "school"};

void add_words(uint64_t key, size_t n, std::string& text) {
  std::mt19937_64 random(key);
  for (size_t i = 0; i < n; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % std::size(kWords)];
  }
}

nlohmann::json spread_ms(std::vector<double> seconds) {
  if (seconds.empty()) return nullptr;
  std::ranges::sort(seconds);
  const double mean =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  const auto at = [&](double q) { return 1e3 * quantile(seconds, q); };
  return {{"mean", 1e3 * mean}, {"p50", at(0.5)}, {"p90", at(0.9)}, {"p99", at(0.99)}};
}

/// Errors that differ in their numbers only are one: "your request has N tokens".
std::string without_numbers(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    const bool is_digit = byte >= '0' && byte <= '9';
    if (!is_digit) result += byte;
    if (is_digit && !result.ends_with('N')) result += 'N';
  }
  return result;
}

double time_per_token(const LoadSample& sample) {
  return sample.output_tokens > 1
             ? (sample.last_s - sample.first_s) / static_cast<double>(sample.output_tokens - 1)
             : 0;
}

}  // namespace

std::vector<LoadRequest> load_of(const pumice::Trace& trace) {
  std::vector<LoadRequest> requests;
  for (const TraceRequest& one : trace.requests) {
    LoadRequest& request = requests.emplace_back();
    request.arrival_s = one.arrival_s - trace.requests.front().arrival_s;
    request.output_tokens = std::max(1u, one.output_tokens);
    size_t n_words = 0;
    for (const uint64_t key : one.keys) {
      const size_t n = std::min<size_t>(trace.block_tokens, one.prompt_tokens - n_words);
      add_words(key, n, request.prompt);
      n_words += n;
    }
    add_words(~uint64_t{requests.size()}, std::max<size_t>(one.prompt_tokens, 1) - n_words,
              request.prompt);
  }
  return requests;
}

nlohmann::json load_report_json(std::span<const LoadSample> samples, double seconds,
                                const LoadObjectives& objectives) {
  std::map<std::string, size_t> errors;
  std::map<std::string, std::string> examples;  // of each kind the first
  std::vector<double> ttft, tpot, itl, e2el;
  uint64_t prompt = 0, cached = 0, output = 0;
  size_t n_good = 0;
  for (const LoadSample& sample : samples) {
    if (!sample.error.empty()) {
      ++errors[examples.try_emplace(without_numbers(sample.error), sample.error).first->second];
      continue;
    }
    ttft.push_back(sample.first_s - sample.due_s);
    e2el.push_back(sample.ended_s - sample.due_s);
    if (sample.output_tokens > 1) tpot.push_back(time_per_token(sample));
    itl.insert(itl.end(), sample.gaps_s.begin(), sample.gaps_s.end());
    prompt += sample.prompt_tokens;
    cached += sample.cached_tokens;
    output += sample.output_tokens;
    if (ttft.back() <= objectives.ttft_s && time_per_token(sample) <= objectives.tpot_s) ++n_good;
  }
  const auto per_s = [&](double n) { return seconds > 0 ? n / seconds : 0; };
  return {{"requests", samples.size()},
          {"failed", samples.size() - ttft.size()},
          {"errors", errors},
          {"seconds", seconds},
          {"requests_per_s", per_s(static_cast<double>(ttft.size()))},
          {"output_tokens_per_s", per_s(static_cast<double>(output))},
          {"total_tokens_per_s", per_s(static_cast<double>(prompt + output))},
          {"goodput_requests_per_s", per_s(static_cast<double>(n_good))},
          {"prompt_tokens", prompt},
          {"cached_tokens", cached},
          {"output_tokens", output},
          {"ttft_ms", spread_ms(std::move(ttft))},
          {"tpot_ms", spread_ms(std::move(tpot))},
          {"itl_ms", spread_ms(std::move(itl))},
          {"e2el_ms", spread_ms(std::move(e2el))}};
}

std::string load_report_text(const nlohmann::json& report) {
  const auto number = [&](const char* key) { return report[key].get<double>(); };
  std::string text = fmt::format(
      "{:.0f} requests in {:.1f} s, {:.0f} failed; {:.2f} requests/s, goodput {:.2f} requests/s\n"
      "{:.1f} output tok/s, {:.1f} tok/s with prompts; {:.0f} of {:.0f} prompt tokens were "
      "cached\n\n"
      "| ms | mean | p50 | p90 | p99 |\n|---|---|---|---|---|\n",
      number("requests"), number("seconds"), number("failed"), number("requests_per_s"),
      number("goodput_requests_per_s"), number("output_tokens_per_s"), number("total_tokens_per_s"),
      number("cached_tokens"), number("prompt_tokens"));
  const std::pair<const char*, const char*> rows[] = {
      {"TTFT", "ttft_ms"}, {"TPOT", "tpot_ms"}, {"ITL", "itl_ms"}, {"E2EL", "e2el_ms"}};
  for (const auto& [name, key] : rows) {
    const nlohmann::json& row = report[key];
    if (row.is_null()) continue;
    text +=
        fmt::format("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", name, row["mean"].get<double>(),
                    row["p50"].get<double>(), row["p90"].get<double>(), row["p99"].get<double>());
  }
  for (const auto& [error, n] : report["errors"].items()) {
    text += fmt::format("{} failed: {}\n", n.get<size_t>(), error);
  }
  return text;
}

std::vector<std::string> EventStreamReader::feed(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char byte : bytes) {
    if (byte == '\r') continue;
    if (byte != '\n') {
      line_ += byte;
      continue;
    }
    constexpr std::string_view kData = "data:";
    if (line_.empty()) {
      if (!data_.empty()) events.push_back(std::move(data_));
      data_.clear();
    } else if (line_.starts_with(kData)) {
      std::string_view value = std::string_view(line_).substr(kData.size());
      if (value.starts_with(' ')) value.remove_prefix(1);
      if (!data_.empty()) data_ += '\n';
      data_ += value;
    }
    line_.clear();
  }
  return events;
}

}  // namespace pumice::bench
