// Requests whose output is held to a constraint say what sampling under its masks says, one token
// at a time, and nothing that happens to them or beside them changes that.
#include <algorithm>
#include <map>
#include <string>

#include "constraints/constraint_compiler.hpp"
#include "models/vocabulary_loader.hpp"
#include "sampling/reference_sampler.hpp"
#include "tests/engine/engine_fixture.hpp"

namespace pumice {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::string_view kSchema = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
    "kind": {"enum": ["dog", "cat", "bird"]}}, "required": ["name", "age", "kind"], "additionalProperties": false})";
constexpr std::string_view kWords = "( [a-z]{1,8}){3,12}\\.";
constexpr std::string_view kGbnf = "root ::= item+ \"end\"\nitem ::= [A-Z] [a-z]{2,5} \"; \"";

class Constrained : public test::EngineTest {
 protected:
  struct Said {
    Tokens tokens;
    std::string text;
    RequestReport report;
  };

  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped()) return;
    const auto path = test::source_path("models/pumice-stories.gguf");
    model_ = load(path);
    ASSERT_NE(model_, nullptr);
    tokenizer_ =
        std::make_shared<const Tokenizer>(load_tokenizer(GgufFile::open(path).value()).value());
    compiler_.emplace(tokenizer_);
  }
  void TearDown() override { model_.reset(); }

  std::shared_ptr<const Constraint> constraint(ConstraintKind kind, std::string_view text) {
    auto compiled = compiler_->compile(kind, text);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    return compiled.value();
  }
  std::shared_ptr<const Constraint> regex(std::string_view text) {
    return constraint(ConstraintKind::kRegex, text);
  }

  std::unique_ptr<Engine> engine(EngineOptions options = {}) const {
    options.kv_type = KvType::kF32;
    if (options.context_tokens == 0) options.context_tokens = 256;
    options.invariant = true;
    return make_engine(model_, options);
  }
  Tokens prompt(std::string_view text) const { return tokenizer_->encode(text, {}).value(); }
  GenerationRequest request(std::string_view text, std::shared_ptr<const Constraint> constraint,
                            SamplerOptions sampling = {}, uint32_t n = 100) const {
    return {.prompt = prompt(text),
            .max_new_tokens = n,
            .sampling = std::move(sampling),
            .tokenizer = tokenizer_,
            .constraint = std::move(constraint)};
  }
  /// One of each kind, greedy and not, and one without a constraint.
  std::vector<GenerationRequest> batch() {
    const SamplerOptions hot{.temperature = 1.0f, .top_k = 40, .seed = 5};
    const SamplerOptions penalised{.temperature = 0.9f,
                                   .top_p = 0.95f,
                                   .repeat_penalty = 1.2f,
                                   .frequency_penalty = 0.1f,
                                   .seed = 9};
    const auto schema = constraint(ConstraintKind::kJsonSchema, kSchema);
    return {request("Once upon a time", schema), request("The little dog", schema, hot),
            request("Once upon a time there was", regex(kWords), penalised),
            request("Once upon", constraint(ConstraintKind::kGbnf, kGbnf), hot),
            request("Once upon a time there was a", nullptr, {}, 60)};
  }

  static void keep(const std::vector<StepEvent>& events, std::map<RequestId, Said>& said) {
    for (const StepEvent& event : events) {
      Said& one = said[event.request];
      if (event.token) one.tokens.push_back(*event.token);
      one.text += event.text;
      if (event.report) one.report = *event.report;
    }
  }
  /// All at once, what happens `between` steps included.
  static std::vector<Said> say(Engine& engine, const std::vector<GenerationRequest>& requests,
                               const std::function<void(int n_steps)>& between = {}) {
    std::vector<RequestId> ids;
    for (const GenerationRequest& request : requests) {
      const auto id = engine.submit(request);
      EXPECT_TRUE(id.ok()) << id.error().message;
      ids.push_back(id.value());
    }
    std::map<RequestId, Said> said;
    for (int n_steps = 0; !engine.idle(); ++n_steps) {
      const std::vector<StepEvent> events = step(engine);
      if (events.empty()) break;
      keep(events, said);
      if (between) between(n_steps);
    }
    std::vector<Said> result;
    for (const RequestId id : ids) result.push_back(said[id]);
    return result;
  }
  Said say(const GenerationRequest& request) const { return say(*engine(), {request}).front(); }
  /// Each alone.
  std::vector<Tokens> alone(const std::vector<GenerationRequest>& requests) const {
    std::vector<Tokens> all;
    for (const GenerationRequest& one : requests) all.push_back(say(one).tokens);
    return all;
  }
  static void expect_tokens(const std::vector<Said>& said, const std::vector<Tokens>& expected) {
    ASSERT_EQ(said.size(), expected.size());
    for (size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i].tokens, expected[i]) << i;
  }
  /// A text of the constraint, complete.
  void expect_complete(const GenerationRequest& request, const Said& said) const {
    Matcher matcher(request.constraint);
    for (const TokenId token : said.tokens) {
      ASSERT_TRUE(matcher.accept(token).ok()) << said.text;
    }
    EXPECT_TRUE(matcher.can_end().value()) << said.text;
  }

  std::shared_ptr<const Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ConstraintCompiler> compiler_;
};

