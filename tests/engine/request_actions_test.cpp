// What a client and a step do to requests, in any order, with no device: each action has one path,
// and nothing is lost or told twice.
#include "engine/requests.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>
#include <random>

#include "tests/text/synthetic_vocabulary.hpp"

namespace pumice {
namespace {

constexpr uint32_t kVocab = 500;
constexpr TokenId kEnd = 7;

/// The tokens that a request samples: of its own seed and their index alone, as in an engine.
TokenId sampled_token(uint32_t seed, uint64_t index) {
  return static_cast<TokenId>((seed * 2654435761u + index * 40503u) >> 7) % kVocab;
}

/// Requests and what stands for a device: it may have two steps, and may lose them.
class Actions : public ::testing::Test {
 protected:
  void open(const SchedulerOptions& scheduler, uint32_t n_blocks,
            OverflowPolicy overflow = OverflowPolicy::kStop) {
    Result<Scheduler> made =
        Scheduler::create(scheduler, {.n_pages = n_blocks, .block_tokens = 16});
    ASSERT_TRUE(made.ok()) << made.error().message;
    requests_.emplace(
        std::move(made).value(),
        Requests::Limits{
            .n_vocab = kVocab, .window_tokens = scheduler.window_tokens, .overflow = overflow});
  }
  void SetUp() override {
    open({.token_budget = 40,
          .chunk_tokens = 24,
          .max_running = 3,
          .window_tokens = 128,
          .spare_logit_rows = 12},
         14);
  }

  static std::vector<TokenId> prompt(uint32_t n, uint32_t seed) {
    std::vector<TokenId> tokens(n);
    for (uint32_t i = 0; i < n; ++i) tokens[i] = (seed * 131 + i * i * 7) % kVocab;
    return tokens;
  }
  RequestId submit(uint32_t seed, uint32_t n_prompt, GenerationRequest request) {
    request.prompt = prompt(n_prompt, seed);
    const Result<RequestId> id = requests_->submit(std::move(request), now_);
    EXPECT_TRUE(id.ok()) << id.error().message;
    seeds_[*id] = seed;
    return *id;
  }

  /// As a device asks that knows every slot since its request's first step.
  StepInput plan() {
    return requests_->plan(now_, [](uint32_t) { return true; });
  }
  /// The device takes another step. False: there is none.
  bool launch() {
    StepInput step = plan();
    if (step.plan.empty()) return false;
    EXPECT_TRUE(step.plan.transfers.empty() ||
                requests_->finish_transfers(step.plan, TransferFailures{}));
    std::vector<SampledRow> sampled;
    for (size_t i = 0; i < step.chunks.size(); ++i) {
      const StepChunk& chunk = step.plan.chunks[i];
      for (uint32_t behind = chunk.n_samples; behind-- > 0;) {
        sampled.push_back(
            {sampled_token(seeds_.at(chunk.request), step.chunks[i].output_index - behind)});
      }
    }
    under_way_.emplace_back(std::move(step), std::move(sampled));
    return true;
  }
  void land() {
    auto [step, sampled] = std::move(under_way_.front());
    under_way_.pop_front();
    requests_->commit(step, sampled, now_, 0.01);
  }
  void fail(size_t index) {
    requests_->rollback(under_way_[index].first.plan.id);
    under_way_.resize(index);
  }
  /// Steps, one at a time, until nothing is left; all events.
  std::vector<StepEvent> finish() {
    std::vector<StepEvent> events;
    while (launch()) {
      land();
      now_ += 1;
      for (StepEvent& event : requests_->take_events()) events.push_back(std::move(event));
    }
    for (StepEvent& event : requests_->take_events()) events.push_back(std::move(event));
    EXPECT_TRUE(requests_->idle());
    return events;
  }

