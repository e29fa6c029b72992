// An engine that any thread may submit to: an inbox that the polling thread empties, events that
// wait to be taken, and sessions, which remember what was said.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/handles.hpp"
#include "api/status.hpp"
#include "engine/engine.hpp"
#include "engine/requests.hpp"
#include "text/conversation.hpp"

namespace pumice::api {

/// What requests of a session have in common.
struct SessionDefaults {
  SamplerOptions sampling;
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  std::string salt;
  double max_tokens_per_s = 0;
  GenerationRequest::Delivery delivery = GenerationRequest::Delivery::kToken;
};

/// A pumice_request_options, checked and copied.
struct RequestInput {
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<ChatMessage> messages;  ///< one of the three
  bool special = false;
  uint32_t max_new_tokens = 0;  ///< 0: what the context holds
  std::optional<SamplerOptions> sampling;
  std::vector<std::string> stops;
  double timeout_s = std::numeric_limits<double>::infinity();
  bool ignore_end = false;
};

/// A pumice_event that owns what it points to.
struct HostEvent {
  pumice_event event = {sizeof(pumice_event)};
  std::string text;
  std::string message;
};

/// Threads: any may call what is under "any thread"; of the rest a second one at a time gets
/// PUMICE_BUSY. Errors of all: PUMICE_NOT_FOUND for a number that is none, PUMICE_INTERNAL once a
/// bug was met.
class EngineHost {
 public:
  EngineHost(const pumice_model& model, std::unique_ptr<Engine> engine);
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // ---- any thread

  ApiStatus open_session(SessionDefaults defaults, pumice_session* id);
  ApiStatus close_session(pumice_session id);
  ApiStatus session_tokens(pumice_session id, std::vector<TokenId>* tokens);
  ApiStatus submit(pumice_session session, RequestInput input, pumice_request* id);
  ApiStatus cancel(pumice_request id);
  ApiStatus set_mode(EngineMode mode);
  pumice_stats stats();

  // ---- one thread at a time

  ApiStatus prewarm(double seconds, uint32_t* done, uint32_t* total);
  /// Errors: those of Engine::poll.
  ApiStatus poll(double budget_s);
  ApiStatus wait(std::chrono::microseconds most);
  /// Errors: those of Engine::set_memory_budget.
  ApiStatus set_memory_budget(uint64_t bytes);
  /// The session as it would be if its request were cancelled now. The bytes stay until the next
  /// call of this, or of `poll`. Errors: those of Engine::save.
  ApiStatus save_session(pumice_session id, std::span<const std::byte>* bytes);
  /// Errors, with no session made: those of Engine::restore.
  ApiStatus restore_session(std::span<const std::byte> bytes, const RestoreOptions& options,
                            pumice_session* id);
  /// Null: there is none. Valid until the next call.
  ApiStatus next_event(const HostEvent** event);
  /// The last call: what was learned of costs.
  void keep_for_next_run();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kFirstPause = std::chrono::milliseconds(500);
  static constexpr Clock::duration kLongestPause = std::chrono::seconds(8);

  /// The answer that tokens end with: a request without a prompt goes on with it.
  struct LastAnswer {
    uint32_t n_tokens = 0;
    uint64_t next_output_index = 0;
    size_t held_bytes = 0;  // at the end of its text: no event brought them
  };
  struct OpenSession {
    SessionDefaults defaults;
    std::vector<TokenId> tokens;  // it holds
    LastAnswer last;
    Conversation conversation;   // of messages, if it is one of those
    size_t n_forgotten = 0;      // of its last prompt
    bool busy = false;           // a request of it has not ended
    pumice_request request = 0;  // that one, once it is submitted
  };
  struct OpenRequest {
    pumice_session session = 0;
    std::vector<TokenId> tokens;  // prompt and answer so far, of a session's
    LastAnswer last;
    std::optional<Conversation> conversation;  // with the new messages
    std::string answer;                        // of a conversation, so far
    size_t n_streamed = 0;                     // tokens at the end that its stream of text has read
    size_t given_bytes = 0;                    // of their text, which events brought
    uint32_t n_forgotten = 0;
    Clock::time_point submitted;
    std::optional<Clock::time_point> deadline = {};  // once it is with the engine
    std::optional<Clock::time_point> first_token = {};
    std::optional<RequestId> running = {};  // with the engine
    bool ended = false;                     // its last event waits to be taken
  };
  /// What becomes a request.
  struct Prepared {
    GenerationRequest request;
    OpenRequest record;
  };
  struct Submission {
    pumice_request id = 0;
    GenerationRequest request;
  };

