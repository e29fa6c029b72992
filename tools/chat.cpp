// pumice chat: a conversation, typed or piped, a message a line.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/folders.hpp"
#include "base/output_file.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "host/host.hpp"
#include "text/conversation.hpp"
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

constexpr std::string_view kHelp =
    "/system [TEXT]     show the system prompt or set a new one; \"\" removes it\n"
    "/set [NAME VALUE]  show how answers are sampled, or change it: temp, top-k, top-p, min-p, "
    "seed,\n"
    "                   repeat-penalty, frequency-penalty, presence-penalty\n"
    "/retry             answer the last message again, with another seed (also /regen)\n"
    "/undo              take back the last message and its answer\n"
    "/clear             start a new conversation; the system prompt stays\n"
    "/save FILE         write the conversation as JSON, and beside it, as FILE.kv, what the model "
    "has\n"
    "                   computed of it; other files are never overwritten\n"
    "/load FILE         continue a saved conversation\n"
    "/tools             which functions the model may call (--tools). When it calls one, you type "
    "its\n"
    "                   result as a message\n"
    "/stats             what was computed and reused, and how fast\n"
    "/exit              leave (also /bye, /quit and Ctrl-D)\n"
    "End a line with \\ to continue it on the next one; put \"\"\" before and after a message of "
    "several\n"
    "lines. Ctrl-C stops an answer and keeps what there is of it. To start a message with /, type "
    "a\n"
    "space before it.\n";
constexpr std::string_view kFence = "\"\"\"";
constexpr size_t kMostDescriptionBytes = 300;
constexpr size_t kMostPathBytes = 300;
/// Behind the name of a saved conversation: its keys and values (Host::save).
constexpr std::string_view kStateSuffix = ".kv";

struct ChatOptions {
  ModelOptions model;
  AdapterOptions adapters;
  std::string prompt;
  std::string system;
  uint32_t n_predict = 0;  // 0: until the model ends or the context is full
  bool hide_reasoning = false;
  bool trust_special = false;
  bool no_history = false;
  ToolOptions tools;
  SamplingOptions generation;
  ServingOptions serving;
};

std::filesystem::path history_file() {
  const std::filesystem::path directory = state_directory();
  return directory.empty() ? directory : directory / "chat_history";
}

class Chat {
 public:
  static Status run(ChatOptions options);

 private:
  Chat(ChatOptions options, host::ModelTexts texts)
      : options_(std::move(options)),
        texts_(std::move(texts)),
        lines_(options_.no_history ? std::filesystem::path() : history_file()) {}

  Status open(const GgufFile& file, const Logger& logger);
  void greet(const GgufFile& file) const;
  Status converse();
  std::optional<std::string> read_message();
  Status handle(const std::string& message);
  /// The calls of the last answer that have no result yet.
  std::vector<ToolCall> open_calls() const;
  Status give_result(const ToolCall& call, const std::string& result);
  void print_tools() const;
  Status answer(host::RequestInput input);
  Result<host::Submitted> submit(host::RequestInput input);
  Result<Generation> print_answer(const host::Submitted& request);
  void report(const Generation& generation) const;
  Status command(const std::string& line);
  Status retry();
  Status undo();
  Status set_system(std::string text);
  Status set(const std::string& words);
  void print_sampling() const;
  Status save(const std::string& path);
  Status load(const std::string& path);
  Status save_state(const std::string& path, bool replaces);
  Status load_state(const std::string& path, const Conversation& saved);
  void print_totals() const;
  uint32_t window() const { return host_->window_tokens(); }
  /// What was said. No request is under way between two commands, so that both succeed.
  Conversation conversation() const { return host_->conversation(conversation_).value(); }
  Status change_to(Conversation conversation) {
    return host_->set_conversation(conversation_, std::move(conversation));
  }

  ChatOptions options_;
  host::ModelTexts texts_;
  std::optional<host::AnswerInput> answer_;  // of a model with a template
  std::unique_ptr<host::Host> host_;
  host::ConversationId conversation_ = host::ConversationId::kNone;
  std::string file_;  // which holds what this conversation was, as /save writes it
  LineReader lines_;
  bool left_ = false;
};

