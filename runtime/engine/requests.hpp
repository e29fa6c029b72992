// What an engine knows of its requests: the host's truth. No device: with it alone everything on a
// device can be computed again.
//
// Each action on a request (submission, cancellation, a token, preemption, failure) goes through
// here, once. What it does to order, blocks, slots and tokens is the scheduler's, which owns the
// tokens; what it does to text, stop conditions and events is done here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "constraints/matcher.hpp"
#include "engine/draft_policy.hpp"
#include "engine/drafter.hpp"
#include "engine/engine_options.hpp"
#include "engine/step_input.hpp"
#include "sampling/options.hpp"
#include "scheduler/scheduler.hpp"
#include "text/sentence_stream.hpp"
#include "text/text_stream.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// Of what was guessed and verified, by its place in the guess.
struct DraftCounts {
  static constexpr uint32_t kPlaces = 16;  ///< later ones count as the last of these

  uint32_t drafted = 0;   ///< tokens that were verified
  uint32_t accepted = 0;  ///< of those, what the request said too
  std::array<uint32_t, kPlaces> drafted_at = {};
  std::array<uint32_t, kPlaces> accepted_at = {};

  void add(uint32_t n_drafted, uint32_t n_accepted);
};

/// What to generate.
struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 0;
  SamplerOptions sampling = {};
  /// Turns tokens into StepEvent::text, and says which of them end a text; none: tokens only.
  std::shared_ptr<const Tokenizer> tokenizer = {};
  bool ignore_end = false;  ///< the tokenizer's end-of-text tokens do not end the request
  /// Tokens that end the request too; the one that did is the last one reported, and not text.
  std::vector<TokenId> end_tokens = {};
  /// Texts that end the request; neither they nor what follows is given as text. Need a tokenizer.
  std::vector<std::string> stop_strings = {};
  /// The output is a text of this: tokens after which none is possible any more are never chosen,
  /// those that end the request only where such a text may end; it ends by itself (kComplete) where
  /// nothing else may follow. Requests may share one; it is of the model's vocabulary. Where it costs
  /// too much, or no token can go on, the request fails (RequestReport::failure). Not of an engine
  /// with EngineOptions::greedy_only.
  /// Where it forces tokens, one behind the other, they are verified as a guess, as far as
  /// EngineOptions::spare_logit_rows has room: fewer steps, the same tokens.
  std::shared_ptr<const Constraint> constraint = {};
  ServiceClass service_class = ServiceClass::kNormal;
  int32_t priority = 0;
  uint64_t client = 0;                                         ///< RequestSpec::client
  double timeout_s = std::numeric_limits<double>::infinity();  ///< from now
  /// Tokens come no faster, but for one that may be made up for; 0: as fast as can be.
  double max_tokens_per_s = 0;
  /// How text comes: as it becomes final, or by whole sentences (SentenceStream; needs a
  /// tokenizer). Tokens are told as they come.
  enum class Delivery { kToken, kSentence } delivery = Delivery::kToken;
  std::string salt = {};  ///< prefixes are shared only between requests of one salt
  /// 1 + the adapter of its rows in Program::adapters; 0: none. Prefixes are shared only between
  /// requests of one adapter.
  uint32_t adapter = 0;
  /// Each token comes with its log probability and those of so many best (at most kMostLogProbs) in
  /// its place. Not of an engine with EngineOptions::greedy_only.
  std::optional<uint32_t> log_probs = {};
  /// Receives, while the engine works, how probable the tokens of the prompt are behind those before
  /// them: of each position but the first, in order, with so many best as `log_probs` says. None of
  /// the prompt then comes from the cache, and it is read in chunks of few tokens
  /// (EngineOptions::spare_logit_rows). Not of an engine with EngineOptions::greedy_only.
  std::function<void(uint32_t position, TokenId token, const TokenLogProbs& log_probs)> on_score =
      {};
  /// Asked while a step is planned, for each number of tokens once: the step computes the guess too,
  /// and where that is what the request says anyway, several tokens come of one step. The tokens
  /// are those it says without. It does not run ahead, and no guess takes room from anyone: how
  /// many rows of guesses a step has at most is EngineOptions::spare_logit_rows.
  Drafter drafter = {};
  uint32_t most_draft_tokens = UINT32_MAX;  ///< that are asked for
  /// As many are verified as are worth it (DraftPolicy), which may be none: then it runs ahead. The
  /// drafter is asked for each token, and its guesses are compared with the text either way.
  bool adapts_drafts = false;
  /// Another choice of the prompt of that request, which was submitted before and has sampled
  /// nothing yet: the prompt is computed once, and the first tokens of both, of as many choices as
  /// the engine runs at once, are sampled from one row of logits. Otherwise, also with other tokens
  /// or with on_score or on_logits, this is a request like any other.
  std::optional<RequestId> choice_of = {};
  /// Of a request that goes on where another ended (SavedSequence): which output token its first is
  /// to its seed, and how many at the prompt's end were output, as penalties count, and begin its
  /// text: what of that was held back comes first, unless all of it was given. Not with on_logits.
  uint64_t first_output_index = 0;
  uint32_t n_output_in_prompt = 0;
  bool prompt_text_given = false;
  /// Receives the logits of positions, in order, while the engine works. Needs
  /// EngineOptions::prompt_logits.
  std::function<void(uint32_t position, std::span<const float> logits)> on_logits = {};
  /// Which: of every prompt position, none of which then comes from the cache; or of whatever is
  /// computed, generated positions and those computed again after a preemption included.
  enum class Logits { kPrompt, kComputed } logits = Logits::kPrompt;
  uint32_t first_logits = 0;  ///< positions before it have none
  /// Receives, while the engine works, the hidden row of each position that is computed, with its
  /// token: in order, but that where a request begins again it begins again too; none of what comes
  /// from the cache, nor of refused guesses. Needs a model with Program::gives_hidden. The request
  /// does not run ahead.
  std::function<void(uint32_t position, TokenId token, std::span<const float> row)> on_hidden = {};
  /// Of a model that reads given rows (op::GivenRows), which needs it: writes those of the positions
  /// from `first` on, [n][width]. Asked while a step is planned, perhaps more than once. The request
  /// does not run ahead.
  std::function<void(uint32_t first, std::span<float> rows)> give = {};
  /// RequestSpec::forgets_output
  bool forgets_output = false;
};

