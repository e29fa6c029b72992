// pumice eval: a model's answers to a suite of questions, judged.
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "base/json.hpp"
#include "base/path.hpp"
#include "bench/evaluation.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/model_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

using bench::EvalItem;
using bench::EvalResult;
using Json = nlohmann::json;

constexpr uint32_t kSequences = 8;
constexpr uint32_t kScoredRows = 128;  // of a step
constexpr std::chrono::milliseconds kInterruptInterval(50);
constexpr size_t kMostResultBytes = size_t{64} << 20;  // of a line

struct EvalOptions {
  ModelOptions model;
  std::string suite;
  std::string output;
  uint32_t limit = 0;  // 0: all
  bool json = false;
};

/// The file of results: a header that says of what they are, then a line for each item, as it is
/// judged. An interrupted run goes on where it ended.
class ResultLog {
 public:
  /// Reads what is there. Errors: kBadFile for a file of something else.
  static Result<ResultLog> open(const std::string& path, const Json& header);

  const std::vector<EvalResult>& known() const { return known_; }
  Status add(const EvalResult& result) { return write(result.to_json()); }

 private:
  Status read(const std::string& text, const Json& header);
  Status write(const Json& line);

  std::string path_;
  std::ofstream stream_;
  std::vector<EvalResult> known_;
};

Result<ResultLog> ResultLog::open(const std::string& path, const Json& header) {
  ResultLog log;
  log.path_ = path;
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(from_utf8(path), ignored) ||
                      std::filesystem::is_empty(from_utf8(path), ignored);
  if (!is_new) {
    PUMICE_TRY(const std::string text, read_text_file(from_utf8(path)));
    PUMICE_TRY_STATUS(log.read(text, header));
    // A run that was killed left half a line: it is not among those that were read.
    const size_t whole = text.rfind('\n') + 1;
    if (whole < text.size()) std::filesystem::resize_file(from_utf8(path), whole, ignored);
  }
  log.stream_.open(from_utf8(path), std::ios::binary | std::ios::app);
  if (!log.stream_) return make_error(ErrorCode::kBadFile, "{}: cannot be written", path);
  if (is_new) PUMICE_TRY_STATUS(log.write(header));
  return log;
}

Status ResultLog::read(const std::string& text, const Json& header) {
  std::string_view rest(text);
  for (size_t line = 1; rest.find('\n') != std::string_view::npos; ++line) {
    const Result<Json> json = read_json(take_part(rest, '\n'), kMostResultBytes);
    if (line == 1) {
      if (!json.ok() || !json->is_object() || !json->contains("pumice_eval")) {
        return make_error(ErrorCode::kBadFile,
                          "{}: not a file of results; it is left as it is: name another with -o",
                          path_);
      }
      if (*json != header) {
        return make_error(ErrorCode::kBadFile,
                          "{}: results of another suite, model or settings; name another file "
                          "with -o",
                          path_);
      }
      continue;
    }
    Result<EvalResult> result = json.ok() ? EvalResult::from_json(*json) : json.error();
    if (!result.ok()) {
      return make_error(ErrorCode::kBadFile, "{}, line {}: {}", path_, line,
                        result.error().message);
    }
    known_.push_back(std::move(result).value());
  }
  return {};
}

Status ResultLog::write(const Json& line) {
  stream_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  if (!stream_) return make_error(ErrorCode::kBadFile, "{}: cannot be written", path_);
  return {};
}

/// A question as requests: one, or one a choice.
struct Question {
  const EvalItem* item = nullptr;
  std::vector<std::vector<TokenId>> tokens;
  size_t n_context = 0;  // of a choice: tokens at the start that all of them have

  size_t longest() const {
    size_t most = 0;
    for (const auto& one : tokens) most = std::max(most, one.size());
    return most;
  }
};

Error of_item(const EvalItem& item, const Error& error) {
  return make_error(error.code, "item {} (line {}): {}", item.id, item.line, error.message);
}

