// Host: what any thread may call.
#include "host/host.hpp"

#include <string_view>

namespace pumice::host {
namespace {

/// Numbers are below 2^53, for scripts whose only number is a double: of a host's own as many as
/// are never used up, and this, by which those of another host most likely differ: of where the
/// host lies and when it was made.
constexpr int kTagBits = 16;
constexpr int kCountBits = 36;
uint64_t tag_of(const void* host) {
  const auto place = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(host));
  const auto time =
      static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return ((place ^ (time << 17)) * 0x9E3779B97F4A7C15u) >> (64 - kTagBits);
}

Error not_found(std::string_view what, uint64_t number) {
  return make_error(ErrorCode::kNotFound,
                    "no {} {} in this engine: it has ended or belongs to another engine", what,
                    number);
}

Error has_request(ConversationId id) {
  return make_error(ErrorCode::kBusy, "session {} has a request that has not ended",
                    static_cast<uint64_t>(id));
}

}  // namespace

class Host::BusyMark {
 public:
  BusyMark(Host& host, ConversationId conversation) : host_(host), conversation_(conversation) {}
  ~BusyMark() {
    if (conversation_ == ConversationId::kNone) return;
    const std::lock_guard lock(host_.mutex_);
    const auto it = host_.conversations_.find(conversation_);
    if (it != host_.conversations_.end()) it->second.busy = false;
  }
  BusyMark(const BusyMark&) = delete;
  BusyMark& operator=(const BusyMark&) = delete;
  void keep() { conversation_ = ConversationId::kNone; }

 private:
  Host& host_;
  ConversationId conversation_;
};

Host::Host(std::shared_ptr<ModelOwner> model, std::unique_ptr<Engine> engine,
           const HostOptions& options)
    : model_(std::move(model)),
      retry_policy_(options.retry),
      tag_(tag_of(this)),
      window_(engine->options().context_tokens),
      overflow_(engine->options().overflow),
      forgets_messages_(options.forgets_messages.value_or(overflow_ != OverflowPolicy::kStop)),
      keep_tokens_(engine->options().keep_tokens),
      draft_model_(options.draft_model),
      prediction_(options.prediction),
      engine_(std::move(engine)) {
  see_device();
  update_stats();
}

Host::~Host() = default;

/// Never 0, and never the same again.
uint64_t Host::next_number(bool is_request) {
  return tag_ << (kCountBits + 1) | ++n_numbers_ << 1 | static_cast<uint64_t>(is_request);
}

Error Host::no_conversation(ConversationId id) {
  return not_found("session", static_cast<uint64_t>(id));
}

Status Host::check_alive() const {
  if (!broken_) return {};
  return make_error(broken_->code, "this engine can only be closed: {}", broken_->message);
}

// ---- conversations

Result<ConversationId> Host::open_conversation(ConversationDefaults defaults) {
  return add_conversation({.defaults = std::move(defaults)});
}

Result<ConversationId> Host::add_conversation(OpenConversation conversation) {
  GenerationRequest probe;
  probe.sampling = conversation.defaults.sampling;
  PUMICE_TRY_STATUS(engine_->check(probe));
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  const auto id = static_cast<ConversationId>(next_number(false));
  conversations_.emplace(id, std::move(conversation));
  return id;
}

Status Host::close_conversation(ConversationId id) {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  if (it->second.request != RequestId::kNone) {
    cancelled_.push_back(it->second.request);
    engine_->wake();
  }
  conversations_.erase(it);
  return {};
}

Result<std::vector<TokenId>> Host::conversation_tokens(ConversationId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  return it->second.tokens;
}

Result<Conversation> Host::conversation(ConversationId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  return it->second.said;
}

Status Host::set_conversation(ConversationId id, Conversation conversation) {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  OpenConversation& open = it->second;
  if (open.busy) return has_request(id);
  open.tokens.clear();
  open.last = {};
  open.turns.clear();
  open.n_lost_turns = 0;
  open.said = std::move(conversation);
  return {};
}

Result<uint32_t> Host::n_turns(ConversationId id) const {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  return turns_of(it->second);
}

Status Host::roll_back(ConversationId id, uint32_t n_turns, bool keep_question) {
  const std::lock_guard lock(mutex_);
  const auto it = conversations_.find(id);
  if (it == conversations_.end()) return no_conversation(id);
  OpenConversation& open = it->second;
  if (open.busy) return has_request(id);
  const uint32_t n = turns_of(open);
  if (n_turns > n || (n_turns == n && keep_question)) {
    return make_error(ErrorCode::kNotFound, "session {} has {} turns, so it cannot go back to {}{}",
                      static_cast<uint64_t>(id), n, n_turns,
                      keep_question ? " and the question behind" : "");
  }
  if (n_turns == n) return {};
  if (open.said.messages().empty()) return roll_back_text(open, n_turns, keep_question);
  roll_back_messages(open, n_turns, keep_question);
  return {};
}

