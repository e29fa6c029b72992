// Suites of questions with known answers, and how a model's answers are judged.
//
// A suite is text with one JSON object a line (JSON Lines). What it asks follows from its keys:
//   "prompt", "choices": ["…", …], "answer": 1     which choice is likeliest to follow the prompt
//   "prompt", "answer": "…" or ["…", …]            the greedy answer, without white space around it, is one of these
//   "prompt", "schema": {…}                        the greedy answer is JSON that is valid under it
// Instead of "prompt" the last two may have "messages", as a chat has. All may have "id" (else the line's number),
// "task" (what the results are grouped by), and those that generate "max_tokens" and "stop".
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/conversation.hpp"

namespace pumice::bench {

/// Whether texts are JSON that is valid under a schema of draft 7. Any thread.
class SchemaJudge {
 public:
  /// Errors (kBadFile): no schema, references to other documents, and keywords of later drafts that constrain, by name.
  static Result<std::shared_ptr<const SchemaJudge>> create(const nlohmann::json& schema);
  ~SchemaJudge();
  SchemaJudge(const SchemaJudge&) = delete;
  SchemaJudge& operator=(const SchemaJudge&) = delete;

  /// Empty if it is valid, else why not.
  std::string problem(const std::string& text) const;
  /// Of a value that was read already.
  std::string problem_with(const nlohmann::json& value) const;

 private:
  struct Schema;
  explicit SchemaJudge(std::unique_ptr<const Schema> schema);

  std::unique_ptr<const Schema> schema_;
};

struct EvalItem {
  enum class Kind { kChoice, kExact, kSchema };

  Kind kind = Kind::kExact;
  size_t line = 0;  ///< of the suite, from 1
  std::string id;
  std::string task;
  std::string prompt;
  std::vector<ChatMessage> messages;         ///< instead of the prompt
  std::vector<std::string> choices;          ///< of kChoice, two or more
  size_t answer = 0;                         ///< of kChoice: the right one
  std::vector<std::string> answers;          ///< of kExact
  std::shared_ptr<const SchemaJudge> judge;  ///< of kSchema
  uint32_t max_tokens = 0;                   ///< 0 of kChoice
  std::vector<std::string> stops;
};
/// "choice", "exact", "schema".
std::string_view eval_kind_name(EvalItem::Kind kind);

/// Empty lines are left out. Errors (kBadFile): of the first line that is no such object, with `source` and the line.
Result<std::vector<EvalItem>> read_suite(std::string_view text, std::string_view source);

/// What became of an item.
struct EvalResult {
  std::string id;
  std::string task;
  EvalItem::Kind kind = EvalItem::Kind::kExact;
  bool correct = false;
  bool correct_normalized = false;  ///< of kChoice: by log probability a byte
  nlohmann::json detail;            ///< an object: what the model said

  /// One line of a file of results.
  nlohmann::json to_json() const;
  /// Errors: kBadFile.
  static Result<EvalResult> from_json(const nlohmann::json& json);
};

/// `log_probs`: of each choice, the sum over its tokens.
EvalResult judge_choices(const EvalItem& item, std::span<const double> log_probs);
/// Of the other kinds.
EvalResult judge_text(const EvalItem& item, const std::string& text);

struct EvalScore {
  std::string task;
  EvalItem::Kind kind = EvalItem::Kind::kExact;
  size_t n = 0;
  double accuracy = 0;
  double error = 0;                ///< standard error of the accuracy
  double accuracy_normalized = 0;  ///< of kChoice
};
/// By task and kind, in the order in which they first come.
std::vector<EvalScore> scores_of(std::span<const EvalResult> results);

}  // namespace pumice::bench