  std::optional<Requests> requests_;
  std::map<RequestId, uint32_t> seeds_;
  std::deque<std::pair<StepInput, std::vector<SampledRow>>> under_way_;
  double now_ = 0;
};

TEST_F(Actions, ATimeoutEndsARequestAndItsEventOutlivesTheFailureOfThatStep) {
  const RequestId lasting = submit(1, 30, {.max_new_tokens = 5});
  const RequestId late = submit(2, 30, {.max_new_tokens = 50, .timeout_s = 2.5});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(launch());
    land();
    now_ += 1;
  }
  requests_->take_events();
  ASSERT_TRUE(launch());
  fail(0);
  const auto told = requests_->take_events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].request, late);
  ASSERT_TRUE(told[0].report);
  EXPECT_EQ(told[0].report->end_reason, EndReason::kDeadline);
  for (const StepEvent& event : finish()) EXPECT_EQ(event.request, lasting);
}

TEST_F(Actions, SaltsKeepPrefixesApart) {
  const auto cached_tokens = [&](const std::string& salt) {
    submit(1, 40, {.max_new_tokens = 1, .salt = salt});
    return finish().back().report->cache.cached_tokens;
  };
  EXPECT_EQ(cached_tokens("a"), 0u);
  EXPECT_EQ(cached_tokens("b"), 0u);
  EXPECT_EQ(cached_tokens("a"), 39u);
}

TEST_F(Actions, AStepWhoseRequestEndedDuringItsTransfersIsNone) {
  submit(1, 20, {.max_new_tokens = 4});
  finish();
  // It begins with the head of a block that is copied.
  const RequestId again = submit(1, 20, {.max_new_tokens = 4});
  const RequestId other = submit(2, 20, {.max_new_tokens = 4});
  const StepPlan plan = this->plan().plan;
  ASSERT_FALSE(plan.transfers.empty());
  ASSERT_TRUE(requests_->cancel(again, now_));
  EXPECT_FALSE(requests_->finish_transfers(plan, {}));
  EXPECT_TRUE(requests_->check_integrity().ok());
  const std::vector<StepEvent> events = finish();
  ASSERT_FALSE(events.empty());
  for (const StepEvent& event : events) EXPECT_EQ(event.request, other);
  EXPECT_TRUE(events.back().finished);
}

TEST_F(Actions, ATokenThatEndsARequestIsItsLastAndWhatRanAheadIsDiscarded) {
  const TokenId third = sampled_token(1, 2);
  const RequestId id = submit(1, 10, {.max_new_tokens = 50, .end_tokens = {kEnd, third}});
  std::vector<TokenId> got;
  ASSERT_TRUE(launch());
  while (launch()) {  // always one more under way
    land();
    for (const StepEvent& event : requests_->take_events()) got.push_back(*event.token);
    if (!requests_->scheduler().idle()) continue;
    EXPECT_EQ(got.back(), third);
    EXPECT_EQ(got.size(), 3u);
    land();
    break;
  }
  EXPECT_TRUE(requests_->take_events().empty());
  EXPECT_EQ(requests_->scheduler().telemetry().discarded_tokens, 1u);
  EXPECT_FALSE(requests_->cancel(id, now_)) << "it was told";
}

TEST_F(Actions, AFullWindowShiftsWithTheFirstTokensKept) {
  open({.token_budget = 40,
        .chunk_tokens = 24,
        .max_running = 1,
        .window_tokens = 32,
        .stop_at_window = false},
       8, OverflowPolicy::kShift);
  const RequestId id = submit(3, 20, {.max_new_tokens = 60});
  std::vector<TokenId> got;
  uint32_t shifts = 0;
  for (const StepEvent& event : finish()) {
    if (event.token) got.push_back(*event.token);
    if (event.report) shifts = event.report->shifts;
  }
  ASSERT_EQ(got.size(), 60u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], sampled_token(3, i));
  EXPECT_GE(shifts, 3u);
  EXPECT_FALSE(requests_->cancel(id, now_));
}

