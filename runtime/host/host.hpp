// A host: an engine that any thread may submit to. It has an inbox, which the polling thread
// empties, events, which wait to be taken, and conversations, which remember what was said. It
// goes on by itself after the loss of its device.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answers/answer_constraint.hpp"
#include "base/result.hpp"
#include "engine/engine.hpp"
#include "engine/requests.hpp"
#include "host/draft_model.hpp"
#include "host/events.hpp"
#include "host/model_owner.hpp"
#include "host/reply.hpp"
#include "scheduler/histogram.hpp"
#include "text/conversation.hpp"

namespace pumice::host {

/// How often a device that was lost is opened again. Counting begins anew with a step that ends,
/// and with a device that somebody else has brought.
struct RetryPolicy {
  static constexpr uint32_t kForever = std::numeric_limits<uint32_t>::max();

  double first_pause_s = 0.5;  ///< after the first try; each later one is twice as long
  double longest_pause_s = 8;
  /// After so many tries the requests under way end with kDeviceLost. For requests that come later
  /// counting begins anew.
  uint32_t most_tries = kForever;
};

struct HostOptions {
  RetryPolicy retry = {};
  /// Messages that the context does not hold are left out, the oldest first, instead of an error;
  /// none: unless requests stop where the context is full (OverflowPolicy::kStop).
  std::optional<bool> forgets_messages = {};
  std::shared_ptr<DraftModel> draft_model = {};
  std::shared_ptr<PredictionDrafter> prediction = {};  ///< of the model, which gives hidden rows
};

/// What requests of a conversation have in common.
struct ConversationDefaults {
  SamplerOptions sampling;
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  uint64_t client = 0;  ///< RequestSpec::client
  std::string salt;
  uint32_t adapter = 0;  ///< GenerationRequest::adapter
  double max_tokens_per_s = 0;
  GenerationRequest::Delivery delivery = GenerationRequest::Delivery::kToken;
};

/// What goes with messages whose answer is told apart into reasoning, text and calls.
struct AnswerInput {
  std::shared_ptr<const Tools> tools = {};  ///< null: none are offered
  /// The template's own ("enable_thinking"): an object.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
};

/// Whether what comes next is guessed, so that steps bring several tokens where guesses are right: the
/// text is the same.
struct Speculation {
  static constexpr uint32_t kMostTokens = 7;

