// pumice chat: a conversation, typed or piped, a message a line.
#include <fmt/core.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/output_file.hpp"
#include "engine/recovery.hpp"
#include "models/vocabulary_loader.hpp"
#include "text/conversation.hpp"
#include "tools/command.hpp"
#include "tools/flag_values.hpp"
#include "tools/generation.hpp"
#include "tools/interrupt.hpp"
#include "tools/line_reader.hpp"
#include "tools/model_options.hpp"
#include "tools/sampling_options.hpp"
#include "tools/serving_options.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr std::string_view kHelp =
    "/system [TEXT]  show the system prompt or set another; \"\" for none\n"
    "/regen          answer the last message again, with another seed\n"
    "/undo           take back the last message and its answer\n"
    "/clear          begin anew; the system prompt stays\n"
    "/save FILE      write the conversation as JSON; no other file is replaced\n"
    "/load FILE      go on with a conversation that was saved\n"
    "/stats          what was computed, reused and how fast\n"
    "/exit           leave (Ctrl-D does too)\n"
    "A line that ends with \\ goes on in the next; \"\"\" begins and ends several lines.\n"
    "Ctrl-C stops an answer, and what there is of it stays. A message that begins with / begins\n"
    "with a blank before it.\n";
constexpr std::string_view kFence = "\"\"\"";

struct ChatOptions {
  ModelOptions model;
  std::string prompt;
  std::string system;
  std::string template_file;
  uint32_t n_predict = 0;  // 0: until the model ends or the context is full
  bool hide_reasoning = false;
  SamplingOptions generation;
  ServingOptions serving;
};

/// Answers on their way to standard output: reasoning is dim on a terminal, in its tags elsewhere,
/// or hidden.
class AnswerPrinter {
 public:
  AnswerPrinter(bool open, bool hide)
      : splitter_(open),
        hide_(hide),
        terminal_(isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr) {}

  Status print(std::string_view text) { return print(splitter_.feed(text)); }
  /// What is left of it, and the end of its line.
  Status finish() {
    PUMICE_TRY_STATUS(print(splitter_.flush()));
    PUMICE_TRY_STATUS(end_reasoning());
    return ends_line_ ? Status() : print_output("\n");
  }

 private:
  Status print(const std::vector<ReasoningSplitter::Piece>& pieces) {
    for (const ReasoningSplitter::Piece& piece : pieces) {
      if (piece.is_reasoning && !reasons_) PUMICE_TRY_STATUS(begin_reasoning());
      if (!piece.is_reasoning) PUMICE_TRY_STATUS(end_reasoning());
      if (piece.is_reasoning && hide_) continue;
      PUMICE_TRY_STATUS(print_output(piece.text));
      ends_line_ = piece.text.ends_with('\n');
    }
    return {};
  }
  Status begin_reasoning() {
    reasons_ = true;
    if (!hide_) return print_output(terminal_ ? "\033[2m" : "<think>");
    if (isatty(STDERR_FILENO) == 1) print_message("(thinking)");
    return {};
  }
  Status end_reasoning() {
    if (!std::exchange(reasons_, false)) return {};
    if (!hide_) return print_output(terminal_ ? "\033[0m\n\n" : "</think>\n");
    if (isatty(STDERR_FILENO) == 1) draw_message("\r\033[K");
    return {};
  }

  ReasoningSplitter splitter_;
  bool hide_;
  bool terminal_;
  bool reasons_ = false;
  bool ends_line_ = false;
};

class Chat {
 public:
  static Status run(ChatOptions options);

 private:
  Chat(ChatOptions options, std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format)
      : options_(std::move(options)), tokenizer_(std::move(tokenizer)), format_(std::move(format)) {
    conversation_.set_system(options_.system);
  }

  Status open(const GgufFile& file, const Logger& logger);
  void greet(const GgufFile& file) const;
  Status converse();
  std::optional<std::string> read_message();
  Status handle(const std::string& message);
  Status ask(std::string question);
  Status answer();
  Result<Generation> generate_answer(FittedPrompt prompt);
  void report(const Generation& generation, size_t n_forgotten) const;
  Status command(const std::string& line);
  Status regenerate();
  Status set_system(std::string text);
  Status save(const std::string& path);
  Status load(const std::string& path);
  void print_totals() const;
  uint32_t window() const { return engine_->options().context_tokens; }
  bool forgets() const { return options_.serving.overflow != "stop"; }

  ChatOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatFormat format_;
  Conversation conversation_;
  std::string file_;  // that this conversation was saved to or loaded from
  std::optional<Recovery> recovery_;
  std::unique_ptr<Engine> engine_;
  LineReader lines_;
  bool left_ = false;
};

