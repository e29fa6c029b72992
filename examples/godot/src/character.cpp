#include "character.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

pumice::Status not_now(const char* message) {
  return pumice::Status(PUMICE_INVALID_ARGUMENT, message);
}

}  // namespace

Character::~Character() {
  if (session_ != 0) (void)runtime_->engine().close_session(session_);
}

void Character::enter() {
  const bool process = true;
  Variant on(game_.godot, process);
  Variant(game_.godot, node_).call("set_process", {&on});
}

void Character::process() {
  if (runtime_ == nullptr) {
    std::weak_ptr<Runtime>& shared = game_.runtimes[model_];
    runtime_ = shared.lock();
    if (runtime_ == nullptr) {
      runtime_ = std::make_shared<Runtime>(
          Runtime::Options{global_path(model_), global_path("user://pumice")});
      shared = runtime_;
    }
  }
  Name singleton(game_.godot, "Engine");
  std::int64_t frame = 0;
  Variant(game_.godot, game_.godot.global_get_singleton(singleton.get()))
      .call("get_process_frames", {}, frame);
  const pumice::Status status = runtime_->frame(frame, milliseconds_per_frame_);
  if (!status && status.message() != last_failure_) {  // once, however many frames it lasts
    last_failure_ = status.message();
    succeeded(status);
  }
  if (session_ == 0) {
    prepare();
  } else if (answer_ != nullptr) {
    read();
  }
}

/// Opens the session when the model is there and the grammar of the actions is compiled.
void Character::prepare() {
  if (!last_failure_.empty()) return;
  const double progress = std::min(runtime_->progress(), 0.99);  // 1: it can be spoken to
  if (progress != last_progress_) emit("loading", progress);
  last_progress_ = progress;
  if (!runtime_->ready()) return;
  if (!actions_.empty() && !constraint_) {
    if (!compiling_.valid()) {  // some hundred milliseconds: not for a frame
      compiling_ = std::async(std::launch::async, [runtime = runtime_, schema = actions_] {
        return runtime->model().compile_constraint(PUMICE_CONSTRAINT_JSON_SCHEMA, schema);
      });
    }
    if (compiling_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    auto constraint = compiling_.get();
    if (!constraint) {
      last_failure_ = constraint.status().message();
      succeeded(constraint.status());
      return;
    }
    constraint_ = std::move(*constraint);
  }
  auto session = open();
  if (!succeeded(session.status())) {
    last_failure_ = session.status().message();
    return;
  }
  session_ = *session;
  emit("loading", 1.0);
}

pumice::Result<pumice_session> Character::open() {
  const pumice_sampling given = sampling();
  auto options = pumice::options<pumice_session_options>();
  options.sampling = &given;
  options.service_class = PUMICE_SERVICE_INTERACTIVE;
  options.sentences = 1;
  return runtime_->engine().open_session(&options);
}

/// Takes what came, and tells the scene.
void Character::read() {
  const std::shared_ptr<Answer> answer = answer_;
  const bool ended = answer->finished;
  if (ended) answer_ = nullptr;  // what a signal calls may make it speak again
  const std::string fresh = trimmed(std::exchange(answer->fresh, std::string()));
  if (taken_back_) {
    if (!ended) return;
    taken_back_ = false;
    auto turns = runtime_->engine().session_turns(session_);
    if (!succeeded(turns.status())) return;
    // It may not have begun.
    succeeded(runtime_->engine().roll_back_session(session_, std::min(turns_, *turns)));
    return;
  }
  const bool acts = acts_;
  if (!fresh.empty() && !acts) emit("sentence", fresh);
  if (!ended || !succeeded(answer->status)) return;
  if (!acts) {
    emit("answered", trimmed(answer->text));
  } else if (answer->end_reason == PUMICE_END_STOP) {
    emit("acted", answer->text);
  } else {
    succeeded(not_now("what it does took more than max_tokens, or was interrupted"));
  }
}

bool Character::say(const std::string& text) {
  acts_ = false;
  return succeeded(ask(text, nullptr));
}

bool Character::act(const std::string& text) {
  if (!constraint_) return succeeded(not_now("set `actions` before the character is in the scene"));
  const pumice::Status status = ask(text, constraint_->get());
  if (status) acts_ = true;
  return succeeded(status);
}

void Character::interrupt() {
  if (answer_ != nullptr) succeeded(runtime_->engine().cancel(request_));
}

bool Character::go_on() {
  auto before = turns_before();
  if (!before) return succeeded(before.status());
  auto options = pumice::options<pumice_request_options>();
  const pumice::Status status = begin(options);
  if (status) turns_ = *before;
  return succeeded(status);
}

bool Character::take_back() {
  auto before = turns_before();
  if (!before) return succeeded(before.status());
  taken_back_ = answer_ != nullptr;
  return succeeded(taken_back_ ? runtime_->engine().cancel(request_)
                               : runtime_->engine().roll_back_session(session_, *before));
}

bool Character::answer_again() {
  auto before = turns_before();
  if (!before) return succeeded(before.status());
  const pumice::Status status = runtime_->engine().roll_back_session(session_, *before, true);
  if (!status) return succeeded(status);
  ++replies_;
  return go_on();
}

Bytes Character::save() {
  if (!succeeded(check_ready())) return {};
  auto bytes = runtime_->engine().save_session(session_);
  if (!succeeded(bytes.status())) return {};
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes->data());
  return {first, first + bytes->size()};
}

