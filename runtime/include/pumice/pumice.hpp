// Pumice in C++17, over pumice.h and nothing else: handles that close themselves, strings and
// vectors for arrays. Read pumice.h for what calls do and which thread may make them.
//
// Nothing throws but the standard library's allocations. What can fail returns a Result: a value or
// a Status with the code and the message. Option structs are the C ABI's; `options<T>()` is one
// with its size set.
#ifndef PUMICE_PUMICE_HPP
#define PUMICE_PUMICE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pumice/pumice.h"

namespace pumice {
// Apart from whatever else is called pumice.
inline namespace abi0 {

/// A struct of the C ABI, all defaults.
template <typename T>
T options() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

/// A view for a call; what it views must live as long as that.
inline pumice_string view(std::string_view text) { return {text.data(), text.size()}; }

class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Of a call that was just made on this thread.
  explicit Status(pumice_status code) : code_(code) {
    if (code != PUMICE_OK) message_ = pumice_last_error();
  }
  Status(pumice_status code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == PUMICE_OK; }
  explicit operator bool() const { return ok(); }
  pumice_status code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  pumice_status code_ = PUMICE_OK;
  std::string message_;
};

/// A value or why there is none: look at ok() before taking the value.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by intent
  Result(Status status) : status_(std::move(status)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

namespace detail {

struct Close {
  void operator()(pumice_device* device) const { pumice_device_close(device); }
  void operator()(pumice_model* model) const { pumice_model_close(model); }
  void operator()(pumice_engine* engine) const { pumice_engine_close(engine); }
  void operator()(pumice_constraint* constraint) const { pumice_constraint_close(constraint); }
  void operator()(pumice_loading* loading) const { pumice_loading_close(loading); }
  void operator()(pumice_embedder* embedder) const { pumice_embedder_close(embedder); }
};
template <typename T>
using Handle = std::unique_ptr<T, Close>;

/// What `call(array, capacity, &count)` gives, asked for its size first.
template <typename Container, typename Call>
Result<Container> array(Call&& call) {
  Container values;
  std::size_t count = 0;
  Status status(call(nullptr, 0, &count));
  while (status.ok() || status.code() == PUMICE_TOO_SMALL) {
    values.resize(count);
    if (count == 0) return values;
    status = Status(call(values.data(), values.size(), &count));
    if (!status.ok()) continue;
    values.resize(count);
    return values;
  }
  return status;
}

template <typename Info, typename Object>
Result<Info> info_of(pumice_status (*get)(Object*, Info*), Object* object) {
  Info info = options<Info>();
  const Status status(get(object, &info));
  if (!status.ok()) return status;
  return info;
}

}  // namespace detail

/// A part of an answer (pumice_answer_part). Owns its texts.
struct AnswerPart {
  pumice_part_kind kind = PUMICE_PART_TEXT;
  std::uint32_t call = 0;
  std::string text;
  std::string id;
  bool complete = false;
};

/// A request's event. Owns its text.
struct Event {
  pumice_event_kind kind = PUMICE_EVENT_NONE;
  Status status;  ///< of a request that failed
  pumice_request request = 0;
  pumice_session session = 0;
  std::string text;
  std::optional<std::uint32_t> token;
  std::vector<pumice_token_log_prob> top_log_probs;
  std::vector<AnswerPart> parts;
  pumice_event details{};  ///< the rest; its strings and arrays are empty
};

/// What is said of a conversation.
struct Message {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

/// A line of a device's log.
struct LogLine {
  pumice_log_level level = PUMICE_LOG_NONE;
  std::uint32_t n_dropped = 0;  ///< lines lost before it
  std::string text;
};

class Engine {
 public:
  static Result<Engine> create(pumice_model* model,
                               const pumice_engine_options* options = nullptr) {
    pumice_engine* engine = nullptr;
    Status status(pumice_engine_create(model, options, &engine));
    if (!status.ok()) return status;
    return Engine(engine);
  }

  Status set_mode(pumice_mode mode) { return Status(pumice_set_mode(get(), mode)); }
  /// PUMICE_NO_LIMIT: none.
  Status set_memory_budget(std::uint64_t bytes) {
    return Status(pumice_set_memory_budget(get(), bytes));
  }

  Result<pumice_session> open_session(const pumice_session_options* options = nullptr) {
    pumice_session session = 0;
    Status status(pumice_session_open(get(), options, &session));
    if (!status.ok()) return status;
    return session;
  }
  Status close_session(pumice_session session) {
    return Status(pumice_session_close(get(), session));
  }
  Result<std::vector<std::uint32_t>> session_tokens(pumice_session session) {
    return detail::array<std::vector<std::uint32_t>>(
        [&](std::uint32_t* tokens, std::size_t capacity, std::size_t* count) {
          return pumice_session_tokens(get(), session, tokens, capacity, count);
        });
  }

  Result<std::uint32_t> session_turns(pumice_session session) {
    std::uint32_t n_turns = 0;
    const Status status(pumice_session_turns(get(), session, &n_turns));
    if (!status.ok()) return status;
    return n_turns;
  }
  Status roll_back_session(pumice_session session, std::uint32_t n_turns,
                           bool keep_question = false) {
    return Status(pumice_session_rollback(get(), session, n_turns, keep_question));
  }

  Result<std::vector<std::byte>> save_session(pumice_session session) {
    const void* bytes = nullptr;
    std::size_t count = 0;
    Status status(pumice_session_save(get(), session, &bytes, &count));
    if (!status.ok()) return status;
    const auto* first = static_cast<const std::byte*>(bytes);
    return std::vector<std::byte>(first, first + count);
  }
  Result<pumice_session> restore_session(const std::vector<std::byte>& bytes,
                                         const pumice_restore_options* options = nullptr) {
    pumice_session session = 0;
    Status status(pumice_session_restore(get(), bytes.data(), bytes.size(), options, &session));
    if (!status.ok()) return status;
    return session;
  }

  Result<pumice_request> submit(pumice_session session, const pumice_request_options& options) {
    pumice_request request = 0;
    Status status(pumice_submit(get(), session, &options, &request));
    if (!status.ok()) return status;
    return request;
  }
  /// A text, greedily or as the session samples.
  Result<pumice_request> submit(pumice_session session, std::string_view text,
                                std::uint32_t max_new_tokens = 0) {
    auto request = options<pumice_request_options>();
    request.text = view(text);
    request.max_new_tokens = max_new_tokens;
    return submit(session, request);
  }
  /// Messages, the last of them the user's.
  Result<pumice_request> submit_messages(pumice_session session,
                                         const std::vector<Message>& messages,
                                         std::uint32_t max_new_tokens = 0) {
    std::vector<pumice_message> views;
    for (const Message& message : messages) {
      views.push_back({view(message.role), view(message.content)});
    }
    auto request = options<pumice_request_options>();
    request.messages = views.data();
    request.n_messages = views.size();
    request.max_new_tokens = max_new_tokens;
    return submit(session, request);
  }
  Status cancel(pumice_request request) { return Status(pumice_cancel(get(), request)); }

  Status prewarm(std::uint64_t microseconds, std::uint32_t& done, std::uint32_t& total) {
    return Status(pumice_prewarm(get(), microseconds, &done, &total));
  }
  Status poll(std::uint64_t microseconds = PUMICE_NO_LIMIT) {
    return Status(pumice_poll(get(), microseconds));
  }
  Status wait(std::uint64_t microseconds = PUMICE_NO_LIMIT) {
    return Status(pumice_wait(get(), microseconds));
  }
  /// Of kind PUMICE_EVENT_NONE: there is none.
  Result<Event> next_event() {
    auto raw = options<pumice_event>();
    Status status(pumice_next_event(get(), &raw));
    if (!status.ok()) return status;
    Event event;
    event.kind = raw.kind;
    event.request = raw.request;
    event.session = raw.session;
    if (raw.text.data != nullptr) event.text.assign(raw.text.data, raw.text.length);
    if (raw.has_token) event.token = raw.token;
    if (raw.status != PUMICE_OK)
      event.status = Status(raw.status, std::string(raw.message.data, raw.message.length));
    event.top_log_probs.assign(raw.top_log_probs, raw.top_log_probs + raw.n_top_log_probs);
    for (std::size_t i = 0; i < raw.n_parts; ++i) {
      const pumice_answer_part& part = raw.parts[i];
      event.parts.push_back({part.kind, part.call, std::string(part.text.data, part.text.length),
                             std::string(part.id.data, part.id.length), part.complete != 0});
    }
    raw.parts = nullptr;
    raw.n_parts = 0;
    raw.text = raw.message = {};
    raw.top_log_probs = nullptr;
    raw.n_top_log_probs = 0;
    event.details = raw;
    return event;
  }

  Result<pumice_latency> latency(pumice_latency_kind kind) const {
    auto latency = options<pumice_latency>();
    const Status status(pumice_get_latency(get(), kind, &latency));
    if (!status.ok()) return status;
    return latency;
  }
  Result<pumice_stats> stats() const { return detail::info_of(pumice_get_stats, get()); }

  pumice_engine* get() const { return engine_.get(); }

 private:
  explicit Engine(pumice_engine* engine) : engine_(engine) {}
  detail::Handle<pumice_engine> engine_;
};

/// For pumice_request_options.constraint, while it is open; requests that have it need it no more.
class Constraint {
 public:
  static Result<Constraint> compile(const pumice_model* model, pumice_constraint_kind kind,
                                    std::string_view text) {
    auto given = options<pumice_constraint_options>();
    given.kind = kind;
    given.text = view(text);
    pumice_constraint* constraint = nullptr;
    Status status(pumice_constraint_compile(model, &given, &constraint));
    if (!status.ok()) return status;
    return Constraint(constraint);
  }

  const pumice_constraint* get() const { return constraint_.get(); }

 private:
  explicit Constraint(pumice_constraint* constraint) : constraint_(constraint) {}
  detail::Handle<pumice_constraint> constraint_;
};

/// Of a model that was loaded with pumice_model_options.embeds.
class Embedder {
 public:
  static Result<Embedder> create(pumice_model* model,
                                 const pumice_embedder_options* options = nullptr) {
    pumice_embedder* embedder = nullptr;
    const Status status(pumice_embedder_create(model, options, &embedder));
    if (!status.ok()) return status;
    return Embedder(embedder);
  }

  Result<pumice_embedder_info> info() const {
    return detail::info_of<pumice_embedder_info, const pumice_embedder>(pumice_embedder_get_info,
                                                                        get());
  }
  /// The vectors of texts, one behind the other.
  Result<std::vector<float>> embed(const std::vector<std::string>& texts) {
    std::vector<pumice_string> views;
    for (const std::string& text : texts) views.push_back(view(text));
    return detail::array<std::vector<float>>(
        [&](float* vectors, std::size_t capacity, std::size_t* count) {
          return pumice_embed(get(), views.data(), views.size(), vectors, capacity, count);
        });
  }

  pumice_embedder* get() const { return embedder_.get(); }

 private:
  explicit Embedder(pumice_embedder* embedder) : embedder_(embedder) {}
  detail::Handle<pumice_embedder> embedder_;
};

class Model {
 public:
  /// Takes over what another call gave.
  static Model own(pumice_model* model) { return Model(model); }
  /// `engine`: see pumice_model_options.
  static Result<Model> load(pumice_device* device, std::string_view path,
                            const pumice_engine_options* engine = nullptr) {
    auto load = options<pumice_model_options>();
    load.path = view(path);
    load.engine = engine;
    return Model::load(device, load);
  }
  static Result<Model> load(pumice_device* device, const pumice_model_options& load) {
    pumice_model* model = nullptr;
    Status status(pumice_model_load(device, &load, &model));
    if (!status.ok()) return status;
    return Model(model);
  }

  Result<Engine> make_engine(const pumice_engine_options* options = nullptr) {
    return Engine::create(get(), options);
  }
  Result<Embedder> make_embedder(const pumice_embedder_options* options = nullptr) {
    return Embedder::create(get(), options);
  }
  Result<Constraint> compile_constraint(pumice_constraint_kind kind, std::string_view text) const {
    return Constraint::compile(get(), kind, text);
  }
  Result<pumice_model_info> info() const {
    return detail::info_of<pumice_model_info, const pumice_model>(pumice_model_get_info, get());
  }
  Result<std::vector<std::uint32_t>> tokenize(std::string_view text, bool special = true) const {
    return detail::array<std::vector<std::uint32_t>>(
        [&](std::uint32_t* tokens, std::size_t capacity, std::size_t* count) {
          return pumice_tokenize(get(), view(text), special, tokens, capacity, count);
        });
  }
  Result<std::string> detokenize(const std::vector<std::uint32_t>& tokens) const {
    return detail::array<std::string>([&](char* text, std::size_t capacity, std::size_t* count) {
      return pumice_detokenize(get(), tokens.data(), tokens.size(), text, capacity, count);
    });
  }

  pumice_model* get() const { return model_.get(); }

 private:
  explicit Model(pumice_model* model) : model_(model) {}
  detail::Handle<pumice_model> model_;
};

/// A model that is being loaded; cancelled where its end is not waited for.
class Loading {
 public:
  static Result<Loading> begin(pumice_device* device, const pumice_model_options& options) {
    pumice_loading* loading = nullptr;
    const Status status(pumice_model_load_begin(device, &options, &loading));
    if (!status.ok()) return status;
    return Loading(loading);
  }

  /// How far it is when it has ended, or after that long.
  Result<pumice_load_progress> wait(std::uint64_t microseconds = PUMICE_NO_LIMIT) {
    auto progress = options<pumice_load_progress>();
    const Status status(pumice_loading_wait(get(), microseconds, &progress));
    if (!status.ok()) return status;
    return progress;
  }
  Status cancel() { return Status(pumice_loading_cancel(get())); }
  /// Once it has ended.
  Result<Model> take() {
    pumice_model* model = nullptr;
    const Status status(pumice_loading_take(get(), &model));
    if (!status.ok()) return status;
    return Model::own(model);
  }

  pumice_loading* get() const { return loading_.get(); }

 private:
  explicit Loading(pumice_loading* loading) : loading_(loading) {}
  detail::Handle<pumice_loading> loading_;
};

class Device {
 public:
  /// The devices of this machine; their indices are selectors.
  static Result<std::vector<pumice_device_info>> list() {
    return detail::array<std::vector<pumice_device_info>>(
        [](pumice_device_info* infos, std::size_t capacity, std::size_t* count) {
          if (capacity > 0) infos->struct_size = sizeof(pumice_device_info);
          return pumice_device_list(infos, capacity, count);
        });
  }
  static Result<Device> open(const pumice_device_options* options = nullptr) {
    pumice_device* device = nullptr;
    Status status(pumice_device_open(options, &device));
    if (!status.ok()) return status;
    return Device(device);
  }
  /// Takes over what another call opened.
  static Device own(pumice_device* device) { return Device(device); }

  Result<Model> load(std::string_view path, const pumice_engine_options* engine = nullptr) {
    return Model::load(get(), path, engine);
  }
  Result<Model> load(const pumice_model_options& options) { return Model::load(get(), options); }
  /// The same, while this thread goes on.
  Result<Loading> begin_load(const pumice_model_options& options) {
    return Loading::begin(get(), options);
  }
  /// A file that is in memory, which must stay as it is until the model and its engines are closed.
  Result<Model> load_memory(const void* memory, std::uint64_t n_bytes,
                            const pumice_engine_options* engine = nullptr) {
    auto load = pumice::options<pumice_model_options>();
    load.memory = memory;
    load.memory_bytes = n_bytes;
    load.engine = engine;
    return Model::load(get(), load);
  }
  /// Status and what was found out; see pumice_self_test.
  Status self_test(pumice_self_test_result& result,
                   const pumice_self_test_options* options = nullptr) {
    result = pumice::options<pumice_self_test_result>();
    return Status(pumice_self_test(get(), options, &result));
  }
  /// What it would take, and whether it fits.
  Result<pumice_memory_estimate> estimate(const pumice_model_options& options) const {
    auto estimate = pumice::options<pumice_memory_estimate>();
    const Status status(pumice_model_estimate(get(), &options, &estimate));
    if (!status.ok()) return status;
    return estimate;
  }
  Result<pumice_device_info> info() const {
    return detail::info_of<pumice_device_info, const pumice_device>(pumice_device_get_info, get());
  }
  /// The next line of its log, or nothing.
  std::optional<LogLine> next_log() {
    auto log = options<pumice_log>();
    if (pumice_next_log(get(), &log) != PUMICE_OK || log.level == PUMICE_LOG_NONE) return {};
    return LogLine{log.level, log.n_dropped, std::string(log.line.data, log.line.length)};
  }

  pumice_device* get() const { return device_.get(); }

 private:
  explicit Device(pumice_device* device) : device_(device) {}
  detail::Handle<pumice_device> device_;
};

}  // namespace abi0
}  // namespace pumice

#endif  // PUMICE_PUMICE_HPP