  enum class IdKind : uint64_t { kSession = 0, kRequest = 1 };
  /// Clears a session's mark of being busy unless a request was made.
  class BusyMark;

  uint64_t next_id(IdKind kind);
  ApiStatus add_session(OpenSession session, pumice_session* id);

  Result<Prepared> prepare(RequestInput input, const OpenSession& session) const;
  Status add_text(const RequestInput& input, const OpenSession& session, Prepared& prepared) const;
  Status add_messages(const RequestInput& input, const OpenSession& session,
                      Prepared& prepared) const;
  void go_on(const OpenSession& session, Prepared& prepared) const;
  void make_room(uint32_t max_new_tokens, std::vector<TokenId>& prompt) const;
  Result<uint32_t> new_tokens(uint32_t wanted, size_t prompt_tokens) const;

  ApiStatus check_alive() const;
  template <typename Body>
  ApiStatus guard_engine(Body&& body);
  void empty_inbox();
  ApiStatus go_on(double budget_s);
  void end_overdue();
  void add_event(const StepEvent& step);
  void add_event_of_engine(pumice_event_kind kind, std::string message = {});
  bool is_elsewhere() const;
  bool has_lost_device() const;
  void note_loss(const Error& error);
  ApiStatus recover();
  void see_device();
  void finish(pumice_request id, OpenRequest& request, const RequestReport& report,
              HostEvent& event);
  void finish_with_error(pumice_request id, const ApiStatus& status);
  void start(Submission submission);
  void stop(pumice_request id, EndReason reason);
  void settle(OpenRequest& request, bool keep);
  static void keep_what_was_said(OpenRequest request, OpenSession& session);
  std::string text_of(std::span<const TokenId> tokens) const;
  ApiStatus sequence_of(pumice_session id, SavedSequence* sequence) const;
  void give_up(const ApiStatus& status);
  void update_stats();

  pumice_model model_;  // shares all of it
  const uint64_t tag_;  // of its numbers
  const uint32_t window_;
  const OverflowPolicy overflow_;
  const uint32_t keep_tokens_;

  std::mutex poll_mutex_;  // of the polling thread; taken before mutex_
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, pumice_request> running_;
  std::set<std::pair<Clock::time_point, pumice_request>> deadlines_;  // of those that have one
  std::deque<HostEvent> events_;
  bool budget_event_due_ = false;
  bool is_lost_ = false;  // its device, and no other was had yet
  std::string why_lost_;
  /// When the device may be opened again, if a step ended since, or another try is due.
  struct Retry {
    Clock::time_point next = {};
    Clock::duration pause = kFirstPause;
    uint64_t steps = 0;
    uint64_t generation = 0;
  } retry_;
  HostEvent taken_;               // that was given out last
  std::vector<std::byte> saved_;  // likewise

  mutable std::mutex mutex_;  // of all below; held for moments only
  std::vector<Submission> inbox_;
  std::vector<pumice_request> cancelled_;
  std::optional<EngineMode> new_mode_;
  std::map<pumice_session, OpenSession> sessions_;
  std::map<pumice_request, OpenRequest> requests_;
  uint64_t n_ids_ = 0;
  pumice_stats stats_ = {sizeof(pumice_stats)};
  // Nobody keeps what they give beyond the lock.
  std::weak_ptr<vk::Device> device_;
  std::weak_ptr<vk::PipelineLibrary> pipelines_;
  pumice_status broken_ = PUMICE_OK;  // else why nothing goes on any more
  std::string why_broken_;
};

}  // namespace pumice::api