/// The tokens of prompt and choice together, as a text would have them. Those that are not the
/// prompt's own are scored.
Status add_choice(const EvalItem& item, const std::string& choice,
                  const std::vector<TokenId>& prompt, const Tokenizer& tokenizer,
                  Question& question) {
  PUMICE_TRY(std::vector<TokenId> all, tokenizer.encode(item.prompt + choice, {}));
  const auto common = std::ranges::mismatch(prompt, all).in1 - prompt.begin();
  question.n_context = std::min(question.n_context, static_cast<size_t>(common));
  if (common == static_cast<ptrdiff_t>(all.size())) {
    return make_error(ErrorCode::kBadFile, "the choice \"{}\" adds nothing to the prompt", choice);
  }
  question.tokens.push_back(std::move(all));
  return {};
}

Result<Question> question_of(const EvalItem& item, const host::ModelTexts& texts) {
  Question question{.item = &item};
  const Tokenizer& tokenizer = *texts.tokenizer;
  if (!item.messages.empty()) {
    if (!texts.format->ok()) return texts.format->error();
    PUMICE_TRY(const RenderedPrompt prompt, (*texts.format)->render(item.messages, tokenizer));
    PUMICE_TRY(question.tokens.emplace_back(), ChatFormat::encode(tokenizer, prompt));
    return question;
  }
  PUMICE_TRY(std::vector<TokenId> prompt, tokenizer.encode(item.prompt, {}));
  if (item.kind != EvalItem::Kind::kChoice) {
    if (prompt.empty()) return no_tokens();
    question.tokens.push_back(std::move(prompt));
    return question;
  }
  question.n_context = prompt.size();
  for (const std::string& choice : item.choices) {
    PUMICE_TRY_STATUS(add_choice(item, choice, prompt, tokenizer, question));
  }
  if (question.n_context == 0) {
    return make_error(ErrorCode::kBadFile,
                      "no token stands before the choices to predict them from; give a prompt");
  }
  return question;
}

class Evaluator {
 public:
  Evaluator(host::Host& host, std::vector<Question> questions)
      : host_(host), questions_(std::move(questions)) {}

  /// `done` gets each result, in the order in which they are had.
  template <typename Done>
  Status run(const Done& done);

 private:
  /// A request under way.
  struct Part {
    size_t question = 0;
    size_t choice = 0;
    double log_prob = 0;
    std::string text;
  };
  struct Open {
    size_t n_missing = 0;
    std::vector<double> log_probs;
  };

  Status submit_next();
  /// The result, if that was the question's last part.
  Result<std::optional<EvalResult>> take(host::Event& event);

  host::Host& host_;
  const std::vector<Question> questions_;
  size_t next_ = 0;
  std::map<host::RequestId, Part> parts_;
  std::map<size_t, Open> open_;  // questions
};

Status Evaluator::submit_next() {
  const Question& question = questions_[next_];
  const EvalItem& item = *question.item;
  const bool scores = item.kind == EvalItem::Kind::kChoice;
  for (size_t i = 0; i < question.tokens.size(); ++i) {
    const Result<host::Submitted> submitted =
        host_.submit(host::ConversationId::kNone, {.tokens = question.tokens[i],
                                                   .max_new_tokens = std::max(1u, item.max_tokens),
                                                   .sampling = SamplerOptions{},
                                                   .stops = item.stops,
                                                   .scores = scores});
    if (!submitted.ok()) return of_item(item, submitted.error());
    parts_.emplace(submitted->id, Part{.question = next_, .choice = i});
  }
  open_.emplace(next_, Open{question.tokens.size(), std::vector<double>(question.tokens.size())});
  ++next_;
  return {};
}

Result<std::optional<EvalResult>> Evaluator::take(host::Event& event) {
  const auto found = parts_.find(event.request);
  if (found == parts_.end()) return std::optional<EvalResult>();
  Part& part = found->second;
  const Question& question = questions_[part.question];
  if (event.kind == host::Event::Kind::kScore && event.computed_tokens >= question.n_context) {
    part.log_prob += event.log_probs->log_prob;
  }
  part.text += event.text;
  if (event.kind != host::Event::Kind::kFinished) return std::optional<EvalResult>();
  if (!event.status.ok()) return of_item(*question.item, event.status.error());
  Open& open = open_.at(part.question);
  open.log_probs[part.choice] = part.log_prob;
  std::optional<EvalResult> result;
  if (--open.n_missing == 0) {
    result = question.item->kind == EvalItem::Kind::kChoice
                 ? judge_choices(*question.item, open.log_probs)
                 : judge_text(*question.item, part.text);
    open_.erase(part.question);
  }
  parts_.erase(found);
  return result;
}

