// pumice run: continue a prompt, streaming text to stdout.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/output_file.hpp"
#include "base/path.hpp"
#include "cache/token_cache.hpp"
#include "engine/engine_limits.hpp"
#include "host/host.hpp"
#include "tools/adapter_options.hpp"
#include "tools/answer_printer.hpp"
#include "tools/command.hpp"
#include "tools/flag_values.hpp"
#include "tools/generation.hpp"
#include "tools/interrupt.hpp"
#include "tools/line_reader.hpp"
#include "tools/model_options.hpp"
#include "tools/sampling_options.hpp"
#include "tools/serving_options.hpp"
#include "tools/terminal.hpp"
#include "tools/tool_options.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kTokenCacheBytes = uint64_t{16} << 20;
constexpr int64_t kUntilEnd = -1;   // which with --overflow stop is where the context is full
constexpr int64_t kUntilFull = -2;  // whatever --overflow says
constexpr int64_t kMostPredicted = int64_t{1} << 24;
constexpr uint32_t kMostChoices = 64;

struct RunOptions {
  ModelOptions model;
  AdapterOptions adapters;
  std::string prompt;
  std::string file;
  CLI::Option* prompt_option = nullptr;
  int64_t n_predict = 128;  ///< or kUntilEnd, kUntilFull
  bool escape = false;
  SamplingOptions generation;
  bool json = false;
  std::optional<uint32_t> log_probs;
  uint32_t choices = 1;
  bool repl = false;
  std::string messages_file;
  ToolOptions tools;
  ServingOptions serving;

  /// Prompts are messages to a chat model, instead of text that goes on.
  bool has_messages() const { return !messages_file.empty() || tools.is_used(); }
};

Json to_json(const Generation& generation, const Engine& engine, uint64_t seed) {
  const RequestReport& report = generation.report;
  return {{"text", generation.text},
          {"tokens", generation.tokens},
          {"seed", seed},
          {"end_reason", end_reason_name(report.end_reason)},
          {"cache",
           {{"cached_tokens", report.cache.cached_tokens},
            {"host_tokens", report.cache.host_tokens},
            {"file_tokens", report.cache.file_tokens},
            {"copied_tokens", report.cache.copied_tokens},
            {"miss", miss_reason_name(report.cache.miss)}}},
          {"shifts", report.shifts},
          {"truncated_tokens", report.truncated_tokens},
          {"spec", spec_json(report.drafts)},
          {"timings", timings_json(generation)},
          {"variants", engine.variants()},
          {"limit", vk::format_plan_options(engine.device()->plan().limits)}};
}

Json to_json(const std::vector<Generation>& choices, bool has_messages) {
  Json all = Json::array();
  for (const Generation& choice : choices) {
    Json& one = all.emplace_back(Json{{"text", choice.text},
                                      {"tokens", choice.tokens},
                                      {"end_reason", end_reason_name(choice.report.end_reason)}});
    if (!choice.log_probs.empty()) one["logprobs"] = log_probs_json(choice);
    if (has_messages) add_answer(choice.answer, one);
  }
  return all;
}

std::string predict_problem(const std::string& text) {
  return n_predict_problem(text, 1, static_cast<uint32_t>(kMostPredicted));
}

class Runner {
 public:
  static Status run(RunOptions options);

 private:
  Runner(RunOptions options, Logger logger, host::ModelTexts texts)
      : options_(std::move(options)), logger_(std::move(logger)), texts_(std::move(texts)) {}

  Status open(const GgufFile& file, size_t prompt_tokens);
  Result<std::vector<TokenId>> encode(const std::string& text);
  /// A request, and how many tokens its prompt has.
  struct Asked {
    host::RequestInput input;
    size_t n_tokens = 0;
  };
  Result<Asked> ask(const std::string& text);
  Result<Asked> ask(std::vector<ChatMessage> messages);
  Result<Asked> read_prompt();
  Result<Generation> generate_one(const host::RequestInput& asked);
  Status end_line();
  Status once(const GgufFile& file);
  Status repl(const GgufFile& file);

  RunOptions options_;
  Logger logger_;
  host::ModelTexts texts_;
  TokenCache token_cache_{kTokenCacheBytes};
  host::AnswerInput answer_;  ///< of messages
  AnswerWish wish_;
  std::unique_ptr<host::Host> host_;
  Status output_;              ///< of what was printed last
  bool line_is_open_ = false;  ///< of text that was printed
};