TEST_F(Constrained, TokensAreThoseThatTheReferenceChoosesUnderEachMask) {
  for (const GenerationRequest& request : batch()) {
    if (request.constraint == nullptr) continue;
    const uint32_t n_vocab = model_->program.n_vocab;
    const auto reader = engine({.prompt_logits = true});
    ReferenceSampler sampler = ReferenceSampler::create(request.sampling, n_vocab).value();
    Matcher matcher(request.constraint);
    Tokens tokens = request.prompt;
    Tokens expected;
    std::vector<uint32_t> counts(n_vocab);
    for (const TokenId token : tokens) count_prompt_token(counts, token);
    while (expected.size() < request.max_new_tokens && !matcher.is_complete().value()) {
      TokenMask mask(matcher.constraint().vocabulary().mask_words());
      ASSERT_TRUE(matcher.mask(mask).ok());
      const std::vector<float> all = logits(*reader, tokens);
      const bool counted = has_penalties(request.sampling);
      const TokenId next = sampler.sample(
          {.logits = std::span(all).last(n_vocab),
           .counts = counted ? std::span<const uint32_t>(counts) : std::span<const uint32_t>(),
           .mask = mask,
           .token_index = expected.size()});
      ASSERT_TRUE(matcher.accept(next).ok());
      count_output_token(counts, next);
      expected.push_back(next);
      tokens.push_back(next);
    }
    const Said said = say(request);
    EXPECT_EQ(said.tokens, expected);
    expect_complete(request, said);
  }
}

TEST_F(Constrained, EndsWhereNothingMayFollowAndNotBefore) {
  const Said word = say(request("Once upon a time", regex("yes|no")));
  EXPECT_TRUE(word.text == "yes" || word.text == "no") << word.text;
  EXPECT_EQ(word.report.end_reason, EndReason::kComplete);
  EXPECT_EQ(end_reason_name(word.report.end_reason), "stop");
  // The end is the model's choice where the text may end, and only there.
  const Said at_least = say(request("The end.", regex("[a-z ]{30,40}"), {}, 80));
  EXPECT_GE(at_least.text.size(), 30u);
  EXPECT_LE(at_least.text.size(), 40u);
  // Nothing at all: only the end may come.
  const Said nothing = say(request("Once upon a time", regex("")));
  EXPECT_EQ(nothing.text, "");
  EXPECT_EQ(nothing.report.end_reason, EndReason::kStop);
  // --ignore-eos does not lead out of a text.
  GenerationRequest ignoring = request("Once upon a time", regex("[a-c]{1,4}"));
  ignoring.ignore_end = true;
  const Said few = say(ignoring);
  EXPECT_LE(few.text.size(), 4u);
  EXPECT_EQ(few.report.end_reason, EndReason::kComplete);
  // A request's own end token comes where the text may end.
  GenerationRequest own = request("Once upon a time", regex("[a-z]{5}[a-z]*"));
  own.sampling.logit_bias = {{1, 1e4f}, {2, -1e4f}};
  own.end_tokens = {1};
  const Said ended = say(own);
  EXPECT_EQ(ended.text.size(), 5u) << ended.text;
  EXPECT_EQ(ended.report.end_reason, EndReason::kStop);
}

TEST_F(Constrained, StopStringsEndATextBeforeItsConstraintDoes) {
  GenerationRequest stopped = request("Once upon a time", regex("[a-z]{3}=[0-9]{9}"));
  stopped.stop_strings = {"="};
  const Said said = say(stopped);
  EXPECT_EQ(said.text.size(), 3u) << said.text;
  EXPECT_EQ(said.report.end_reason, EndReason::kStopString);
}