TEST_F(Actions, PenaltiesCountWhatIsLeftOfThePromptAfterAShift) {
  open({.token_budget = 40,
        .chunk_tokens = 24,
        .max_running = 1,
        .window_tokens = 32,
        .stop_at_window = false},
       8, OverflowPolicy::kShift);
  const RequestId id = submit(3, 20, {.max_new_tokens = 14});
  EXPECT_EQ(requests_->n_prompt(id), 20u);
  while (requests_->tokens(id).size() <= 32 && launch() && requests_->n_prompt(id) == 20) land();
  // 33 tokens: the first is kept, of the other 32 the older half goes, all of it prompt.
  EXPECT_EQ(requests_->n_prompt(id), 4u);
  EXPECT_EQ(requests_->tokens(id).size(), 17u);
}

TEST_F(Actions, ARequestThatGoesOnCountsItsOutputFromWhereItWas) {
  const RequestId id = submit(3, 20, {.max_new_tokens = 4, .first_output_index = 7});
  EXPECT_EQ(requests_->next_output_index(id), 7u);
  std::vector<TokenId> got;
  for (const StepEvent& event : finish()) {
    if (event.token) got.push_back(*event.token);
  }
  ASSERT_EQ(got.size(), 4u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], sampled_token(3, 7 + i));
  const RequestId output = submit(4, 20, {.max_new_tokens = 4, .n_output_in_prompt = 6});
  EXPECT_EQ(requests_->n_prompt(output), 14u);
  requests_->cancel(output, now_);
  const auto more =
      requests_->submit({.prompt = {1, 2}, .max_new_tokens = 1, .n_output_in_prompt = 3}, now_);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Actions, ARateIsTheSchedulersToKeep) {
  const RequestId id = submit(1, 10, {.max_new_tokens = 3, .max_tokens_per_s = 2});
  ASSERT_TRUE(launch());
  land();
  EXPECT_FALSE(launch());
  EXPECT_EQ(requests_->scheduler().next_due_s(), 0.5);
  now_ = 0.5;
  EXPECT_TRUE(launch());
  land();
  EXPECT_TRUE(requests_->cancel(id, now_));
}

TEST_F(Actions, SentencesNeedATokenizer) {
  const auto id = requests_->submit(
      {.prompt = {1}, .max_new_tokens = 1, .delivery = GenerationRequest::Delivery::kSentence},
      now_);
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Actions, StopStringsNeedATokenizerAndAreChecked) {
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"x"}, std::vector<std::string>{""}}) {
    const auto id =
        requests_->submit({.prompt = {1}, .max_new_tokens = 1, .stop_strings = stops}, 0);
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(requests_->idle());
}

/// Tokens are bytes of what is to be said.
class Texts : public Actions {
 protected:
  using Strings = std::vector<std::string>;

  /// Sampled tokens say `text`, as far as the request gets; what events gave, one after the other.
  Strings told(const std::string& text, GenerationRequest request) {
    request.prompt = {SyntheticVocabulary::kFirstByte};
    request.max_new_tokens = static_cast<uint32_t>(text.size());
    request.tokenizer = tokenizer_;
    const Result<RequestId> id = requests_->submit(std::move(request), now_);
    EXPECT_TRUE(id.ok()) << id.error().message;
    id_ = *id;
    Strings given;
    for (size_t i = 0; i < text.size() && !requests_->idle(); ++i) {
      const StepInput step = this->plan();
      SampledRow row{SyntheticVocabulary::kFirstByte + static_cast<unsigned char>(text[i])};
      requests_->commit(step, {&row, 1}, now_, 0.01);
      for (const StepEvent& event : requests_->take_events()) {
        given.push_back(event.text);
        if (event.report) report_ = event.report;
      }
    }
    return given;
  }