Status Runner::open(const GgufFile& file, size_t prompt_tokens) {
  EngineOptions engine_options{.kv_type = options_.model.kv_type(),
                               .math = options_.model.math_kind(),
                               .n_sequences = options_.choices,
                               .token_budget = options_.model.token_budget,
                               .chunk_tokens = options_.model.chunk_tokens,
                               .greedy_only = is_plain_greedy(options_.generation.sampler) &&
                                              !options_.log_probs && !wish_.given(),
                               .profile = options_.model.profile};
  options_.serving.apply_to(engine_options);
  if (wish_.given()) reserve_forced_rows(engine_options);
  HostRequest request{.engine = engine_options,
                      .draft_model = options_.serving.draft_model,
                      .predicts = options_.serving.predicts()};
  PUMICE_TRY(const ModelSource source, options_.adapters.apply_to(file));
  if (options_.repl || options_.n_predict < 0) {
    request.prompts = options_.repl ? Prompts::kSeveral : Prompts::kOne;
  } else {
    PUMICE_TRY(request.plan, ModelPlan::of_source(source, request.predicts));
    PUMICE_TRY(request.engine.context_tokens,
               context_for(options_.model, request.plan->program(), prompt_tokens,
                           static_cast<uint32_t>(options_.n_predict), engine_options.overflow));
  }
  PUMICE_TRY(host_, open_host(options_.model, source, texts_, logger_, request));
  return {};
}

Result<std::vector<TokenId>> Runner::encode(const std::string& text) {
  if (const std::vector<TokenId>* known = token_cache_.find(options_.model.model, text)) {
    logger_.info("token cache: hit, {} tokens without tokenizing ({} hits, {} misses)",
                 known->size(), token_cache_.stats().hits, token_cache_.stats().misses);
    return *known;
  }
  PUMICE_TRY(std::vector<TokenId> tokens, texts_.tokenizer->encode(text, {.parse_special = true}));
  if (tokens.empty()) return no_tokens();
  token_cache_.put(options_.model.model, text, tokens);
  logger_.info("token cache: miss, {} bytes are {} tokens ({} hits, {} misses)", text.size(),
               tokens.size(), token_cache_.stats().hits, token_cache_.stats().misses);
  return tokens;
}

Result<Runner::Asked> Runner::ask(const std::string& text) {
  if (options_.has_messages()) return ask({{.role = "user", .content = text}});
  Asked asked;
  PUMICE_TRY(asked.input.tokens, encode(text));
  asked.n_tokens = asked.input.tokens.size();
  return asked;
}

Result<Runner::Asked> Runner::ask(std::vector<ChatMessage> messages) {
  // Of the context, all may be the prompt's but one token.
  Asked asked{.input = {.answer = answer_, .answer_room_tokens = 1}};
  PUMICE_TRY(asked.n_tokens, n_prompt_tokens(texts_, messages, answer_));
  asked.input.messages = std::move(messages);
  return asked;
}

