#include "bench/evaluation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/ascii.hpp"
#include "base/json.hpp"
#include "text/text_stream.hpp"

namespace pumice::bench {
namespace {

constexpr size_t kMostLineBytes = size_t{16} << 20;
constexpr uint32_t kExactTokens = 32;
constexpr uint32_t kSchemaTokens = 512;
constexpr uint32_t kMostTokens = 1u << 20;

constexpr std::pair<EvalItem::Kind, std::string_view> kKindNames[] = {
    {EvalItem::Kind::kChoice, "choice"},
    {EvalItem::Kind::kExact, "exact"},
    {EvalItem::Kind::kSchema, "schema"}};

template <typename... Args>
Error bad(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kBadFile, "{}", fmt::format(format, std::forward<Args>(args)...));
}

/// A string, or an array of at least one.
Result<std::vector<std::string>> strings_of(const nlohmann::json& value, std::string_view key) {
  std::vector<std::string> strings;
  if (value.is_string()) strings.push_back(value);
  for (const nlohmann::json& one : value.is_array() ? value : nlohmann::json::array()) {
    if (!one.is_string()) return bad("\"{}\" must contain strings only", key);
    strings.push_back(one);
  }
  if (strings.empty()) return bad("\"{}\" must be a string or an array of strings", key);
  return strings;
}

Result<std::string> string_of(const nlohmann::json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end()) return std::string();
  if (!value->is_string()) return bad("\"{}\" must be a string", key);
  return value->get<std::string>();
}

Result<std::vector<ChatMessage>> messages_of(const nlohmann::json& value) {
  if (!value.is_array() || value.empty()) return bad("\"messages\" must be an array of messages");
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& one : value) {
    if (!one.is_object()) return bad("\"messages\" must contain objects only");
    ChatMessage& message = messages.emplace_back();
    PUMICE_TRY(message.role, string_of(one, "role"));
    PUMICE_TRY(message.content, string_of(one, "content"));
    if (message.role.empty()) return bad("a message has no \"role\"");
  }
  return messages;
}

Status add_choices(const nlohmann::json& object, EvalItem& item) {
  item.kind = EvalItem::Kind::kChoice;
  PUMICE_TRY(item.choices, strings_of(object["choices"], "choices"));
  if (item.choices.size() < 2) return bad("\"choices\" must have at least two");
  if (std::ranges::find(item.choices, std::string()) != item.choices.end()) {
    return bad("\"choices\" must not contain an empty string");
  }
  if (!item.messages.empty()) return bad("\"choices\" needs a \"prompt\", not \"messages\"");
  const auto answer = object.find("answer");
  if (answer == object.end() || !answer->is_number_unsigned() ||
      answer->get<uint64_t>() >= item.choices.size()) {
    return bad("\"answer\" must be the index of a choice, counted from 0");
  }
  item.answer = answer->get<size_t>();
  return {};
}

Status add_generation(const nlohmann::json& object, EvalItem& item) {
  if (const auto schema = object.find("schema"); schema != object.end()) {
    if (object.contains("answer")) return bad("only one of \"schema\" and \"answer\" may be given");
    item.kind = EvalItem::Kind::kSchema;
    item.max_tokens = kSchemaTokens;
    PUMICE_TRY(item.judge, SchemaJudge::create(*schema));
  } else {
    item.kind = EvalItem::Kind::kExact;
    item.max_tokens = kExactTokens;
    if (!object.contains("answer")) return bad("\"answer\" or \"schema\" is missing");
    PUMICE_TRY(item.answers, strings_of(object["answer"], "answer"));
  }
  if (const auto most = object.find("max_tokens"); most != object.end()) {
    if (!most->is_number_unsigned() || *most == 0 || *most > kMostTokens) {
      return bad("\"max_tokens\" must be a number from 1 to {}", kMostTokens);
    }
    item.max_tokens = most->get<uint32_t>();
  }
  if (object.contains("stop")) {
    PUMICE_TRY(item.stops, strings_of(object["stop"], "stop"));
    PUMICE_TRY_STATUS(validate_stop_strings(item.stops));
  }
  return {};
}

/// What is misspelt is no question: a key that nobody knows is an error.
Status check_keys(const nlohmann::json& object) {
  static constexpr std::string_view kKnown[] = {
      "id", "task", "prompt", "messages", "schema", "max_tokens", "answer", "choices", "stop"};
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(kKnown, key) == std::end(kKnown)) return bad("unknown key \"{}\"", key);
    const bool generates = !object.contains("choices");
    if (!generates && (key == "max_tokens" || key == "stop" || key == "schema")) {
      return bad("\"{}\" cannot be combined with \"choices\"", key);
    }
  }
  return {};
}