Status Chat::open(const GgufFile& file, const Logger& logger) {
  EngineOptions engine_options{.kv_type = options_.model.kv_type(),
                               .math = options_.model.math_kind(),
                               .token_budget = options_.model.token_budget,
                               .chunk_tokens = options_.model.chunk_tokens,
                               .profile = options_.model.profile};
  options_.serving.apply_to(engine_options);
  options_.generation.constraint.apply_to(engine_options);
  if (options_.tools.needs_call()) reserve_forced_rows(engine_options);
  // Whole messages are left out here; within a prompt the engine would cut anywhere.
  if (engine_options.overflow == OverflowPolicy::kTruncateOldest) {
    engine_options.overflow = OverflowPolicy::kStop;
  }
  PUMICE_TRY(const ModelSource source, options_.adapters.apply_to(file));
  PUMICE_TRY(host_, open_host(options_.model, source, texts_, logger,
                              {.engine = engine_options,
                               .prompts = Prompts::kSeveral,
                               .forgets_messages = options_.serving.overflow != "stop",
                               .draft_model = options_.serving.draft_model,
                               .predicts = options_.serving.predicts()}));
  PUMICE_TRY(conversation_, host_->open_conversation({.adapter = options_.adapters.own()}));
  Conversation said;
  said.set_system(options_.system, options_.trust_special);
  return change_to(std::move(said));
}

void Chat::greet(const GgufFile& file) const {
  const std::string name = host_->model().opened().model->program.name;
  const std::string shown = printable(name.empty() ? options_.model.model : name);
  if ((*texts_.format)->is_plain()) {
    const auto description = file.get_or<std::string_view>("general.description", "");
    print_notice(
        "{} has no chat template, so it is not a chat model: it only continues the text "
        "you type.{}{}\n",
        shown, description.ok() && !description->empty() ? " Its description: " : "",
        description.ok() ? printable(*description, kMostDescriptionBytes) : "");
  } else if (lines_.interactive()) {
    print_message("{}\n", shown);
  }
  if (!lines_.interactive()) return;
  print_notice(
      "Context: {} tokens; when it is full, {} (--overflow). Type /help for more.\n", window(),
      options_.serving.overflow == "stop"    ? "the conversation ends"
      : options_.serving.overflow == "shift" ? "older text is dropped and the answer continues"
                                             : "the oldest messages are left out");
}

/// Nothing at the end of input. Empty: nothing was said.
std::optional<std::string> Chat::read_message() {
  const std::vector<ToolCall> calls = open_calls();
  const std::string prompt = calls.empty() ? "> " : printable(calls.front().name) + " returns> ";
  std::optional<std::string> line = lines_.next(prompt);
  if (!line) return std::nullopt;
  if (lines_.cancelled()) {
    print_message("(type /exit or press Ctrl-D to leave)\n");
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

/// A lost device, an interrupt and output that cannot be written end the program; whatever else
/// goes wrong is said, and the next message is read.
Status Chat::handle(const std::string& message) {
  if (message.find_first_not_of(" \t\r\n") == std::string::npos) return {};
  const std::vector<ToolCall> calls = open_calls();
  const Status status = message.starts_with('/') ? command(message)
                        : !calls.empty()
                            ? give_result(calls.front(), message)
                            : answer({.messages = {{.role = "user", .content = message}},
                                      .special = options_.trust_special});
  if (status.ok() || status.error().code == ErrorCode::kDeviceLost ||
      status.error().code == ErrorCode::kCancelled || !finish_output().ok()) {
    return status;
  }
  print_error(status.error());
  return {};
}

std::vector<ToolCall> Chat::open_calls() const {
  const Conversation said = conversation();
  const std::vector<ChatMessage>& messages = said.messages();
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const ChatMessage& one) { return one.role != "tool"; });
  if (last == messages.rend()) return {};
  std::vector<ToolCall> open = last->calls;
  for (auto result = messages.rbegin(); result != last; ++result) {
    const auto call = std::ranges::find(open, result->call_id, &ToolCall::id);
    if (call != open.end()) open.erase(call);
  }
  return open;
}

/// With the last one the model goes on.
Status Chat::give_result(const ToolCall& call, const std::string& result) {
  Conversation said = conversation();
  said.add(
      {.role = "tool", .content = result, .call_id = call.id, .special = options_.trust_special});
  PUMICE_TRY_STATUS(change_to(std::move(said)));
  return open_calls().empty() ? answer({}) : Status();
}