bool Character::load(const Bytes& saved) {
  if (!succeeded(check_ready())) return false;
  auto options = pumice::options<pumice_restore_options>();
  options.tokens_only = 1;
  const auto* first = reinterpret_cast<const std::byte*>(saved.data());
  auto session = runtime_->engine().restore_session({first, first + saved.size()}, &options);
  if (!succeeded(session.status())) return false;
  (void)runtime_->engine().close_session(std::exchange(session_, *session));
  answer_ = nullptr;
  taken_back_ = false;
  return true;
}

pumice::Status Character::ask(const std::string& text, const pumice_constraint* constraint) {
  pumice::Status status = check_ready();
  if (!status) return status;
  if (answer_ != nullptr)
    return not_now("the character speaks: interrupt it, or wait for `answered`");
  auto turns = runtime_->engine().session_turns(session_);
  if (!turns) return turns.status();
  std::vector<pumice_message> messages;
  if (*turns == 0) {  // one that was not told who it is
    auto session = open();
    if (!session) return session.status();
    (void)runtime_->engine().close_session(std::exchange(session_, *session));
    messages.push_back({pumice_str("system"), pumice::view(persona_)});
  }
  messages.push_back({pumice_str("user"), pumice::view(text)});
  auto options = pumice::options<pumice_request_options>();
  options.messages = messages.data();
  options.n_messages = messages.size();
  options.constraint = constraint;
  replies_ = 0;
  status = begin(options);
  if (status) turns_ = *turns;
  return status;
}

pumice::Status Character::begin(pumice_request_options& options) {
  const pumice_sampling given = sampling();
  options.sampling = &given;
  options.max_new_tokens = static_cast<std::uint32_t>(max_tokens_);
  auto answer = runtime_->submit(session_, options, request_);
  if (!answer) return answer.status();
  answer_ = *answer;
  acts_ = false;
  taken_back_ = false;
  return {};
}

pumice::Status Character::check_ready() const {
  if (session_ != 0) return {};
  return not_now("the character is not ready: wait until `loading` says 1");
}

pumice::Result<std::uint32_t> Character::turns_before() {
  if (answer_ != nullptr) return turns_;
  const pumice::Status ready = check_ready();
  if (!ready) return ready;
  auto turns = runtime_->engine().session_turns(session_);
  if (!turns) return turns.status();
  if (*turns == 0) return not_now("the character was asked nothing yet");
  return *turns - 1;
}

pumice_sampling Character::sampling() const {
  auto sampling = pumice::options<pumice_sampling>();
  sampling.temperature = static_cast<float>(temperature_);
  sampling.seed =
      static_cast<std::uint64_t>(seed_) + 1000003u * static_cast<std::uint64_t>(replies_);
  return sampling;
}

std::string Character::global_path(const std::string& path) {
  Name singleton(game_.godot, "ProjectSettings");
  const Variant given(game_.godot, path);
  std::string global = path;
  Variant(game_.godot, game_.godot.global_get_singleton(singleton.get()))
      .call("globalize_path", {&given}, global);
  return global;
}

template <typename T>
void Character::emit(const char* signal, const T& value) {
  const Variant name(game_.godot, std::string(signal)), argument(game_.godot, value);
  Variant(game_.godot, node_).call("emit_signal", {&name, &argument});
}

bool Character::succeeded(const pumice::Status& status) {
  if (status) return true;
  game_.godot.print_error(status.message().c_str(), "PumiceCharacter", "", 0, 0);
  emit("failed", status.message());
  return false;
}