/// What is known of a request once it has ended. Times in seconds on Engine::now().
struct RequestReport {
  EndReason end_reason = EndReason::kNone;
  Status failure = {};  ///< why, of kError
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  CacheReport cache;
  RequestTimes times;
  uint32_t prefill_iterations = 0;
  uint32_t preemptions = 0;
  uint32_t shifts = 0;            ///< times the window was full and made room
  uint32_t truncated_tokens = 0;  ///< of the prompt's start, dropped on submission
  DraftCounts drafts;
  std::string held_text = {};  ///< of a cancelled request: text that no event brought
};

/// What a step brought for one request.
struct StepEvent {
  RequestId request = 0;
  std::optional<TokenId> token = {};  ///< the next token; none while the prompt is still being read
  std::string text = {};              ///< what became final with it, all of it when finished
  std::optional<TokenLogProbs> log_probs = {};  ///< of `token`, if they were asked for
  uint32_t computed_tokens = 0;                 ///< positions computed so far
  bool finished = false;                        ///< the last event of this request
  std::optional<RequestReport> report = {};     ///< when finished
};

/// Requests with one adapter.
struct AdapterUse {
  uint32_t running = 0;
  uint32_t waiting = 0;
};

/// Not thread-safe.
class Requests {
 public:
  /// What an engine takes.
  struct Limits {
    uint32_t n_vocab = 0;
    uint32_t window_tokens = 0;
    OverflowPolicy overflow = OverflowPolicy::kStop;
    uint32_t keep_tokens = 1;  ///< of kShift
    bool greedy_only = false;
    bool logits = false;       ///< on_logits
    bool hidden = false;       ///< on_hidden
    uint32_t given_width = 0;  ///< of a row of `give`; 0: there are none
    /// What keys and values of rows with each of Program::adapters depend on besides tokens.
    std::vector<ModelFingerprint> adapters = {};
  };