void Chat::print_tools() const {
  if (!answer_ || answer_->tools == nullptr) {
    print_message("(no tools; --tools FILE offers some)\n");
    return;
  }
  for (const std::string& name : answer_->tools->names()) print_message("{}\n", name);
}

/// To what is asked, or to the last question of the conversation, which else stays as it was.
Status Chat::answer(host::RequestInput input) {
  PUMICE_TRY(const host::Submitted request, submit(std::move(input)));
  PUMICE_TRY(const Generation generation, print_answer(request));
  report(generation);
  if (!generation.interrupted) return {};
  if (!lines_.interactive() || !InterruptGuard::forgive()) {
    return make_error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

Result<host::Submitted> Chat::submit(host::RequestInput input) {
  const bool shifts = host_->engine().options().overflow == OverflowPolicy::kShift;
  const uint32_t most = 16 * window();  // where the context is never full
  const uint32_t wanted = options_.n_predict;
  input.max_new_tokens = !shifts ? wanted : wanted == 0 ? most : std::min(wanted, most);
  input.within_window = !shifts;
  input.answer_room_tokens = std::max(window() / 4, 1u);
  input.sampling = options_.generation.sampler;
  input.stops = options_.generation.stop_strings;
  input.wish = options_.generation.constraint.wish();
  // Behind the results of calls the model may say what came of them.
  const Conversation said = conversation();
  const bool follows_result =
      input.messages.empty() && !said.messages().empty() && said.messages().back().role == "tool";
  if (answer_ && !follows_result) PUMICE_TRY_STATUS(options_.tools.choose(*answer_, input.wish));
  input.ignore_end = options_.generation.ignore_eos;
  input.answer = answer_;
  input.speculation = options_.serving.speculation();
  const uint32_t room = window() - input.answer_room_tokens;
  Result<host::Submitted> submitted = host_->submit(conversation_, std::move(input));
  if (submitted.ok() || submitted.error().code != ErrorCode::kDoesNotFit) return submitted;
  return make_error(ErrorCode::kDoesNotFit,
                    "{} (it may have {} of {} tokens; the rest is kept for the answer); make "
                    "room with /undo or /clear, or start with a larger -c",
                    submitted.error().message, room, window());
}

Result<Generation> Chat::print_answer(const host::Submitted& request) {
  AnswerPrinter printer(options_.hide_reasoning);
  const EchoOff quiet;
  Status printed;
  const auto text = [&](std::string_view piece) {
    if (!answer_) printed = printer.print_text(piece);
    return printed.ok();
  };
  const auto answers = [&](std::span<const AnswerEvent> events) {
    printed = printer.print(events);
    return printed.ok();
  };
  Result<Generation> generation = follow(*host_, request, text, answers);
  PUMICE_TRY_STATUS(printed);
  PUMICE_TRY_STATUS(printer.end_reasoning());
  const bool is_open = generation.ok() || printer.has_printed();
  if (is_open && !printer.ends_line()) PUMICE_TRY_STATUS(print_output("\n"));
  return generation;
}

void Chat::report(const Generation& generation) const {
  const Timings& t = generation.timings;
  const size_t n_context = t.prompt_tokens + t.new_tokens;
  print_notice(
      "[{}, {:.1f} tok/s; prompt {}, {} of it reused, {:.0f} ms; {} of {} in the context]\n",
      counted(t.new_tokens, "token"), t.decode_rate(), t.prompt_tokens, t.cached_tokens, t.ttft_ms,
      std::min<size_t>(n_context, window()), window());
  if (const size_t n = generation.n_forgotten; n > 0) {
    print_notice("[the context is full: the model no longer sees the first {}]\n",
                 n == 1 ? std::string("exchange") : counted(n, "exchange"));
  }
  if (generation.interrupted) {
    print_notice("[stopped; /retry answers again, /undo takes the message back]\n");
  }
  if (generation.report.shifts > 0) {
    print_notice("[the context was full {}: older text was dropped]\n",
                 counted(generation.report.shifts, "time"));
  }
  if (lines_.interactive() && !open_calls().empty()) {
    print_notice("[the model waits for what its call returns: type it; /undo takes it back]\n");
  }
  const bool by_length = generation.report.end_reason == EndReason::kLength;
  if (generation.report.end_reason == EndReason::kWindow ||
      (by_length && (options_.n_predict == 0 || t.new_tokens < options_.n_predict))) {
    print_notice("[the answer ends here because the context is full; -c sets its size]\n");
  } else if (by_length) {
    print_notice("[the answer ends here: -n allows {}]\n", counted(options_.n_predict, "token"));
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
  if (name == "exit" || name == "quit" || name == "bye") {
    left_ = true;
    return {};
  }
  if (name == "system") return set_system(argument);
  if (name == "save") return save(argument);
  if (name == "load") return load(argument);
  if (name == "set") return set(argument);
  if (name == "retry" || name == "regen") return retry();
  if (name == "undo") return undo();
  if (name == "stats") {
    print_totals();
    return {};
  }
  if (name == "tools") {
    print_tools();
    return {};
  }
  if (name == "clear") {
    Conversation said = conversation();
    said.clear();
    file_.clear();
    print_message("(new conversation)\n");
    return change_to(std::move(said));
  }
  return make_error(ErrorCode::kInvalidArgument, "/{}: no such command; /help lists them",
                    printable(name));
}

Status Chat::undo() {
  Conversation said = conversation();
  if (!said.undo()) return make_error(ErrorCode::kInvalidArgument, "/undo: nothing to undo");
  print_message("(taken back; {} left)\n", counted(said.n_said(), "message"));
  return change_to(std::move(said));
}

Status Chat::retry() {
  const Conversation before = conversation();
  Conversation said = before;
  if (!said.take_back_answer()) {
    return make_error(ErrorCode::kInvalidArgument, "/retry: nothing to answer again");
  }
  ++options_.generation.sampler.seed;
  PUMICE_TRY_STATUS(change_to(std::move(said)));
  Status status = answer({});
  if (!status.ok()) PUMICE_TRY_STATUS(change_to(before));
  return status;
}

Status Chat::set_system(std::string text) {
  Conversation said = conversation();
  if (text.empty()) {
    const std::string system = said.system();
    print_message("{}\n", system.empty() ? "(no system prompt)" : system);
    return {};
  }
  said.set_system(text == "\"\"" ? "" : std::move(text), options_.trust_special);
  print_notice("(applies from the next message on; /clear starts a new conversation with it)\n");
  return change_to(std::move(said));
}

/// The flags of the command line, without their dashes.
Status Chat::set(const std::string& words) {
  if (words.empty()) {
    print_sampling();
    return {};
  }
  const size_t end = words.find(' ');
  const std::string name = words.substr(0, end);
  const std::string value =
      end == std::string::npos ? "" : words.substr(words.find_last_of(' ') + 1);
  constexpr std::string_view kNames[] = {"temp",
                                         "top-k",
                                         "top-p",
                                         "min-p",
                                         "seed",
                                         "repeat-penalty",
                                         "frequency-penalty",
                                         "presence-penalty"};
  if (std::ranges::find(kNames, name) == std::end(kNames)) {
    return make_error(ErrorCode::kInvalidArgument, "/set {}: no such setting; /set lists them",
                      printable(name));
  }
  SamplingOptions changed = options_.generation;
  CLI::App flags;
  changed.add_to(flags);
  for (CLI::Option* flag : flags.get_options()) flag->envname("");
  try {
    flags.parse(std::vector<std::string>{value, "--" + name});  // in reverse
  } catch (const CLI::ParseError&) {
    return make_error(ErrorCode::kInvalidArgument, "/set {}: '{}' is not a value for it", name,
                      printable(value));
  }
  const Status valid = changed.complete(texts_);
  if (!valid.ok()) {
    return make_error(valid.error().code, "/set {}: {}", name, valid.error().message);
  }
  if (name != "seed") changed.sampler.seed = options_.generation.sampler.seed;
  options_.generation = std::move(changed);
  print_sampling();
  return {};
}

void Chat::print_sampling() const {
  const SamplerOptions& s = options_.generation.sampler;
  print_notice(
      "(temp {}, top-k {}, top-p {}, min-p {}, seed {}, repeat-penalty {}, "
      "frequency-penalty {}, presence-penalty {})\n",
      s.temperature, s.top_k, s.top_p, s.min_p, s.seed, s.repeat_penalty, s.frequency_penalty,
      s.presence_penalty);
}

Status Chat::save(const std::string& path) {
  if (path.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "/save: give a file name: /save FILE");
  }
  using Existing = OutputFile::Existing;
  Result<OutputFile> created =
      OutputFile::create(from_utf8(path), path == file_ ? Existing::kReplace : Existing::kRefuse);
  if (!created.ok() && created.error().code == ErrorCode::kInvalidArgument) {
    return make_error(created.error().code,
                      "{}; /save replaces only a file that /save wrote and this chat loaded or "
                      "saved: give another name",
                      created.error().message);
  }
  PUMICE_TRY(OutputFile file, std::move(created));
  const Conversation said = conversation();
  PUMICE_TRY_STATUS(file.write(said.to_json()));
  PUMICE_TRY_STATUS(file.finish());
  print_message("({} saved to {})\n", counted(said.n_said(), "message"),
                printable(path, kMostPathBytes));
  const bool replaces = std::exchange(file_, path) == path;
  const Status kept = save_state(path + std::string(kStateSuffix), replaces);
  if (!kept.ok()) {
    print_notice("(what the model has computed of it is not kept: {})\n", kept.error().message);
  }
  return {};
}

/// What a conversation that was loaded, or taken back in part, has not been computed here as one
/// piece: nothing is saved of it then.
Status Chat::save_state(const std::string& path, bool replaces) {
  PUMICE_TRY(const std::vector<TokenId> tokens, host_->conversation_tokens(conversation_));
  if (tokens.empty()) return {};
  using Existing = OutputFile::Existing;
  PUMICE_TRY(OutputFile file, OutputFile::create(from_utf8(path), replaces ? Existing::kReplace
                                                                           : Existing::kRefuse));
  PUMICE_TRY(const std::span<const std::byte> bytes, host_->save(conversation_));
  PUMICE_TRY_STATUS(file.write(bytes));
  return file.finish();
}

/// The conversation goes on as the saved one, if the file has that.
Status Chat::load_state(const std::string& path, const Conversation& saved) {
  std::error_code error;
  if (!std::filesystem::exists(from_utf8(path), error)) return {};
  PUMICE_TRY(const std::string bytes, read_text_file(from_utf8(path)));
  const Result<host::Restored> restored = host_->restore(std::as_bytes(std::span(bytes)));
  if (!restored.ok()) {
    return make_error(restored.error().code, "{}: {}", path, restored.error().message);
  }
  PUMICE_TRY(const Conversation said, host_->conversation(restored->id));
  const bool is_same = said.messages() == saved.messages();
  PUMICE_TRY_STATUS(host_->close_conversation(is_same ? std::exchange(conversation_, restored->id)
                                                      : restored->id));
  if (!is_same) return make_error(ErrorCode::kBadFile, "{} belongs to other messages", path);
  print_message("({} of it need not be computed again)\n",
                counted(restored->state_tokens, "token"));
  return {};
}

Status Chat::load(const std::string& path) {
  if (path.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "/load: give a file name: /load FILE");
  }
  PUMICE_TRY(const std::string text, read_text_file(from_utf8(path)));
  Result<Conversation> loaded = Conversation::parse(text, options_.trust_special);
  if (!loaded.ok()) {
    return make_error(loaded.error().code, "{}: {}", path, loaded.error().message);
  }
  const Conversation before = conversation();
  const bool is_whole = loaded->to_json() == text;  // nothing is lost where it is replaced
  PUMICE_TRY_STATUS(change_to(*loaded));
  print_message("({} from {})\n", counted(loaded->n_said(), "message"),
                printable(path, kMostPathBytes));
  if (loaded->awaits_answer()) {
    print_message("(the last one has no answer yet)\n");
    const Status status = answer({});
    const bool is_stopped = !status.ok() && status.error().code == ErrorCode::kCancelled;
    if (!status.ok() && !is_stopped) PUMICE_TRY_STATUS(change_to(before));
    PUMICE_TRY_STATUS(status);
  } else {
    const Status restored = load_state(path + std::string(kStateSuffix), *loaded);
    if (!restored.ok()) {
      print_notice("(what was computed of it cannot be used: {})\n", restored.error().message);
    }
  }
  file_ = is_whole ? path : "";
  return {};
}

void Chat::print_totals() const {
  print_message("{}\n", counted(conversation().n_said(), "message"));
  print_stats("text", host_->engine());
}

Status Chat::run(ChatOptions options) {
  const Logger logger = stderr_logger(options.model.verbose);
  if (options.model.device.list) return print_devices(logger);
  PUMICE_TRY_STATUS(options.model.validate());
  PUMICE_TRY_STATUS(options.serving.validate());
  PUMICE_TRY_STATUS(options.generation.validate());
  PUMICE_TRY_STATUS(options.tools.validate());
  PUMICE_TRY(host::AnswerInput answer, options.tools.read());
  AnswerWish wish;
  PUMICE_TRY_STATUS(options.tools.choose(answer, wish));
  PUMICE_TRY_STATUS(options.model.resolve());
  PUMICE_TRY_STATUS(check_not_an_input(from_utf8(options.serving.prompt_cache),
                                       std::vector{from_utf8(options.model.model)}));
  PUMICE_TRY(const GgufFile file, GgufFile::open(from_utf8(options.model.model)));
  PUMICE_TRY(host::ModelTexts texts, options.tools.read_texts(file));
  const bool is_plain = (*texts.format)->is_plain();
  // Of a model without a template only what is asked for with it is an error.
  if (!is_plain || options.tools.is_used()) PUMICE_TRY_STATUS(texts.prompt->get());
  PUMICE_TRY_STATUS(options.generation.complete(texts));
  const std::string stats = options.serving.stats;
  Chat chat(std::move(options), std::move(texts));
  if (!is_plain) chat.answer_ = std::move(answer);
  PUMICE_TRY_STATUS(chat.open(file, logger));
  chat.greet(file);
  Status status = chat.converse();
  print_stats(stats, chat.host_->engine());
  chat.host_->keep_for_next_run();
  return status;
}

}  // namespace