Status Chat::open(const GgufFile& file, const Logger& logger) {
  EngineOptions engine_options{.kv_type = options_.model.kv_type(),
                               .math = options_.model.math_kind(),
                               .token_budget = options_.model.token_budget,
                               .chunk_tokens = options_.model.chunk_tokens,
                               .greedy_only = is_plain_greedy(options_.generation.sampler),
                               .profile = options_.model.profile};
  options_.serving.apply_to(engine_options);
  // Whole messages are left out here; within a prompt the engine would cut anywhere.
  if (engine_options.overflow == OverflowPolicy::kTruncateOldest) {
    engine_options.overflow = OverflowPolicy::kStop;
  }
  PUMICE_TRY(OpenEngine open, open_for_prompts(options_.model, file, logger, engine_options));
  recovery_.emplace(std::move(open.session), file);
  engine_ = std::move(open.engine);
  return {};
}

void Chat::greet(const GgufFile& file) const {
  const std::string name = recovery_->session().model->program.name;
  const std::string_view shown = name.empty() ? std::string_view(options_.model.model) : name;
  if (format_.is_plain()) {
    const auto description = file.get_or<std::string_view>("general.description", "");
    print_message(
        "{} has no chat template, so it was not made to converse: it only tells on what you begin, "
        "as a story.{}{}\n",
        shown, description.ok() && !description->empty() ? " Its own description: " : "",
        description.ok() ? *description : "");
  } else if (lines_.interactive()) {
    print_message("{}\n", shown);
  }
  if (!lines_.interactive()) return;
  print_message("{} tokens of context; when it is full, {} (--overflow). /help tells more.\n",
                window(),
                options_.serving.overflow == "stop"    ? "the conversation ends"
                : options_.serving.overflow == "shift" ? "older text goes, and an answer goes on"
                                                       : "the oldest messages are left out");
}

/// Nothing at the end of input. Empty: nothing was said.
std::optional<std::string> Chat::read_message() {
  std::optional<std::string> line = lines_.next("> ");
  if (!line) return std::nullopt;
  if (lines_.cancelled()) {
    print_message("(/exit or Ctrl-D to leave)\n");
    return "";
  }
  std::string message = std::move(*line);
  if (message.starts_with(kFence)) {
    message.erase(0, kFence.size());
    while (!message.ends_with(kFence)) {
      line = lines_.next(". ");
      if (!line) return message;
      if (lines_.cancelled()) return "";
      message += "\n" + *line;
    }
    message.erase(message.size() - kFence.size());
    return message;
  }
  while (message.ends_with('\\')) {
    message.back() = '\n';
    line = lines_.next(". ");
    if (!line || lines_.cancelled()) return line ? std::string() : message;
    message += *line;
  }
  return message;
}

Status Chat::converse() {
  if (!options_.prompt.empty()) PUMICE_TRY_STATUS(handle(options_.prompt));
  while (!left_) {
    const std::optional<std::string> message = read_message();
    if (!message) break;
    PUMICE_TRY_STATUS(handle(*message));
  }
  if (InterruptGuard::interrupted()) return make_error(ErrorCode::kCancelled, "interrupted");
  if (left_ || !lines_.interactive()) return {};
  return print_output("\n");  // behind Ctrl-D
}

/// Errors end the program; whatever else goes wrong is said, and the next message is read.
Status Chat::handle(const std::string& message) {
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  const Status status = message.starts_with('/') ? command(message) : ask(message);
  if (status.ok() || status.error().code == ErrorCode::kDeviceLost ||
      status.error().code == ErrorCode::kCancelled || !finish_output().ok()) {
    return status;
  }
  print_error(status.error());
  return {};
}

Status Chat::ask(std::string question) {
  const Conversation before = conversation_;
  conversation_.ask(std::move(question));
  Status status = answer();
  if (!status.ok()) conversation_ = before;
  return status;
}