  using SyntheticVocabulary = test::SyntheticVocabulary;
  SyntheticVocabulary synthetic_;
  std::shared_ptr<const Tokenizer> tokenizer_ =
      std::make_shared<const Tokenizer>(synthetic_.tokenizer());
  RequestId id_ = 0;
  std::optional<RequestReport> report_;
};

TEST_F(Texts, ComeWithTheTokensThatMakeThemFinal) {
  EXPECT_EQ(told("a\xc3\xa4"
                 "b\xc3",
                 {}),
            (Strings{"a", "", "\xc3\xa4", "b", "\xef\xbf\xbd"}));
  ASSERT_TRUE(report_);
  EXPECT_EQ(report_->end_reason, EndReason::kLength);
}

TEST_F(Texts, ComeByWholeSentencesWhereThatIsAsked) {
  constexpr auto kSentence = GenerationRequest::Delivery::kSentence;
  EXPECT_EQ(told("Hi. Go! a", {.delivery = kSentence}),
            (Strings{"", "", "", "Hi.", "", "", "", " Go!", " a"}));
  EXPECT_EQ(told("Hi. Go END", {.stop_strings = {"END"}, .delivery = kSentence}),
            (Strings{"", "", "", "Hi.", "", "", "", "", "", " Go "}));
}

TEST_F(Texts, GoOnWhereTheOutputInThePromptEnded) {
  const auto byte = [](char c) {
    return SyntheticVocabulary::kFirstByte + static_cast<unsigned char>(c);
  };
  const auto id = requests_->submit({.prompt = {byte('x'), byte('.'), byte('e'), byte('\xc3')},
                                     .max_new_tokens = 3,
                                     .tokenizer = tokenizer_,
                                     .stop_strings = {".en"},
                                     .n_output_in_prompt = 3},
                                    now_);
  ASSERT_TRUE(id.ok());
  Strings given;
  for (const char c : {'\xa4', '.', 'e'}) {
    const StepInput step = this->plan();
    SampledRow row{byte(c)};
    requests_->commit(step, {&row, 1}, now_, 0.01);
    for (const StepEvent& event : requests_->take_events()) given.push_back(event.text);
  }
  EXPECT_EQ(given, (Strings{".e\xc3\xa4", "", ".e"})) << "what was held back comes";
}

TEST_F(Texts, EndBeforeAStopString) {
  EXPECT_EQ(told("one.end.two", {.stop_strings = {".end", "two"}}),
            (Strings{"o", "n", "e", "", "", "", ""}));
  ASSERT_TRUE(report_);
  EXPECT_EQ(report_->end_reason, EndReason::kStopString);
  EXPECT_EQ(report_->generated_tokens, 7u);
}

TEST_F(Texts, EndWithinADraftWhereTheyWouldWithout) {
  const std::string said = "one.end.two";
  for (const size_t n_right : {1u, 3u, 5u, 6u, 9u}) {
    // Guessed are the next bytes that are said, the last one of them wrongly.
    std::string text;
    const auto byte = [](char c) {
      return TokenId{SyntheticVocabulary::kFirstByte + static_cast<unsigned char>(c)};
    };
    const auto guess = [&](std::span<const TokenId> tokens, uint32_t most) {
      std::vector<TokenId> draft;
      for (size_t i = tokens.size() - 1; i < said.size() && draft.size() < most; ++i) {
        draft.push_back(byte(draft.size() < n_right ? said[i] : '!'));
      }
      return draft;
    };
    const auto id = requests_->submit({.prompt = {SyntheticVocabulary::kFirstByte},
                                       .max_new_tokens = 50,
                                       .tokenizer = tokenizer_,
                                       .stop_strings = {".end", "two"},
                                       .drafter = guess},
                                      now_);
    ASSERT_TRUE(id.ok());
    std::optional<RequestReport> report;
    size_t n_steps = 0;
    for (; !requests_->idle(); ++n_steps) {
      const StepInput step = this->plan();
      ASSERT_EQ(step.plan.chunks.size(), 1u);
      const StepChunk& chunk = step.plan.chunks[0];
      std::vector<SampledRow> rows;
      for (uint32_t i = chunk.n_tokens - chunk.n_samples; i < chunk.n_tokens; ++i) {
        const size_t at = chunk.first_position + i;
        rows.push_back({byte(at < said.size() ? said[at] : '?')});
      }
      requests_->commit(step, rows, now_, 0.01);
      ASSERT_TRUE(requests_->check_integrity().ok());
      for (const StepEvent& event : requests_->take_events()) {
        text += event.text;
        if (event.report) report = event.report;
      }
    }
    EXPECT_EQ(text, "one");
    ASSERT_TRUE(report);
    EXPECT_EQ(report->end_reason, EndReason::kStopString);
    EXPECT_EQ(report->generated_tokens, 7u);
    EXPECT_LT(n_steps, 7u);
    EXPECT_GT(report->drafts.accepted, 0u);
  }
}