Result<Generation> Runner::generate_one(const host::RequestInput& asked) {
  AnswerPrinter printer(false);
  const auto answers = [&](std::span<const AnswerEvent> events) {
    if (options_.json) return true;
    output_ = printer.print(events);
    line_is_open_ = !printer.ends_line();
    return output_.ok();
  };
  const auto sink = [&](std::string_view piece) {
    if (options_.json || asked.answer) return true;
    output_ = print_output(piece);
    line_is_open_ = !piece.ends_with('\n');
    return output_.ok();
  };
  const bool stops = host_->engine().options().overflow == OverflowPolicy::kStop;
  const int64_t n_predict = options_.n_predict < 0 ? kMostPredicted : options_.n_predict;
  const bool until_full = options_.n_predict == kUntilFull || (options_.n_predict < 0 && stops);
  std::vector<host::Submitted> requests;
  for (uint32_t i = 0; i < options_.choices; ++i) {
    SamplerOptions sampling = options_.generation.sampler;
    sampling.seed += i;
    const host::RequestId first = i == 0 ? host::RequestId::kNone : requests[0].id;
    host::RequestInput input = asked;
    input.max_new_tokens = static_cast<uint32_t>(n_predict);
    // Of a line, what fits is generated.
    input.within_window = until_full || (options_.repl && stops);
    input.sampling = std::move(sampling);
    input.stops = options_.generation.stop_strings;
    input.wish = wish_;
    input.ignore_end = options_.generation.ignore_eos;
    input.log_probs = options_.log_probs;
    input.speculation = options_.serving.speculation();
    input.shares_prompt_with = first;
    input.alone.adapter = options_.adapters.own();
    PUMICE_TRY(requests.emplace_back(),
               host_->submit(host::ConversationId::kNone, std::move(input)));
  }
  Result<std::vector<Generation>> generated = follow_all(*host_, requests, sink, answers);
  if (output_.ok()) output_ = printer.end_reasoning();
  const bool is_empty_answer = generated.ok() && generated->front().text.empty();
  if (options_.repl && !options_.json && is_empty_answer) line_is_open_ = true;
  if (output_.ok()) output_ = end_line();
  PUMICE_TRY(std::vector<Generation> choices, std::move(generated));
  for (Generation& choice : choices) {
    if (until_full && choice.report.end_reason == EndReason::kLength) {
      choice.report.end_reason = EndReason::kWindow;
    }
  }
  Generation& generation = choices.front();
  if (options_.json) {
    Json json = to_json(generation, host_->engine(), options_.generation.sampler.seed);
    if (options_.log_probs) json["logprobs"] = log_probs_json(generation);
    if (asked.answer) add_answer(generation.answer, json);
    if (choices.size() > 1) json["choices"] = to_json(choices, asked.answer.has_value());
    output_ = print_output(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  print_rates(generation);
  PUMICE_TRY_STATUS(output_);
  return generation;
}

/// A text alone in a file or pipe is what the model wrote and nothing else; people and the next
/// answer begin a new line.
Status Runner::end_line() {
  if (!std::exchange(line_is_open_, false)) return {};
  if (options_.repl || is_terminal(Stream::kOutput)) return print_output("\n");
  if (is_terminal(Stream::kError)) print_message("\n");  // where the pipe may lead too
  return {};
}

Result<Runner::Asked> Runner::read_prompt() {
  if (!options_.messages_file.empty()) {
    PUMICE_TRY(std::vector<ChatMessage> messages, read_messages_file(options_.messages_file));
    return ask(std::move(messages));
  }
  PUMICE_TRY(const std::string text,
             read_prompt_to_continue(
                 options_.prompt_option->count() > 0 ? &options_.prompt : nullptr, options_.file));
  return ask(options_.escape ? unescaped(text) : text);
}

Status Runner::once(const GgufFile& file) {
  PUMICE_TRY(const Asked asked, read_prompt());
  PUMICE_TRY_STATUS(open(file, asked.n_tokens));
  PUMICE_TRY(const Generation generation, generate_one(asked.input));
  if (options_.model.profile) {
    print_message(std::string_view(host_->engine().profiler().table()));
  }
  if (generation.interrupted) return make_error(ErrorCode::kCancelled, "interrupted");
  return {};
}

/// One prompt a line, typed or piped. A line that fails says why and the next one is read.
Status Runner::repl(const GgufFile& file) {
  PUMICE_TRY_STATUS(open(file, 0));
  LineReader lines;
  while (const std::optional<std::string> line = lines.next("> ")) {
    if (lines.cancelled()) return make_error(ErrorCode::kCancelled, "interrupted");
    if (line->empty()) continue;
    const Result<Asked> asked = ask(options_.escape ? unescaped(*line) : *line);
    if (!asked.ok()) {
      print_error(asked.error());
      continue;
    }
    const Result<Generation> generation = generate_one(asked->input);
    if (!generation.ok()) {
      if (generation.error().code == ErrorCode::kDeviceLost || !output_.ok()) {
        return generation.error();
      }
      print_error(generation.error());
      continue;
    }
    if (!generation->interrupted) continue;
    if (!lines.interactive()) return make_error(ErrorCode::kCancelled, "interrupted");
    if (!InterruptGuard::forgive()) return make_error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

Status Runner::run(RunOptions options) {
  if (options.model.device.list) return print_devices(stderr_logger(options.model.verbose));
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(options.serving.validate());
  PUMICE_TRY_STATUS(options.generation.validate());
  PUMICE_TRY_STATUS(options.tools.validate());
  PUMICE_TRY(host::AnswerInput answer, options.tools.read());
  AnswerWish wish = options.generation.constraint.wish();
  PUMICE_TRY_STATUS(options.tools.choose(answer, wish));
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY_STATUS(
      check_not_an_input(from_utf8(options.serving.prompt_cache),
                         std::vector{from_utf8(options.model.model), from_utf8(options.file)}));
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  PUMICE_TRY(host::ModelTexts texts, options.has_messages() ? options.tools.read_texts(file)
                                                            : host::ModelTexts::read(file));
  PUMICE_TRY_STATUS(options.generation.complete(texts));
  const bool repl = options.repl;
  const std::string stats = options.serving.stats;
  const Logger logger = stderr_logger(options.model.verbose);
  Runner runner(std::move(options), logger, std::move(texts));
  runner.answer_ = std::move(answer);
  runner.wish_ = std::move(wish);
  Status status = repl ? runner.repl(file) : runner.once(file);
  if (runner.host_ != nullptr) {
    print_stats(stats, runner.host_->engine());
    runner.host_->keep_for_next_run();
  }
  return status;
}

}  // namespace

Command add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Continue a prompt");
  options->model.add_to(*command, "auto", "f16");
  options->model.remember_costs = true;
  options->model.add_batch_sizes(*command);
  options->adapters.add_to(*command, false);
  options->prompt_option =
      command->add_option("-p,--prompt", options->prompt, "The prompt (or -f, or standard input)");
  command->add_option("-f,--file", options->file, "Read the prompt from a file")
      ->excludes(options->prompt_option);
  command->add_flag(
      "-e,--escape", options->escape,
      "Replace \\n \\r \\t \\\\ \\' \\\" and \\xHH in the prompt with what they stand for");
  command
      ->add_option(
          "-n,--predict", options->n_predict,
          "Maximum tokens to generate (-1: until the text ends or the context is full; -2: "
          "until it is full, whatever --overflow says)")
      ->envname("PUMICE_PREDICT")
      ->capture_default_str()
      ->type_name("INT")
      ->check(predict_problem);
  options->generation.add_to(*command);
  CLI::Option* const json = command->add_flag(
      "--json", options->json,
      "Print one JSON object (text, tokens, timings, variants, limit) instead of streaming");
  command
      ->add_option(
          "--logprobs", options->log_probs,
          "With --json: the log probability of each token, and of so many best in its place")
      ->check(CLI::Range(0u, kMostLogProbs))
      ->needs(json);
  command
      ->add_option(
          "--choices", options->choices,
          "With --json: so many continuations, with seeds from -s on; the prompt is computed "
          "once")
      ->check(CLI::Range(1u, kMostChoices))
      ->needs(json);
  command
      ->add_flag("--repl", options->repl,
                 "Keep one engine and answer one prompt per line, typed or piped; beginnings that "
                 "lines share are computed once")
      ->excludes(options->prompt_option);
  command
      ->add_option("--messages", options->messages_file,
                   "Answer a conversation with a chat model instead: a JSON file of OpenAI's "
                   "\"messages\"; if the last one is the assistant's, it goes on")
      ->excludes(options->prompt_option)
      ->excludes("--file")
      ->excludes("--repl");
  options->tools.add_to(*command);
  options->serving.add_to(*command);
  command->footer(
      "Examples:\n"
      "  pumice run -m model.gguf -p \"Once upon a time\" -n 100\n"
      "  pumice run -m model.gguf -f story.txt --temp 0 --json\n"
      "  echo \"The little dog\" | pumice run -m model.gguf\n"
      "  pumice run -m model.gguf --repl < prompts.txt\n"
      "  pumice run -m model.gguf -p \"Is it raining in Rome?\" --tools tools.json --json\n"
      "  pumice run -m model.gguf -p \"A dog as JSON: \" -j '{\"type\":\"object\",\"properties\":{"
      "\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]}'\n"
      "  pumice run -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M -p \"Once upon a time\"");
  return {command, [options] { return Runner::run(*options); }};
}

}  // namespace pumice::tools