Result<EvalItem> read_item(const nlohmann::json& object) {
  if (!object.is_object()) return bad("not a JSON object");
  PUMICE_TRY_STATUS(check_keys(object));
  EvalItem item;
  PUMICE_TRY(item.id, string_of(object, "id"));
  PUMICE_TRY(item.task, string_of(object, "task"));
  PUMICE_TRY(item.prompt, string_of(object, "prompt"));
  if (object.contains("messages") == object.contains("prompt")) {
    return bad("exactly one of \"prompt\" and \"messages\" must be given");
  }
  if (object.contains("messages")) {
    PUMICE_TRY(item.messages, messages_of(object["messages"]));
  }
  PUMICE_TRY_STATUS(object.contains("choices") ? add_choices(object, item)
                                               : add_generation(object, item));
  return item;
}

size_t likeliest_choice(std::span<const double> values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::string_view eval_kind_name(EvalItem::Kind kind) {
  return std::ranges::find(kKindNames, kind, [](const auto& one) { return one.first; })->second;
}

Result<std::vector<EvalItem>> read_suite(std::string_view text, std::string_view source) {
  std::vector<EvalItem> items;
  std::set<std::string> ids;
  for (size_t line = 1; !text.empty(); ++line) {
    const std::string_view one = trimmed(take_part(text, '\n'));
    if (one.empty()) continue;
    const auto at = [&](const Error& error) {
      return make_error(error.code, "{}, line {}: {}", source, line, error.message);
    };
    const Result<nlohmann::json> object = read_json(one, kMostLineBytes);
    if (!object.ok()) return at(object.error());
    Result<EvalItem> item = read_item(*object);
    if (!item.ok()) return at(item.error());
    item->line = line;
    if (item->id.empty()) item->id = std::to_string(line);
    if (!ids.insert(item->id).second) return at(bad("the id \"{}\" is used twice", item->id));
    items.push_back(std::move(item).value());
  }
  if (items.empty()) return bad("{} is empty: there is nothing to answer", source);
  return items;
}

nlohmann::json EvalResult::to_json() const {
  nlohmann::json json = {
      {"id", id}, {"task", task}, {"kind", eval_kind_name(kind)}, {"correct", correct}};
  if (kind == EvalItem::Kind::kChoice) json["correct_normalized"] = correct_normalized;
  json.update(detail);
  return json;
}

Result<EvalResult> EvalResult::from_json(const nlohmann::json& json) {
  if (!json.is_object()) return bad("not a JSON object");
  EvalResult result;
  PUMICE_TRY(result.id, string_of(json, "id"));
  PUMICE_TRY(result.task, string_of(json, "task"));
  PUMICE_TRY(const std::string kind, string_of(json, "kind"));
  const auto named =
      std::ranges::find(kKindNames, kind, [](const auto& one) { return one.second; });
  const auto correct = json.find("correct");
  if (named == std::end(kKindNames) || correct == json.end() || !correct->is_boolean()) {
    return bad("not a result");
  }
  result.kind = named->first;
  result.correct = *correct;
  const auto normalized = json.find("correct_normalized");
  result.correct_normalized = normalized != json.end() && *normalized == true;
  return result;
}

EvalResult judge_choices(const EvalItem& item, std::span<const double> log_probs) {
  std::vector<double> by_byte;
  for (size_t i = 0; i < log_probs.size(); ++i) {
    by_byte.push_back(log_probs[i] / static_cast<double>(item.choices[i].size()));
  }
  const size_t chosen = likeliest_choice(log_probs);
  return {.id = item.id,
          .task = item.task,
          .kind = item.kind,
          .correct = chosen == item.answer,
          .correct_normalized = likeliest_choice(by_byte) == item.answer,
          .detail = {{"chosen", chosen},
                     {"chosen_normalized", likeliest_choice(by_byte)},
                     {"log_probs", std::vector(log_probs.begin(), log_probs.end())}}};
}

EvalResult judge_text(const EvalItem& item, const std::string& text) {
  EvalResult result{
      .id = item.id, .task = item.task, .kind = item.kind, .detail = {{"text", text}}};
  if (item.kind == EvalItem::Kind::kSchema) {
    const std::string problem = item.judge->problem(text);
    result.correct = problem.empty();
    if (!problem.empty()) result.detail["problem"] = problem;
  } else {
    result.correct = std::ranges::any_of(
        item.answers, [&](const std::string& answer) { return trimmed(answer) == trimmed(text); });
  }
  return result;
}

std::vector<EvalScore> scores_of(std::span<const EvalResult> results) {
  std::vector<EvalScore> scores;
  for (const EvalResult& result : results) {
    auto score = std::ranges::find_if(scores, [&](const EvalScore& one) {
      return one.task == result.task && one.kind == result.kind;
    });
    if (score == scores.end()) {
      score = scores.insert(scores.end(), {.task = result.task, .kind = result.kind});
    }
    ++score->n;
    score->accuracy += result.correct ? 1 : 0;
    score->accuracy_normalized += result.correct_normalized ? 1 : 0;
  }
  for (EvalScore& score : scores) {
    const auto n = static_cast<double>(score.n);
    score.accuracy /= n;
    score.accuracy_normalized /= n;
    if (score.n > 1) score.error = std::sqrt(score.accuracy * (1 - score.accuracy) / (n - 1));
  }
  return scores;
}

}  // namespace pumice::bench