template <typename Done>
Status Evaluator::run(const Done& done) {
  const InterruptGuard interrupt;
  while (next_ < questions_.size() || !parts_.empty()) {
    if (InterruptGuard::interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
    while (next_ < questions_.size() && parts_.size() < kSequences) {
      PUMICE_TRY_STATUS(submit_next());
    }
    const Status polled = host_.poll(Submitter::kNoBudget);
    // Of a lost device the host knows when there is no more hope: then requests end.
    if (!polled.ok() && polled.error().code != ErrorCode::kDeviceLost) return polled;
    bool any = false;
    while (true) {
      PUMICE_TRY(host::Event* const event, host_.next_event());
      if (event == nullptr) break;
      any = true;
      PUMICE_TRY(const std::optional<EvalResult> result, take(*event));
      if (result) PUMICE_TRY_STATUS(done(*result));
    }
    if (!any) PUMICE_TRY_STATUS(host_.wait(kInterruptInterval));
  }
  return {};
}

/// What the results depend on.
Json header_of(const EvalOptions& options, const std::string& suite, const Model& model) {
  return {{"pumice_eval", 1},
          {"model", fmt::format("{:016x}{:016x}", model.fingerprint[0], model.fingerprint[1])},
          {"suite", fmt::format("{:016x}", XXH3_64bits(suite.data(), suite.size()))},
          {"math", options.model.math},
          {"kv", options.model.kv_type_k + " " + options.model.kv_type_v}};
}

std::string percent(double share, double error) {
  return fmt::format("{:.2f} ± {:.2f} %", 100 * share, 100 * error);
}

Status print_scores(const EvalOptions& options, const std::vector<EvalResult>& results,
                    double seconds) {
  Json tasks = Json::array();
  std::string text;
  size_t n_correct = 0;
  for (const bench::EvalScore& score : bench::scores_of(results)) {
    const std::string_view kind = bench::eval_kind_name(score.kind);
    Json& task = tasks.emplace_back(Json{{"task", score.task},
                                         {"kind", kind},
                                         {"n", score.n},
                                         {"accuracy", score.accuracy},
                                         {"accuracy_error", score.error}});
    text += fmt::format("{}{}{}: {} of {} items", score.task, score.task.empty() ? "" : ", ", kind,
                        percent(score.accuracy, score.error), score.n);
    if (score.kind == EvalItem::Kind::kChoice) {
      task["accuracy_normalized"] = score.accuracy_normalized;
      text += fmt::format("; by log probability a byte {:.2f} %", 100 * score.accuracy_normalized);
    }
    text += "\n";
  }
  for (const EvalResult& result : results) n_correct += result.correct ? 1 : 0;
  if (!options.json) return print_output(text);
  const Json json = {{"model", options.model.model_name()},
                     {"suite", options.suite},
                     {"items", results.size()},
                     {"correct", n_correct},
                     {"seconds", seconds},
                     {"tasks", std::move(tasks)}};
  return print_output(json.dump(2) + "\n");
}

/// What is left to ask: those without a result.
std::vector<Question> unanswered(std::vector<Question> questions,
                                 const std::vector<EvalResult>& known) {
  std::set<std::string> answered;
  for (const EvalResult& result : known) answered.insert(result.id);
  std::erase_if(questions, [&](const Question& one) { return answered.contains(one.item->id); });
  return questions;
}

Result<std::unique_ptr<host::Host>> open_engine(const EvalOptions& options, const GgufFile& file,
                                                const host::ModelTexts& texts,
                                                const std::vector<Question>& questions) {
  size_t longest = 0;
  bool has_choices = false;
  for (const Question& question : questions) {
    longest = std::max(longest, question.longest() + std::max(1u, question.item->max_tokens));
    has_choices = has_choices || question.item->kind == EvalItem::Kind::kChoice;
  }
  HostRequest request{.engine = {.kv_type = options.model.kv_type(),
                                 .math = options.model.math_kind(),
                                 .n_sequences = kSequences,
                                 .token_budget = options.model.token_budget,
                                 .chunk_tokens = options.model.chunk_tokens,
                                 .spare_logit_rows = has_choices ? kScoredRows : 0,
                                 .greedy_only = !has_choices,
                                 .profile = options.model.profile}};
  PUMICE_TRY(request.plan, ModelPlan::of_source(file));
  PUMICE_TRY(request.engine.context_tokens,
             context_for(options.model, request.plan->program(), longest, 0));
  return open_host(options.model, file, texts, stderr_logger(options.model.verbose), request);
}

Status eval(EvalOptions options) {
  if (options.model.device.list) return print_devices(stderr_logger(options.model.verbose));
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY(const std::string suite, read_text_file(from_utf8(options.suite)));
  PUMICE_TRY(std::vector<EvalItem> items, bench::read_suite(suite, options.suite));
  if (options.limit != 0 && options.limit < items.size()) items.resize(options.limit);
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  PUMICE_TRY(const host::ModelTexts texts, host::ModelTexts::read(file));
  std::vector<Question> questions;
  for (const EvalItem& item : items) {
    Result<Question> question = question_of(item, texts);
    if (!question.ok()) return of_item(item, question.error());
    questions.push_back(std::move(question).value());
  }
  PUMICE_TRY(const std::unique_ptr<host::Host> host, open_engine(options, file, texts, questions));
  std::optional<ResultLog> log;
  std::vector<EvalResult> results;
  if (!options.output.empty()) {
    PUMICE_TRY(log, ResultLog::open(options.output,
                                    header_of(options, suite, *host->model().opened().model)));
    results = log->known();
    if (!results.empty()) {
      print_message("{}: {} of {} items are answered there\n", options.output, results.size(),
                    questions.size());
    }
  }
  ProgressBar bar("answering");
  const size_t n_all = questions.size();
  const auto start = std::chrono::steady_clock::now();
  const auto done = [&](const EvalResult& result) -> Status {
    if (log) PUMICE_TRY_STATUS(log->add(result));
    results.push_back(result);
    bar.update(results.size(), n_all);
    return {};
  };
  PUMICE_TRY_STATUS(Evaluator(*host, unanswered(std::move(questions), results)).run(done));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // As the suite has them, whatever was answered first.
  std::map<std::string, size_t> order;
  for (const EvalItem& item : items) order.emplace(item.id, order.size());
  std::erase_if(results, [&](const EvalResult& one) { return !order.contains(one.id); });
  std::ranges::sort(results, {}, [&](const EvalResult& one) { return order.at(one.id); });
  host->keep_for_next_run();
  return print_scores(options, results, seconds.count());
}

}  // namespace