TEST_F(Constrained, BatchesPreemptionAndHitsChangeNothing) {
  const auto requests = batch();
  const std::vector<Tokens> expected = alone(requests);
  const auto together = engine({.n_sequences = 5});
  expect_tokens(say(*together, requests), expected);
  // Again, all prompts and more being cached.
  expect_tokens(say(*together, requests), expected);
  // Blocks for about two of them, and prompts in pieces.
  const auto narrow = engine({.context_tokens = 112,
                              .n_sequences = 5,
                              .kv_blocks = 7,
                              .token_budget = 24,
                              .chunk_tokens = 16});
  const std::vector<Said> said = say(*narrow, requests);
  expect_tokens(said, expected);
  uint32_t n_preempted = 0;
  for (const Said& one : said) n_preempted += one.report.preemptions;
  EXPECT_GT(n_preempted, 0u);
}

TEST_F(Constrained, PollsOfAnyBudgetProfilesAndSettlingChangeNothing) {
  const auto requests = batch();
  const std::vector<Tokens> expected = alone(requests);
  for (const double budget_s : {1e-9, 1e-3, Submitter::kNoBudget}) {
    const auto polled = engine({.n_sequences = 5});
    std::vector<RequestId> ids;
    for (const GenerationRequest& request : requests) ids.push_back(*polled->submit(request));
    std::map<RequestId, Said> said;
    while (!polled->idle()) {
      const auto events = polled->poll(budget_s);
      ASSERT_TRUE(events.ok()) << events.error().message;
      keep(*events, said);
      ASSERT_TRUE(polled->wait(1).ok());
    }
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(said[ids[i]].tokens, expected[i]) << i;
  }
  if (pipelines_->device()->plan().timestamp_valid_bits > 0) {
    const auto profiled = engine({.n_sequences = 5, .profile = true});
    expect_tokens(say(*profiled, requests), expected);
  }
  // Saving waits for all that is queued, sampling that waits for masks included.
  const auto settled = engine({.n_sequences = 5});
  expect_tokens(say(*settled, requests,
                    [&](int n_steps) {
                      if (n_steps % 3 != 0) return;
                      EXPECT_TRUE(settled->save({.tokens = prompt("Once"), .n_prompt = 1}).ok());
                    }),
                expected);
}

TEST_F(Constrained, LostDevicesChangeNothing) {
  const auto requests = batch();
  const std::vector<Tokens> expected = alone(requests);
  const auto losing = engine({.n_sequences = 5});
  expect_tokens(say(*losing, requests,
                    [&](int n_steps) {
                      if (n_steps % 7 == 3) {
                        EXPECT_TRUE(losing->rebuild(pipelines_, model_).ok());
                      }
                    }),
                expected);
}

TEST_F(Constrained, FailedStepsChangeNothing) {
  const auto requests = batch();
  const std::vector<Tokens> expected = alone(requests);
  const auto failing = engine({.n_sequences = 5});
  int n_stages = 0;
  failing->set_hooks({.at_stage = [&](StepStage) -> Status {
    if (++n_stages % 5 == 0) return make_error(ErrorCode::kInternal, "as the test wants");
    return {};
  }});
  std::vector<RequestId> ids;
  for (const GenerationRequest& request : requests) ids.push_back(*failing->submit(request));
  std::map<RequestId, Said> said;
  while (!failing->idle()) {
    const auto events = failing->step();
    if (events.ok()) keep(*events, said);
    ASSERT_TRUE(failing->check_integrity().ok());
  }
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(said[ids[i]].tokens, expected[i]) << i;
}