  Requests(Scheduler scheduler, const Limits& limits)
      : scheduler_(std::move(scheduler)), limits_(limits) {}

  // ---- what a client does

  /// See Engine::check.
  Status check(const GenerationRequest& request) const;
  /// See Engine::submit.
  Result<RequestId> submit(GenerationRequest request, double now_s);
  /// See Engine::cancel.
  std::optional<RequestReport> cancel(RequestId id, double now_s);
  /// What happened since the last call, in order.
  std::vector<StepEvent> take_events() { return std::exchange(events_, {}); }
  bool has_events() const { return !events_.empty(); }
  /// Nothing is left to do, nor any event to be taken.
  bool idle() const { return requests_.empty() && events_.empty(); }

  // ---- what a step does, in this order (Scheduler says more)

  /// Whether the device knows the request that has a slot (DeviceState::is_set_up).
  using KnowsSlot = std::function<bool(uint32_t slot)>;
  /// The next step, with all that carrying it out needs. Requests that ended meanwhile (a deadline)
  /// have an event, which no failure takes back.
  StepInput plan(double now_s, const KnowsSlot& knows_slot);
  /// The plan's transfers were made but for `failures`. False: it is rolled back, as requests lost
  /// what was to be restored, or have ended or begun again meanwhile; plan again.
  bool finish_transfers(const StepPlan& plan, const TransferFailures& failures);
  /// Whether rows of a step under way are sampled with masks.
  static bool wants_masks(const StepInput& step);
  /// The masks of the oldest step under way, all before it having been committed: `take` receives
  /// each, for which of the rows of that chunk that sample, in order. Rows without a call do not
  /// count. A request whose constraint fails ends with an event, and so does its chunk's meaning.
  using TakeMask = std::function<void(size_t chunk, uint32_t row, std::span<const uint32_t> mask)>;
  void make_masks(const StepInput& step, double now_s, const TakeMask& take);
  /// Whether the results of a step under way are of use to anyone: some request of it goes on.
  bool is_wanted(const StepPlan& plan) const { return scheduler_.counts_in_part(plan.id); }
  /// The oldest step under way ran. `sampled`: what its sampling rows chose, chunk by chunk, in
  /// order, to be moved from. Of a draft, what follows the first row that chose something else does
  /// not count.
  void commit(const StepInput& step, std::span<SampledRow> sampled, double now_s, double seconds);
  /// Of the rows of a chunk that sample, those that count: the first, and each behind a row that
  /// chose what the draft has there.
  static uint32_t n_agreed(const StepChunk& chunk, const ChunkInput& input,
                           std::span<const SampledRow> rows);
  /// This step and those planned after it did not run: nothing of them happened.
  void rollback(uint64_t plan_id) { scheduler_.rollback(plan_id); }
  /// The device's memory is gone: every request begins again from its tokens.
  void lose_device() { scheduler_.lose_device(); }
  /// An exception has left a call of this in the middle of something: every request begins again
  /// from what was told of it, with an empty cache. Events that were not taken yet stay. Another
  /// exception changes nothing, and then this is called again.
  void start_over();

  // ---- of a request under way

  std::span<const TokenId> tokens(RequestId id) const { return scheduler_.tokens(id); }
  /// Of its tokens, from the start, those that are the prompt's.
  uint32_t n_prompt(RequestId id) const { return requests_.at(id).n_prompt; }
  /// Of the token that comes next, as far as is known.
  uint64_t next_output_index(RequestId id) const;
  /// Null if there is none under way.
  const GenerationRequest* find(RequestId id) const;
  /// Nothing for a request that has ended, like the next.
  void deliver_score(RequestId id, uint32_t position, TokenId token,
                     const TokenLogProbs& log_probs);
  void deliver_logits(RequestId id, uint32_t position, std::span<const float> logits) const;
  void deliver_hidden(RequestId id, uint32_t position, TokenId token,
                      std::span<const float> row) const;