Status Chat::answer() {
  const uint32_t room = window() - std::max(window() / 4, 1u);  // the rest is the answer's
  Result<FittedPrompt> prompt = fit_prompt(conversation_, format_, *tokenizer_, room, forgets());
  if (!prompt.ok() && prompt.error().code == ErrorCode::kDoesNotFit) {
    return make_error(ErrorCode::kDoesNotFit,
                      "{} ({} of {} tokens, the rest is for the answer); /undo and /clear make "
                      "room, and so does a larger -c",
                      prompt.error().message, room, window());
  }
  PUMICE_TRY(FittedPrompt fitted, std::move(prompt));
  const size_t n_forgotten = fitted.n_forgotten;
  const std::string opening = ReasoningSplitter::is_open(fitted.text) ? "<think>\n" : "";
  PUMICE_TRY(const Generation generation, generate_answer(std::move(fitted)));
  conversation_.answer(opening + generation.text);
  report(generation, n_forgotten);
  if (!generation.interrupted) return {};
  if (!lines_.interactive() || !InterruptGuard::forgive()) {
    return make_error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

Result<Generation> Chat::generate_answer(FittedPrompt prompt) {
  AnswerPrinter printer(ReasoningSplitter::is_open(prompt.text), options_.hide_reasoning);
  const auto n_prompt = static_cast<uint32_t>(prompt.tokens.size());
  const bool shifts = engine_->options().overflow == OverflowPolicy::kShift;
  const uint32_t most = shifts ? 16 * window() : window() - n_prompt;
  Status printed;
  const auto sink = [&](std::string_view text) {
    printed = printer.print(text);
    return printed.ok();
  };
  PUMICE_TRY(Generation generation,
             generate(*engine_,
                      {.prompt = std::move(prompt.tokens),
                       .max_new_tokens =
                           options_.n_predict == 0 ? most : std::min(options_.n_predict, most),
                       .sampling = options_.generation.sampler,
                       .tokenizer = tokenizer_,
                       .ignore_end = options_.generation.ignore_eos,
                       .stop_strings = options_.generation.stop_strings},
                      sink, recover_by(*recovery_, *engine_)));
  PUMICE_TRY_STATUS(printed);
  PUMICE_TRY_STATUS(printer.finish());
  return generation;
}

void Chat::report(const Generation& generation, size_t n_forgotten) const {
  const Timings& t = generation.timings;
  const size_t n_context = t.prompt_tokens + t.new_tokens;
  print_message(
      "[{} tokens, {:.1f} tok/s; prompt {}, {} of it reused, {:.0f} ms; {} of {} in the "
      "context]\n",
      t.new_tokens, t.decode_rate(), t.prompt_tokens, t.cached_tokens, t.ttft_ms,
      std::min<size_t>(n_context, window()), window());
  if (n_forgotten > 0) {
    print_message("[the context is full: the first {} left out of what the model saw]\n",
                  n_forgotten == 1 ? std::string("exchange was")
                                   : fmt::format("{} exchanges were", n_forgotten));
  }
  if (generation.interrupted) {
    print_message("[stopped; /regen answers again, /undo takes the message back]\n");
  }
  if (generation.report.shifts > 0) {
    print_message("[the context was full {} times and made room by dropping older text]\n",
                  generation.report.shifts);
  }
  const bool by_length = generation.report.end_reason == EndReason::kLength;
  if (generation.report.end_reason == EndReason::kWindow ||
      (by_length && (options_.n_predict == 0 || t.new_tokens < options_.n_predict))) {
    print_message("[the answer ended because the context is full (-c for more)]\n");
  } else if (by_length) {
    print_message("[the answer ended after {} tokens (-n)]\n", options_.n_predict);
  }
}

Status Chat::command(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string name = line.substr(1, end - 1);
  const size_t first = line.find_first_not_of(' ', end);
  const std::string argument = first == std::string::npos ? "" : line.substr(first);
  if (name == "help" || name == "?") {
    print_message(kHelp);
    return {};
  }
  if (name == "exit" || name == "quit") {
    left_ = true;
    return {};
  }
  if (name == "system") return set_system(argument);
  if (name == "save") return save(argument);
  if (name == "load") return load(argument);
  if (name == "regen") return regenerate();
  if (name == "stats") {
    print_totals();
    return {};
  }
  if (name == "clear") {
    conversation_.clear();
    file_.clear();
    print_message("(a new conversation)\n");
    return {};
  }
  if (name == "undo") {
    if (!conversation_.undo()) {
      return make_error(ErrorCode::kInvalidArgument, "/undo: nothing was said yet");
    }
    print_message("(taken back; {} messages are left)\n", conversation_.messages().size());
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument, "/{}: no such command; /help lists them", name);
}

Status Chat::regenerate() {
  const Conversation before = conversation_;
  if (!conversation_.take_back_answer()) {
    return make_error(ErrorCode::kInvalidArgument, "/regen: nothing was said yet");
  }
  ++options_.generation.sampler.seed;
  Status status = answer();
  if (!status.ok()) conversation_ = before;
  return status;
}

Status Chat::set_system(std::string text) {
  if (text.empty()) {
    const std::string system = conversation_.system();
    print_message("{}\n", system.empty() ? "(no system prompt)" : system);
    return {};
  }
  conversation_.set_system(text == "\"\"" ? "" : std::move(text));
  print_message("(from the next message on; /clear begins anew with it)\n");
  return {};
}

Status Chat::save(const std::string& path) {
  if (path.empty()) return make_error(ErrorCode::kInvalidArgument, "/save: no file is named");
  using Existing = OutputFile::Existing;
  PUMICE_TRY(OutputFile file,
             OutputFile::create(path, path == file_ ? Existing::kReplace : Existing::kRefuse));
  PUMICE_TRY_STATUS(file.write(conversation_.to_json()));
  PUMICE_TRY_STATUS(file.finish());
  file_ = path;
  print_message("({} messages are in {})\n", conversation_.messages().size(), path);
  return {};
}

Status Chat::load(const std::string& path) {
  if (path.empty()) return make_error(ErrorCode::kInvalidArgument, "/load: no file is named");
  PUMICE_TRY(const std::string text, read_text_file(path));
  Result<Conversation> loaded = Conversation::parse(text);
  if (!loaded.ok()) {
    return make_error(loaded.error().code, "{}: {}", path, loaded.error().message);
  }
  conversation_ = std::move(loaded).value();
  file_ = path;
  print_message("({} messages from {})\n", conversation_.messages().size(), path);
  return {};
}

void Chat::print_totals() const {
  print_message("{} messages\n", conversation_.messages().size());
  print_stats("text", *engine_);
}

Result<ChatFormat> format_of(const ChatOptions& options, const GgufFile& file,
                             const Vocabulary& vocabulary) {
  const bool from_file = !options.template_file.empty();
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (!from_file && file.find(kKey) == nullptr) return ChatFormat();
  std::string source;
  if (from_file) {
    PUMICE_TRY(source, read_text_file(options.template_file));
  } else {
    PUMICE_TRY(const std::string_view text, file.get<std::string_view>(kKey));
    source = text;
  }
  Result<ChatFormat> format = ChatFormat::create(source, vocabulary);
  if (format.ok()) return format;
  return make_error(format.error().code, "{}: {}{}",
                    from_file ? options.template_file : std::string(kKey), format.error().message,
                    from_file ? "" : " (--chat-template FILE takes another)");
}

Status Chat::run(ChatOptions options) {
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(options.serving.validate());
  PUMICE_TRY_STATUS(options.generation.validate());
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY_STATUS(check_not_an_input(options.serving.prompt_cache,
                                       std::vector<std::filesystem::path>{options.model.model}));
  PUMICE_TRY(const GgufFile file, GgufFile::open(options.model.model));
  PUMICE_TRY(Tokenizer loaded, load_tokenizer(file));
  const auto tokenizer = std::make_shared<const Tokenizer>(std::move(loaded));
  PUMICE_TRY_STATUS(options.generation.complete(tokenizer->vocabulary()));
  PUMICE_TRY(ChatFormat format, format_of(options, file, tokenizer->vocabulary()));
  const std::string stats = options.serving.stats;
  Chat chat(std::move(options), tokenizer, std::move(format));
  PUMICE_TRY_STATUS(chat.open(file, logger));
  chat.greet(file);
  Status status = chat.converse();
  print_stats(stats, *chat.engine_);
  chat.recovery_->session().keep_for_next_run(*chat.engine_);
  return status;
}

}  // namespace

Command add_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Converse with a model");
  options->model.add_to(*command, "auto", "f16");
  options->model.remember_costs = true;
  options->model.add_batch_sizes(*command);
  command->add_option("-p,--prompt", options->prompt, "Say this first");
  command->add_option("--system-prompt,--sys", options->system,
                      "What the model is told before the conversation");
  command->add_option("--chat-template", options->template_file,
                      "Jinja template to use instead of the model's own, a file");
  command
      ->add_option_function<int64_t>(
          "-n,--predict",
          [target = &options->n_predict](int64_t n) {
            *target = static_cast<uint32_t>(std::max<int64_t>(n, 0));
          },
          "Most tokens of an answer (0, -1 or -2: as many as the context holds)")
      ->envname("PUMICE_PREDICT")
      ->default_str("0")
      ->type_name("INT")
      ->check([](const std::string& text) { return n_predict_problem(text, 0, 1u << 24); });
  command->add_flag("--hide-reasoning", options->hide_reasoning,
                    "Do not show what models think between <think> and </think>");
  options->generation.add_to(*command);
  options->serving.overflow = "truncate-oldest";
  options->serving.add_to(*command);
  command->footer(
      "Type a message and Enter; /help lists what else can be typed. Piped input is answered line\n"
      "by line. When the context is full the oldest messages are left out, and it says so;\n"
      "--overflow stop refuses further messages, shift lets an answer go on.\n"
      "Examples:\n"
      "  pumice chat -hf Qwen/Qwen3-0.6B-GGUF\n"
      "  pumice chat -m model.gguf -sys \"Answer in one sentence.\"\n"
      "  echo \"Why is the sky blue?\" | pumice chat -m model.gguf --temp 0");
  return {command, [options] { return Chat::run(*options); }};
}

}  // namespace pumice::tools