  enum class Guesses {
    kNone,
    kLookup,  ///< what followed the last tokens where the text had them before (PromptLookup)
    kAuto,    ///< the same, of which as many are verified as are worth it
    kModel,   ///< what HostOptions::draft_model says
    kBlock,   ///< what HostOptions::prediction says
  };
  Guesses guesses = Guesses::kNone;
  uint32_t most_tokens = kMostTokens;  ///< a guess
  /// With kLookup and kAuto: what the answer may repeat (prompt_lookup_drafter).
  std::vector<TokenId> expected = {};
};

/// A request. Its prompt is one of text, tokens and messages. Without any it is what its
/// conversation holds: the last answer goes on, or the last question is answered.
struct RequestInput {
  std::string text = {};
  std::vector<TokenId> tokens = {};
  std::vector<ChatMessage> messages = {};
  /// With messages, of any role and in any order (ChatPrompt): events have what the answer is
  /// (Event::answer), and the conversation remembers it so. The last message may be the assistant's:
  /// its answer goes on.
  std::optional<AnswerInput> answer = {};
  bool special = false;         ///< control tokens in the text or messages are these tokens
  uint32_t max_new_tokens = 0;  ///< 0: what the context holds
  /// At most as many as the window has left after the prompt, whatever the engine does when it is
  /// full (OverflowPolicy).
  bool within_window = false;
  /// Of the context, what a prompt of messages leaves for the answer. 0: `max_new_tokens`, but at
  /// most half of the context, or a quarter of it where that is 0 too.
  uint32_t answer_room_tokens = 0;
  std::optional<SamplerOptions> sampling = {};  ///< none: the conversation's
  std::vector<std::string> stops = {};
  /// What the answer is held to. Of messages, behind the reasoning that the model may do first.
  AnswerWish wish = {};
  /// What the wish's text alone compiles to, for whoever has it: needs no compiling where no reasoning can come first.
  std::shared_ptr<const Constraint> constraint = {};
  double timeout_s = std::numeric_limits<double>::infinity();
  /// It ends for EndReason::kDeadline, with RequestTimes::first_scheduled never, if by then nothing
  /// of it was in a step.
  double queue_timeout_s = std::numeric_limits<double>::infinity();
  bool ignore_end = false;
  std::optional<uint32_t> log_probs = {};  ///< GenerationRequest::log_probs
  bool scores = false;                     ///< GenerationRequest::on_score, as events
  Speculation speculation = {};
  /// Unless so much of its prompt, 0 to 1, is in the prefix cache or in the prefix store, the request
  /// ends at once, with nothing computed (EndReason::kCacheThreshold). All but the last token counts
  /// as all of it, as that one is never cached.
  double cache_hit_threshold = 0;
  /// Another choice of the prompt of that request (GenerationRequest::choice_of).
  RequestId shares_prompt_with = RequestId::kNone;
  /// Of a request without a conversation: what it has instead of a conversation's.
  ConversationDefaults alone = {};
};

/// What became of a RequestInput.
struct Submitted {
  RequestId id = RequestId::kNone;
  uint32_t prompt_tokens = 0;
  bool begins_reasoning = false;  ///< the prompt ends with <think>, which no event brings
};

/// A conversation that was saved, and how many positions at its start need not be computed again.
struct Restored {
  ConversationId id = ConversationId::kNone;
  uint32_t state_tokens = 0;
};

/// What a host counts.
struct Stats {
  uint64_t steps = 0, failed_steps = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t queried_tokens = 0, hit_tokens = 0;  ///< in the prefix cache
  uint32_t running_requests = 0, waiting_requests = 0;
  std::vector<AdapterUse> adapters = {};  ///< Engine::adapter_use
  double kv_usage = 0;                    ///< share of the KV pool that running requests use
  uint32_t kv_blocks = 0, block_tokens = 0;
  uint64_t drafted_tokens = 0, accepted_tokens = 0;
  uint32_t open_requests = 0, open_conversations = 0;
  uint64_t kernels = 0, kernels_compiled_after_prewarm = 0, allocations_after_prewarm = 0;
  uint32_t n_lost_devices = 0;
  bool is_lost = false;  ///< its device, and no other was had yet
  MemoryStatus memory;
  /// Of the device, by its ledger; all 0 while there is none.
  uint64_t device_bytes = 0, weight_bytes = 0, kv_bytes = 0, budgeted_bytes = 0;
};

/// What a host measures of its requests, on its own clock.
enum class LatencyKind {
  kQueue,          ///< from arrival at the engine to the first step, of requests that ended
  kFirstToken,     ///< from submission, as all below but the next
  kTokenInterval,  ///< between two tokens of a request, as polls found them
  kTotal,          ///< to the end, whatever that was
};
constexpr size_t kLatencyKinds = 4;

/// Threads: any may call what is under "any thread"; of the rest a second one at a time gets kBusy.
/// Errors of all: kNotFound for an unknown conversation or request; kOutOfMemory or kInternal once
/// an exception came out of the engine, which then can only be closed.
class Host {
 public:
  /// `engine` is one of the model's.
  Host(std::shared_ptr<ModelOwner> model, std::unique_ptr<Engine> engine,
       const HostOptions& options = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // ---- any thread

  /// Errors: kInvalidArgument for sampling that no engine does.
  Result<ConversationId> open_conversation(ConversationDefaults defaults = {});
  /// Cancels its request.
  Status close_conversation(ConversationId id);
  /// Its last prompt and the answer; empty after `set_conversation`.
  Result<std::vector<TokenId>> conversation_tokens(ConversationId id) const;
  /// What was said in it, once the request under way has ended.
  Result<Conversation> conversation(ConversationId id) const;
  /// Replaces what was said: part of it was taken back, say, or it comes from a file. What these
  /// messages have in common with earlier ones is found in the prefix cache. Errors: kBusy while
  /// the conversation has a request.
  Status set_conversation(ConversationId id, Conversation conversation);
  /// Of messages how many are questions; of text or tokens how many requests brought a prompt. The
  /// last may have no answer.
  Result<uint32_t> n_turns(ConversationId id) const;
  /// Back to the end of a turn: what followed the first `n_turns` is forgotten, but with
  /// `keep_question` the prompt of the next one, which a request without a prompt answers. What is
  /// left is found in the prefix cache. Errors, with nothing changed: kBusy while the conversation
  /// has a request; kNotFound: it has fewer turns, or what they were has made room for later text.
  Status roll_back(ConversationId id, uint32_t n_turns, bool keep_question);

  /// Puts a request into the inbox; ConversationId::kNone: one that stands alone. What is wrong
  /// whatever else runs is refused here. Errors: kInvalidArgument, kDoesNotFit; kBusy while the
  /// conversation has a request.
  Result<Submitted> submit(ConversationId conversation, RequestInput input);
  /// From the next poll on. Nothing happens to one that has ended.
  Status cancel(RequestId id);
  /// From the next poll on.
  Status set_mode(EngineMode mode);
  Stats stats() const;
  /// In seconds, since the host was made.
  Histogram latency(LatencyKind kind) const;

  const ModelOwner& model() const { return *model_; }
  /// Of a request.
  uint32_t window_tokens() const { return window_; }

  // ---- one thread at a time: the polling thread

  Result<Engine::Readiness> prewarm(double seconds);
  /// Empties the inbox, and Engine::poll. A device that was lost is opened again, by the RetryPolicy.
  /// Errors: those of Engine::poll, kDeviceLost while there is no device; no request has lost
  /// anything, and the next call tries again.
  Status poll(double budget_s);
  /// Until `poll` has something to do, `submit` or `cancel` is called, or that long.
  Status wait(std::chrono::microseconds most);
  /// Errors: those of Engine::set_memory_budget.
  Status set_memory_budget(uint64_t bytes);
  /// The conversation as it would be if its request were cancelled now. The bytes stay until the
  /// next call of this, or of `poll`. Errors: those of Engine::save.
  Result<std::span<const std::byte>> save(ConversationId id);
  /// Errors, with no conversation made: those of Engine::restore.
  Result<Restored> restore(std::span<const std::byte> bytes, const RestoreOptions& options = {});
  /// The oldest event that was not taken yet, valid until the next call; it may be moved from.
  /// Null: there is none.
  Result<Event*> next_event();
  /// To be read between two of these calls.
  const Engine& engine() const { return *engine_; }
  /// The last call: OpenedModel::keep_for_next_run.
  void keep_for_next_run();

 private:
  using Clock = std::chrono::steady_clock;

  /// The answer that tokens end with: a request without a prompt goes on with it.
  struct LastAnswer {
    uint32_t n_tokens = 0;
    uint64_t next_output_index = 0;
    size_t held_bytes = 0;  // at the end of its text: no event brought them
  };
  /// Of a conversation in text or tokens.
  struct Turn {
    size_t begin = 0;       // tokens before it
    size_t prompt_end = 0;  // tokens before its answer
    LastAnswer last = {};   // when it had ended
  };
  struct OpenConversation {
    ConversationDefaults defaults;
    std::vector<TokenId> tokens;  // it holds
    LastAnswer last;
    std::vector<Turn> turns;               // of which it holds the tokens
    uint32_t n_lost_turns = 0;             // before these
    Conversation said;                     // in messages, if it is one of those
    size_t n_forgotten = 0;                // of its last prompt
    bool busy = false;                     // a request of it has not ended
    RequestId request = RequestId::kNone;  // that one, once it is submitted
  };
  struct OpenRequest {
    ConversationId conversation = ConversationId::kNone;
    std::vector<TokenId> tokens;  // prompt and answer so far, of a conversation's
    LastAnswer last;
    std::optional<Turn> turn;          // that begins with it
    bool shifted = false;              // the conversation's tokens made room for it
    std::optional<Conversation> said;  // with the new messages
    std::string answer;                // of messages, so far
    std::shared_ptr<Reply> reply;      // the same, told apart
    size_t n_streamed = 0;             // tokens at the end that its stream of text has read
    size_t given_bytes = 0;            // of their text, which events brought
    uint32_t n_forgotten = 0;
    Clock::time_point submitted;
    std::optional<Clock::time_point> deadline = {};  // once it is with the engine
    std::optional<Clock::time_point> start_by = {};  // likewise
    std::optional<Clock::time_point> first_token = {};
    Clock::time_point last_token = {};              // of those there were
    std::optional<pumice::RequestId> running = {};  // with the engine
    bool ended = false;                             // its last event waits to be taken
  };
  /// What becomes a request.
  struct Prepared {
    GenerationRequest request;
    OpenRequest record;
    bool begins_reasoning = false;
    AnswerFrame frame = {};  ///< of messages
  };
  struct Submission {
    RequestId id = RequestId::kNone;
    RequestId choice_of = RequestId::kNone;
    bool scores = false;
    double cache_hit_threshold = 0;
    double queue_timeout_s = std::numeric_limits<double>::infinity();
    GenerationRequest request;
  };
  /// A request that waits for a prefix from the store.
  struct Reading {
    Submission submission;
    /// Null: it waits for the request whose prompt it shares.
    std::shared_ptr<PrefixStore::Reading> stored;
    Clock::time_point until;
  };
  /// When the device may be opened again, if no step ended since.
  struct Retry {
    Clock::time_point next = {};
    double pause_s = 0;
    uint32_t tries = 0;
    uint64_t steps = 0;
    uint64_t generation = 0;
  };

  /// Clears a conversation's mark of being busy unless a request was made.
  class BusyMark;

  // host.cpp: any thread
  uint64_t next_number(bool is_request);
  Result<ConversationId> add_conversation(OpenConversation conversation);
  static Error no_conversation(ConversationId id);
  static uint32_t turns_of(const OpenConversation& open);
  static Status roll_back_text(OpenConversation& open, uint32_t n_turns, bool keep_question);
  static void roll_back_messages(OpenConversation& open, uint32_t n_turns, bool keep_question);
  Status check_alive() const;

  // host_prompt.cpp: from a caller's words to a request
  Result<Prepared> prepare(RequestInput input, const OpenConversation& conversation) const;
  /// Of a request that has its prompt.
  Status have_drafted(const Speculation& speculation, GenerationRequest& request) const;
  Status add_text(const RequestInput& input, const OpenConversation& conversation,
                  Prepared& prepared) const;
  Status add_messages(const RequestInput& input, const OpenConversation& conversation,
                      Prepared& prepared) const;
  Status add_reply(const RequestInput& input, const OpenConversation& conversation,
                   Prepared& prepared) const;
  Status hold(const RequestInput& input, Prepared& prepared) const;
  FitOptions fit_options(const RequestInput& input, const OpenConversation& conversation) const;
  Status go_on(const RequestInput& input, const OpenConversation& conversation,
               Prepared& prepared) const;
  Result<FittedPrompt> fit_said(const Conversation& said, const RequestInput& input,
                                const OpenConversation& conversation) const;
  void frame_text(std::string_view prompt, const Conversation& said, Prepared& prepared) const;
  void make_room(uint32_t max_new_tokens, std::vector<TokenId>& prompt) const;
  Result<uint32_t> new_tokens(const RequestInput& input, size_t prompt_tokens) const;

  // host_poll.cpp: the polling thread
  Status take_engine(std::unique_lock<std::mutex>& polling);
  Status with_engine(const std::function<Status()>& body);
  void empty_inbox();
  void start(Submission submission);
  void give_to_engine(Submission submission);
  void stop(RequestId id, EndReason reason, Status failure = {});
  Status advance(double budget_s);
  void end_overdue();
  bool waits(RequestId id) const;
  void add_event(StepEvent& step);
  void finish(RequestId id, OpenRequest& request, RequestReport report, Event& event);
  void finish_with_error(RequestId id, const Error& error);
  void settle(OpenRequest& request, bool keep);
  static void keep_what_was_said(OpenRequest request, OpenConversation& conversation);
  void give_up(const Error& error);
  void update_stats();
  void count_token(OpenRequest& request);
  void count_end(const OpenRequest& request, const RequestReport& report, Clock::time_point now);
  void add_latency(LatencyKind kind, double seconds);

  // host_stored.cpp
  bool waits_for_stored(Submission& submission);
  void begin_read();
  bool ends_at_threshold(const Submission& submission);
  bool has_ended(RequestId id) const;

  // host_recovery.cpp
  bool is_elsewhere() const;
  bool has_lost_device() const;
  void note_loss(const Error& error);
  Status recover();
  void give_up_waiting();
  void see_device();

  // host_saved.cpp
  std::string text_of(std::span<const TokenId> tokens) const;
  Result<SavedSequence> sequence_of(ConversationId id) const;

  const std::shared_ptr<ModelOwner> model_;
  const RetryPolicy retry_policy_;
  const uint64_t tag_;  // of its numbers
  const uint32_t window_;
  const OverflowPolicy overflow_;
  const bool forgets_messages_;
  const uint32_t keep_tokens_;
  const std::shared_ptr<DraftModel> draft_model_;
  const std::shared_ptr<PredictionDrafter> prediction_;

  std::mutex poll_mutex_;  // of the polling thread; taken before mutex_
  std::unique_ptr<Engine> engine_;
  std::map<pumice::RequestId, RequestId> running_;
  // Of those that have one.
  std::set<std::pair<Clock::time_point, RequestId>> deadlines_, starts_;
  std::vector<Reading> reading_;  // in the order they came
  std::deque<Event> events_;
  bool budget_event_due_ = false;
  bool is_lost_ = false;  // its device, and no other was had yet
  std::string why_lost_;
  Retry retry_;
  Event taken_;                   // that was given out last
  std::vector<std::byte> saved_;  // likewise

  mutable std::mutex mutex_;  // of all below; held for moments only
  std::vector<Submission> inbox_;
  std::vector<RequestId> cancelled_;
  std::optional<EngineMode> new_mode_;
  std::map<ConversationId, OpenConversation> conversations_;
  std::map<RequestId, OpenRequest> requests_;
  uint64_t n_numbers_ = 0;
  Stats stats_;
  std::array<Histogram, kLatencyKinds> latencies_;  // guarded by mutex_, as those before
  // Nobody keeps what they give beyond the lock.
  std::weak_ptr<vk::Device> device_;
  std::weak_ptr<vk::PipelineLibrary> pipelines_;
  std::optional<Error> broken_;  // why nothing goes on any more
};

}  // namespace pumice::host