Command add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command =
      app.add_subcommand("eval", "How many questions of a suite a model answers rightly");
  options->model.add_to(*command, "auto", "f16");
  options->model.add_batch_sizes(*command);
  command
      ->add_option("--suite", options->suite,
                   "The questions, one JSON object a line: \"prompt\" with \"choices\" and the "
                   "number of the right one as \"answer\", or \"answer\" as text, or \"schema\"")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("-o,--output", options->output,
                   "Write the results here, one a line, as they come; a run that was interrupted "
                   "goes on with the same command")
      ->type_name("FILE");
  command->add_option("--items", options->limit, "Ask no more than the first N questions")
      ->check(CLI::Range(1u, 1u << 30));
  command->add_flag("--json", options->json, "Print the scores as JSON");
  command->footer(
      "A line of a suite is one of\n"
      "  {\"prompt\": \"2 + 2 =\", \"choices\": [\" 3\", \" 4\"], \"answer\": 1}\n"
      "  {\"prompt\": \"The capital of France is\", \"answer\": [\"Paris\"], \"stop\": [\".\"]}\n"
      "  {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}], \"schema\": {\"type\": "
      "\"object\"}}\n"
      "and may have \"id\", \"task\" (scores are by task) and \"max_tokens\". Answers are greedy.\n"
      "Example: pumice eval -m model.gguf --suite questions.jsonl -o results.jsonl");
  return {command, [options] { return eval(*options); }};
}

}  // namespace pumice::tools