TEST_F(Constrained, TextsGoOnWhereASavedOneEnded) {
  for (const GenerationRequest& whole : batch()) {
    const Tokens expected = say(whole).tokens;
    const size_t n_first = expected.size() / 2;
    const auto other = engine();
    GenerationRequest rest = whole;
    rest.prompt.insert(rest.prompt.end(), expected.begin(),
                       expected.begin() + static_cast<ptrdiff_t>(n_first));
    rest.n_output_in_prompt = static_cast<uint32_t>(n_first);
    rest.first_output_index = n_first;
    rest.max_new_tokens -= static_cast<uint32_t>(n_first);
    const Tokens said = say(*other, {rest}).front().tokens;
    EXPECT_EQ(said, Tokens(expected.begin() + static_cast<ptrdiff_t>(n_first), expected.end()));
  }
  GenerationRequest foreign = request("Once upon a time", regex("[0-9]+"));
  foreign.n_output_in_prompt = 2;
  EXPECT_EQ(engine()->submit(foreign).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Constrained, WindowsThatMoveChangeTheModelsTokensAndNotTheConstraint) {
  const auto shifting = engine({.context_tokens = 64, .overflow = OverflowPolicy::kShift});
  const GenerationRequest asked = request("Once upon a time", regex("([a-z]{1,6} ){70}end"),
                                          {.temperature = 1, .seed = 3}, 400);
  const Said said = say(*shifting, {asked}).front();
  EXPECT_GT(said.report.shifts, 0u);
  EXPECT_EQ(said.report.end_reason, EndReason::kComplete);
  expect_complete(asked, said);
}

TEST_F(Constrained, DraftsRightWrongAndRefusedChangeNothing) {
  for (const GenerationRequest& whole : batch()) {
    const Tokens expected = say(whole).tokens;
    for (const size_t wrong : {99u, 0u, 2u}) {
      GenerationRequest drafting = whole;
      drafting.drafter = [&](std::span<const TokenId> tokens, uint32_t most) {
        Tokens guess;
        const size_t done = tokens.size() - whole.prompt.size();
        for (size_t i = 0; i < most && done + i < expected.size(); ++i) {
          guess.push_back(i == wrong ? (expected[done + i] + 1) % 1024 : expected[done + i]);
        }
        return guess;
      };
      const auto drafts = engine({.spare_logit_rows = 4});
      const Said said = say(*drafts, {drafting}).front();
      EXPECT_EQ(said.tokens, expected) << "wrong at " << wrong;
    }
  }
}

TEST_F(Constrained, WhatIsForcedTakesFewerStepsAndIsTheSame) {
  const auto requests = batch();
  const std::vector<Tokens> expected = alone(requests);
  const auto spare = engine({.n_sequences = 5, .spare_logit_rows = 7});
  uint32_t n_accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const size_t n_before = spare->trace().size();
    const Said said = say(*spare, {requests[i]}).front();
    EXPECT_EQ(said.tokens, expected[i]) << i;
    n_accepted += said.report.drafts.accepted;
    EXPECT_LE(spare->trace().size() - n_before,
              expected[i].size() + 2 - said.report.drafts.accepted);
  }
  EXPECT_GT(n_accepted, 5u);
  expect_tokens(say(*spare, requests), expected);
}

TEST_F(Constrained, ChoicesOfOnePromptHaveMasksOfTheirOwn) {
  std::vector<GenerationRequest> choices;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    choices.push_back(request("Once upon a time there was",
                              constraint(ConstraintKind::kJsonSchema, kSchema),
                              {.temperature = 1.2f, .seed = seed}));
  }
  choices.push_back(request("Once upon a time there was", regex(kWords), {}));
  choices.push_back(request("Once upon a time there was", nullptr, {}, 30));
  const std::vector<Tokens> expected = alone(choices);
  const auto together = engine({.n_sequences = 5});
  const RequestId first = *together->submit(choices[0]);
  std::vector<RequestId> ids{first};
  for (size_t i = 1; i < choices.size(); ++i) {
    GenerationRequest one = choices[i];
    one.choice_of = first;
    ids.push_back(*together->submit(one));
  }
  std::map<RequestId, Said> said;
  while (!together->idle()) keep(step(*together), said);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(said[ids[i]].tokens, expected[i]) << i;
}

TEST_F(Constrained, OneThatFailsSaysWhyAndOthersGoOn) {
  const GenerationRequest plain = request("Once upon a time there was a", nullptr, {}, 60);
  const Tokens expected = say(plain).tokens;
  // Fuel for the beginning, and at some place not for more.
  const auto trie = VocabularyTrie::create(*tokenizer_).value();
  const auto both = engine({.n_sequences = 2});
  int n_failed = 0;
  for (uint64_t fuel = 50; fuel < 10000; fuel = fuel * 3 / 2) {
    Grammar grammar = compile_grammar(ConstraintKind::kRegex, "([a-z ]*e[a-z ]{9})*!").value();
    const auto poor = Constraint::create(std::move(grammar), trie, {.fuel = fuel});
    if (!poor.ok()) continue;
    const std::vector<Said> said = say(*both, {request("Once upon", *poor), plain});
    EXPECT_EQ(said[1].tokens, expected);
    if (said[0].report.end_reason != EndReason::kError) continue;
    ++n_failed;
    EXPECT_EQ(said[0].report.failure.error().code, ErrorCode::kDoesNotFit);
  }
  EXPECT_GT(n_failed, 0);
  EXPECT_EQ(engine({.greedy_only = true})->submit(request("Once", regex("a"))).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pumice
