// A request as the scheduler sees it: lengths, order and state. Its tokens are in its prompt while
// it waits and with the cache while it runs (Scheduler::tokens); what they say is the engine's
// business.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cache/kv_cache.hpp"

namespace pumice {

using RequestId = uint32_t;

enum class RequestState { kWaiting, kPrefilling, kDecoding, kFinished, kCancelled, kFailed };
std::string_view request_state_name(RequestState state);  ///< "waiting", …

/// Served in this order; within a class a lower `priority` value goes first, then the earlier
/// arrival. The whole rule is in docs/ARCHITECTURE.md, "The service rule".
enum class ServiceClass : uint8_t { kInteractive, kNormal, kBatch };
constexpr size_t kServiceClasses = 3;
std::string_view service_class_name(ServiceClass service_class);  ///< "interactive", …

/// Why a request ended.
enum class EndReason {
  kNone,
  kLength,
  kStop,  ///< its last token says so, and is no text
  kStopString,
  kWindow,
  kCancelled,
  kDeadline,
  kError,
  kComplete,        ///< nothing may follow its last token, which is text
  kCacheThreshold,  ///< less of its prompt was cached than it asked for; it was not begun
};
/// "length", "stop" (of kComplete too), "stop_string", "cache_threshold", …
std::string_view end_reason_name(EndReason reason);

/// What a client asks for. Times are seconds on the caller's clock, as in Scheduler::plan_step.
struct RequestSpec {
  std::vector<uint32_t> prompt = {};  ///< token ids
  /// Instead of tokens, with a keyed cache: one key a full block of `n_keyed_tokens`.
  std::vector<uint64_t> keys = {};
  uint32_t n_keyed_tokens = 0;
  uint32_t max_new_tokens = 0;
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  /// Who asks: of those that wait, with one class and priority, clients take turns. 0: nobody in
  /// particular, who is each time another one.
  uint64_t client = 0;
  double deadline_s = std::numeric_limits<double>::infinity();
  std::string salt = {};  ///< prefixes are shared only between requests of one salt
  /// What its keys and values depend on besides tokens; none: the cache's own. Not of a keyed cache.
  std::optional<ModelFingerprint> model = {};
  /// Its tokens come no faster, but for one that may be made up for; 0: as fast as can be.
  double max_tokens_per_s = 0;
  /// Whether a step may be planned for it before the token of the step before is known.
  bool runs_ahead = true;
  /// Each row of its prompt is one of logits too.
  bool has_prompt_logits = false;
  /// What it samples is of use to no other request: the cache keeps its prompt only, as far as that
  /// can be told apart (KvCache::rewind).
  bool forgets_output = false;
  /// Another choice of the prompt of that request: while nothing was sampled behind that, this one
  /// waits for it, and samples its first token of the row of logits that the other samples too. Of
  /// no meaning where the prompt, the salt or the model is another, or with a keyed cache.
  std::optional<RequestId> choice_of = {};
  std::optional<RequestId> id = {};  ///< chosen by the caller; else the next free one
};

/// When things happened to a request, and how often; seconds, NaN: not yet.
struct RequestTimes {
  static constexpr double kNever = std::numeric_limits<double>::quiet_NaN();
  double arrived = 0;
  double first_scheduled = kNever;
  double first_token = kNever;
  double last_token = kNever;
  double ended = kNever;
};

/// Owned by one Scheduler. Positions count from the start of the sequence:
///   [0, computed) written   [computed, scheduled) in steps that are under way   [0, known) may be
struct Request {
  RequestId id = 0;
  RequestState state = RequestState::kWaiting;
  EndReason end_reason = EndReason::kNone;
  Status failure = {};  ///< why, of kError
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  uint64_t client = 0;
  uint64_t round = 0;    ///< the how manieth of its client, those before which others went counted
  uint64_t arrival = 0;  ///< order of arrival
  double deadline_s = 0;
  double token_s = 0;  ///< least time from token to token
  double due_s = 0;    ///< no row of it is planned before, but with a start
  bool runs_ahead = true;
  bool has_prompt_logits = false;
  bool forgets_output = false;
  std::optional<RequestId> choice_of = {};  ///< never one that is a choice itself

  uint32_t prompt_tokens = 0;
  uint32_t max_new_tokens = 0;
  uint32_t generated_tokens = 0;  ///< sampled and committed, over all restarts
  uint32_t sequence_tokens = 0;   ///< tokens whose ids are known; the prompt's at first
  uint32_t computed_tokens = 0;
  uint32_t scheduled_tokens = 0;
  uint32_t pending_samples = 0;  ///< tokens being sampled by steps under way, refused ones too
  uint32_t draft_tokens = 0;     ///< that its next row is to have behind it
  /// Rises when steps under way no longer count: preemption, restart, rollback, end.
  uint32_t epoch = 0;

  std::optional<SequenceId> sequence;  ///< while running
  std::optional<uint32_t> slot;        ///< while running: Scheduler::n_slots
  HashedPrompt prompt;                 ///< while waiting
  CacheReport cache;                   ///< of the first start that was not rolled back
  uint32_t preemptions = 0;
  uint32_t prefill_iterations = 0;
  uint64_t last_planned = 0;          ///< step in which it last got a chunk
  uint64_t turn = 0;                  ///< number taken when it came, and when it has had its turn
  uint64_t started_in = 0;            ///< step in which it last got pages
  uint32_t most_computed_tokens = 0;  ///< over all restarts of this sequence
  /// Its class was not served for long: it goes first until `turn_ends_s`, which is known with its
  /// next token.
  bool on_turn = false;
  double turn_ends_s = std::numeric_limits<double>::infinity();
  std::string salt;
  ModelFingerprint model;
  RequestTimes times;

  /// Positions that can be planned: ids known, or known to the device by then.
  uint32_t known_tokens() const { return sequence_tokens + pending_samples; }
  bool running() const { return sequence.has_value(); }
  bool ended() const { return state >= RequestState::kFinished; }
};

}  // namespace pumice