  const Limits& limits() const { return limits_; }
  const Scheduler& scheduler() const { return scheduler_; }
  Scheduler& scheduler() { return scheduler_; }
  /// A salt that no other request has.
  std::string private_salt() { return fmt::format("private {}", n_private_salts_++); }

  /// Of the keys and values of rows with an adapter (GenerationRequest::adapter).
  const ModelFingerprint& fingerprint_of(uint32_t adapter) const {
    return adapter == 0 ? scheduler_.cache().options().model : limits_.adapters.at(adapter - 1);
  }
  /// As a prompt of such a request.
  HashedPrompt hash_prompt(std::span<const TokenId> tokens, std::string_view salt,
                           uint32_t adapter) const {
    return scheduler_.cache().hash_prompt(tokens, salt, fingerprint_of(adapter));
  }

  /// How many requests run or wait with each of Program::adapters.
  std::vector<AdapterUse> adapter_use() const;

  /// For tests. Errors: kInternal when requests and scheduler disagree.
  Status check_integrity() const;

 private:
  struct Active {
    GenerationRequest request;                  // its prompt moved to the scheduler
    std::unique_ptr<TextStream> stream;         // with a tokenizer
    std::unique_ptr<SentenceStream> sentences;  // with kSentence
    std::optional<Matcher> matcher;             // with a constraint: after what the stream was fed
    Status failure;                             // of that
    // What was told, from which all else can be made again. `tokens` is what the scheduler has,
    // between calls; of long outputs it lacks what the window dropped.
    std::vector<TokenId> tokens;
    std::vector<TokenId> told;  // output tokens, the first n_restored of a request before this
    uint32_t n_restored = 0;
    uint32_t n_prompt = 0;
    uint32_t shifts = 0;
    uint32_t truncated_tokens = 0;
    std::vector<TokenId> draft;  // of what follows the first `drafted_for` of its tokens
    size_t drafted_for = 0;
    // Of one that adapts: how good guesses are, and one whose tokens have not all come yet.
    DraftPolicy policy;
    Guess held;
    size_t held_for = 0;
    uint32_t n_scored = 0;  // positions whose scores were delivered or that have none
    DraftCounts drafts;
  };
  /// A token of a chunk that ran, read and not yet told.
  struct ReadToken {
    StepEvent event;
    EndReason ended_by = EndReason::kNone;
  };

  void ask_for_drafts();
  uint32_t worthwhile_draft(RequestId id, Active& active, const Guess& guess);
  ChunkInput input_of(const StepChunk& chunk, bool is_new) const;
  void add_memory(const StepChunk& chunk, bool is_new, ChunkInput& input) const;
  static std::string text_of(Active& active, TokenId token);
  static std::string rest_of(Active& active);
  static void begin_text(Active& active);
  static EndReason read_token(Active& active, TokenId token, StepEvent& event);
  Status check_constraint(const GenerationRequest& request) const;
  static Status begin_constraint(Active& active);
  static EndReason constrain(Active& active, TokenId token);
  static Status mask_of(Active& active, TokenMask& mask);
  static Status mask_rows(Active& active, size_t chunk, std::span<const TokenId> draft,
                          const TakeMask& take);
  static std::vector<TokenId> forced_tokens(Active& active, uint32_t most);
  static size_t n_allowed(Active& active, std::span<const TokenId> draft);
  std::vector<ReadToken> read_chunk(const StepChunk& chunk, std::span<SampledRow> rows);
  void tell(StepEvent event, EndReason ended_by, double now_s, bool is_last = true);
  void shift_window(RequestId id);
  RequestReport report_of(RequestId id, EndReason ended_by) const;

  Scheduler scheduler_;
  Limits limits_;
  std::map<RequestId, Active> requests_;
  std::vector<StepEvent> events_;  // not taken yet
  uint64_t n_private_salts_ = 0;
  uint32_t most_draft_measured_ = 0;  // rows of drafts in a step, of those whose time is known
};

}  // namespace pumice