TEST_F(Texts, WhatMightHaveBecomeAStopStringIsTextAtTheEnd) {
  EXPECT_EQ(told("one.en", {.stop_strings = {".end"}}), (Strings{"o", "n", "e", "", "", ".en"}));
}

TEST_F(Texts, WhatWasHeldBackOfACancelledRequestIsInItsReport) {
  EXPECT_EQ(told("one", {.stop_strings = {"never"}}), (Strings{"o", "", "ne"}));
  GenerationRequest more{.prompt = {SyntheticVocabulary::kFirstByte},
                         .max_new_tokens = 9,
                         .tokenizer = tokenizer_,
                         .stop_strings = {"xyz"}};
  const Result<RequestId> id = requests_->submit(std::move(more), now_);
  ASSERT_TRUE(id.ok());
  for (const char c : {'a', 'x', 'y'}) {
    const StepInput step = this->plan();
    SampledRow row{SyntheticVocabulary::kFirstByte + static_cast<unsigned char>(c)};
    requests_->commit(step, {&row, 1}, now_, 0.01);
  }
  const auto report = requests_->cancel(*id, now_);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->end_reason, EndReason::kCancelled);
  EXPECT_EQ(report->held_text, "axy") << "no event brought it";
  EXPECT_TRUE(requests_->take_events().empty());
}

/// What a client may expect of a request, whatever happens to it.
struct Expected {
  uint32_t seed = 0;
  uint32_t max_new_tokens = 0;
  bool ends_at_token = false;
  double deadline_s = INFINITY;
  uint32_t n_told = 0;
};

class RandomActions : public Actions, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void check(const StepEvent& event) {
    const auto it = expected_.find(event.request);
    ASSERT_NE(it, expected_.end()) << "an event of a request that has ended";
    Expected& request = it->second;
    if (event.token) {
      EXPECT_EQ(*event.token, sampled_token(request.seed, request.n_told))
          << "token " << request.n_told << " of request " << event.request;
      ++request.n_told;
    }
    EXPECT_EQ(event.finished, event.report.has_value());
    if (!event.finished) return;
    const bool at_end = request.ends_at_token && event.token == kEnd;
    switch (event.report->end_reason) {
      case EndReason::kStop:
        EXPECT_TRUE(at_end);
        break;
      case EndReason::kLength:
        EXPECT_FALSE(at_end);
        EXPECT_EQ(request.n_told, request.max_new_tokens);
        break;
      case EndReason::kDeadline:
        EXPECT_LT(request.deadline_s, now_);
        break;
      default:
        ADD_FAILURE() << end_reason_name(event.report->end_reason);
    }
    EXPECT_EQ(event.report->generated_tokens, request.n_told);
    expected_.erase(it);
  }
  std::map<RequestId, Expected> expected_;
};