uint32_t Host::turns_of(const OpenConversation& open) {
  const bool is_text = open.said.messages().empty();
  return static_cast<uint32_t>(is_text ? open.n_lost_turns + open.turns.size()
                                       : open.said.n_questions());
}

Status Host::roll_back_text(OpenConversation& open, uint32_t n_turns, bool keep_question) {
  if (n_turns < open.n_lost_turns) {
    return make_error(ErrorCode::kNotFound,
                      "the first {} turns made room for later text: go back to no fewer",
                      open.n_lost_turns);
  }
  const size_t index = n_turns - open.n_lost_turns;
  const Turn next = open.turns[index];
  open.tokens.resize(keep_question ? next.prompt_end : next.begin);
  open.turns.resize(keep_question ? index + 1 : index);
  if (keep_question) open.turns.back().last = {};
  open.last = open.turns.empty() ? LastAnswer() : open.turns.back().last;
  return {};
}

/// The next prompt is made of the messages that are left, so nothing else is kept.
void Host::roll_back_messages(OpenConversation& open, uint32_t n_turns, bool keep_question) {
  const uint32_t n_questions = keep_question ? n_turns + 1 : n_turns;
  while (open.said.n_questions() > n_questions) open.said.undo();
  if (keep_question) open.said.take_back_answer();
  open.tokens.clear();
  open.last = {};
}

// ---- requests

Result<Submitted> Host::submit(ConversationId conversation, RequestInput input) {
  OpenConversation before;  // what it holds, which no other thread changes while it is busy
  const bool alone = conversation == ConversationId::kNone;
  if (alone) before.defaults = std::move(input.alone);
  if (!alone) {
    const std::lock_guard lock(mutex_);
    const auto it = conversations_.find(conversation);
    if (it == conversations_.end()) return no_conversation(conversation);
    if (it->second.busy) return has_request(conversation);
    before = it->second;
    it->second.busy = true;
  }
  BusyMark mark(*this, conversation);
  Submission submission{.choice_of = input.shares_prompt_with,
                        .scores = input.scores,
                        .cache_hit_threshold = input.cache_hit_threshold,
                        .queue_timeout_s = input.queue_timeout_s};
  PUMICE_TRY(Prepared prepared, prepare(std::move(input), before));
  prepared.record.conversation = conversation;
  Submitted submitted{.prompt_tokens = static_cast<uint32_t>(prepared.request.prompt.size()),
                      .begins_reasoning = prepared.begins_reasoning};
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  const auto it = conversations_.find(conversation);
  if (!alone && it == conversations_.end()) return no_conversation(conversation);
  // Room first: an allocation that fails leaves nothing behind.
  if (inbox_.size() == inbox_.capacity()) inbox_.reserve(2 * inbox_.size() + 1);
  submitted.id = static_cast<RequestId>(next_number(true));
  requests_.emplace(submitted.id, std::move(prepared.record));
  submission.id = submitted.id;
  submission.request = std::move(prepared.request);
  inbox_.push_back(std::move(submission));
  if (!alone) it->second.request = submitted.id;
  mark.keep();
  engine_->wake();
  return submitted;
}

Status Host::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return not_found("request", static_cast<uint64_t>(id));
  if (it->second.ended) return {};
  cancelled_.push_back(id);
  engine_->wake();
  return {};
}

Status Host::set_mode(EngineMode mode) {
  const std::lock_guard lock(mutex_);
  PUMICE_TRY_STATUS(check_alive());
  new_mode_ = mode;
  return {};
}

// ---- numbers

Histogram Host::latency(LatencyKind kind) const {
  const std::lock_guard lock(mutex_);
  return latencies_[static_cast<size_t>(kind)];
}

Stats Host::stats() const {
  // Held to the end, when the device is nobody's here any more: a poll that has let go of it takes
  // this lock before it says so (see_device).
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<vk::Device> device = device_.lock();
  const std::shared_ptr<vk::PipelineLibrary> pipelines = pipelines_.lock();
  Stats stats = stats_;
  stats.open_requests = static_cast<uint32_t>(requests_.size());
  stats.open_conversations = static_cast<uint32_t>(conversations_.size());
  if (device == nullptr) return stats;
  for (const auto& [purpose, entry] : device->ledger().entries()) {
    stats.device_bytes += entry.current_bytes;
    if (purpose == "weights") stats.weight_bytes = entry.current_bytes;
    if (purpose == "KV cache") stats.kv_bytes = entry.current_bytes;
  }
  stats.budgeted_bytes = device->ledger().budgeted_bytes();
  if (pipelines != nullptr) stats.kernels = pipelines->compiled_count();
  return stats;
}

}  // namespace pumice::host