Command add_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app.add_subcommand("chat", "Converse with a model");
  options->model.add_to(*command, "auto", "f16");
  options->model.remember_costs = true;
  options->model.add_batch_sizes(*command);
  options->adapters.add_to(*command, false);
  command->add_option("-p,--prompt", options->prompt, "The first message");
  command->add_option("--system-prompt,--sys", options->system,
                      "Instructions for the model, before the conversation");
  options->tools.add_to(*command);
  command
      ->add_option_function<int64_t>(
          "-n,--predict",
          [target = &options->n_predict](int64_t n) {
            *target = static_cast<uint32_t>(std::max<int64_t>(n, 0));
          },
          "Maximum tokens of an answer (0, -1 or -2: as many as the context holds)")
      ->envname("PUMICE_PREDICT")
      ->default_str("0")
      ->type_name("INT")
      ->check([](const std::string& text) { return n_predict_problem(text, 0, 1u << 24); });
  command->add_flag("--hide-reasoning", options->hide_reasoning,
                    "Do not show what models think between <think> and </think>");
  command
      ->add_flag("--trust-special", options->trust_special,
                 "In messages, too, read control tokens such as <|im_end|> as themselves; without "
                 "this flag only the template writes them")
      ->envname("PUMICE_TRUST_SPECIAL");
  command
      ->add_flag("--no-history", options->no_history,
                 "Do not keep the lines you type for the next chat (~/.local/state/pumice)")
      ->envname("PUMICE_NO_HISTORY");
  options->generation.add_to(*command);
  options->serving.overflow = "truncate-oldest";
  options->serving.add_to(*command);
  command->footer(
      "Type a message and press Enter; /help lists the commands. Piped input is answered line by\n"
      "line. When the context is full, the oldest messages are left out and a notice says so;\n"
      "--overflow stop refuses further messages instead, --overflow shift lets an answer "
      "continue.\n"
      "Examples:\n"
      "  pumice chat -hf Qwen/Qwen3-0.6B-GGUF\n"
      "  pumice chat -m model.gguf -sys \"Answer in one sentence.\"\n"
      "  pumice chat -m model.gguf --tools tools.json --template-var enable_thinking=false\n"
      "  echo \"Why is the sky blue?\" | pumice chat -m model.gguf --temp 0");
  return {command, [options] { return Chat::run(*options); }};
}

}  // namespace pumice::tools