TEST_P(RandomActions, LoseNothingAndTellNothingTwice) {
  std::mt19937 random(GetParam());
  const auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
  std::mt19937 guesses(GetParam() + 1000);
  uint32_t next_seed = 1;
  uint64_t n_accepted = 0;
  uint64_t n_shared = 0;  // rows
  std::vector<TokenId> last_prompt;
  RequestId last_id = 0;
  int n_lost = 0;
  for (int i = 0; i < 4000; ++i) {
    now_ += 1;
    if (expected_.size() < 6 && chance(15)) {
      Expected request{.seed = next_seed++,
                       .max_new_tokens = 1 + static_cast<uint32_t>(random() % 40),
                       .ends_at_token = chance(50)};
      GenerationRequest asked{.max_new_tokens = request.max_new_tokens};
      if (request.ends_at_token) asked.end_tokens = {kEnd};
      if (chance(20)) {
        asked.timeout_s = static_cast<double>(random() % 60);
        request.deadline_s = now_ + asked.timeout_s;
      }
      asked.priority = static_cast<int32_t>(random() % 3);
      asked.service_class = static_cast<ServiceClass>(random() % kServiceClasses);
      // Some begin alike, so that they share what is cached.
      uint32_t n_prompt = 1 + static_cast<uint32_t>(random() % 80);
      asked.prompt = prompt(n_prompt, request.seed % 3);
      if (!last_prompt.empty() && guesses() % 3 == 0) {
        asked.prompt = last_prompt;
        asked.choice_of = last_id;
        n_prompt = static_cast<uint32_t>(last_prompt.size());
      }
      last_prompt = asked.prompt;
      if (chance(40)) {
        asked.drafter = [&guesses, n_prompt, seed = request.seed](std::span<const TokenId> tokens,
                                                                  uint32_t most) {
          std::vector<TokenId> draft;
          while (draft.size() < most && guesses() % 5 != 0) {
            const TokenId right = sampled_token(seed, tokens.size() - n_prompt + draft.size());
            draft.push_back(guesses() % 5 != 0 ? right : (right + 1) % kVocab);
          }
          return draft;
        };
      }
      const Result<RequestId> id = requests_->submit(std::move(asked), now_);
      ASSERT_TRUE(id.ok()) << id.error().message;
      last_id = *id;
      seeds_[*id] = request.seed;
      expected_[*id] = request;
    } else if (!expected_.empty() && chance(3)) {
      const auto it = std::next(expected_.begin(), static_cast<long>(random() % expected_.size()));
      const auto report = requests_->cancel(it->first, now_);
      ASSERT_TRUE(report);
      expected_.erase(it);
    } else if (!under_way_.empty() && chance(5)) {
      fail(random() % under_way_.size());
    } else if (chance(1)) {
      requests_->lose_device();
      under_way_.clear();
      ++n_lost;
    } else if (under_way_.size() < Scheduler::kMaxOutstanding && chance(60)) {
      launch();
    } else if (!under_way_.empty()) {
      const auto& chunks = under_way_.front().first.plan.chunks;
      n_shared += static_cast<uint64_t>(std::ranges::count(chunks, true, &StepChunk::shares_row));
      land();
    }
    if (chance(70)) {
      for (const StepEvent& event : requests_->take_events()) {
        if (event.report) n_accepted += event.report->drafts.accepted;
        check(event);
      }
    }
    const Status whole = requests_->check_integrity();
    ASSERT_TRUE(whole.ok()) << whole.error().message;
  }
  while (!under_way_.empty()) land();
  for (const StepEvent& event : finish()) check(event);
  EXPECT_TRUE(expected_.empty()) << expected_.size() << " requests never ended";
  EXPECT_GT(next_seed, 100u);
  EXPECT_GT(n_lost, 5);
  EXPECT_GT(n_accepted, 50u);
  EXPECT_GT(n_shared, 2u);
  EXPECT_GT(requests_->scheduler().telemetry().preemptions, 10u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomActions, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace pumice
