// Law 1: however a request's work is cut, shared, moved or interrupted, it is told the logits and
// tokens of one monolithic run. What was not computed is counted from the rows that were
// dispatched.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/arithmetic.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice::test {

/// Tokens of a run and the logits of every position it computed.
struct Told {
  std::vector<TokenId> tokens;
  std::map<uint32_t, std::vector<float>> logits;
  RequestReport report;
  uint64_t rows = 0;  ///< dispatched
};

/// Runs of one prompt on one model.
class LawTest : public EngineTest {
 protected:
  /// What a suite runs, and how it is computed.
  struct Law {
    Arithmetic arithmetic = kF32Arithmetic;
    bool invariant = false;
    KvTypes kv_type = KvType::kF32;
    uint32_t prompt_tokens = 0;
    uint32_t new_tokens = 0;
    uint32_t context_tokens = 0;
  };

  /// The whole run, with which all others are compared. Skips where the arithmetic is not possible.
  void set_up(std::shared_ptr<const Model> model, const Law& law) {
    model_ = std::move(model);
    law_ = law;
    if (model_ == nullptr) return;
    const std::string obstacle = arithmetic_obstacle(pipelines_, model_, law_.arithmetic);
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
    prompt_ = tokens(law_.prompt_tokens, 1);
    whole_ = run(*engine({.token_budget = law_.prompt_tokens, .chunk_tokens = law_.prompt_tokens}),
                 prompt_);
    ASSERT_EQ(whole_.rows, prompt_.size() + law_.new_tokens - 1);
  }
  void TearDown() override { model_.reset(); }

  std::vector<TokenId> tokens(size_t n, uint32_t seed) const {
    return random_tokens(*model_, n, seed);
  }

  std::unique_ptr<Engine> engine(EngineOptions options) const {
    options.kv_type = law_.kv_type;
    options.context_tokens = law_.context_tokens;
    options.invariant = law_.invariant;
    options.math = law_.arithmetic.math;
    options.prompt_logits = true;
    options.greedy_only = true;
    return make_engine(model_, options);
  }

  /// `told` gets the logits of what is computed. `salt`: prefixes are found under the same one
  /// only.
  static Result<RequestId> submit(Engine& engine, const std::vector<TokenId>& prompt, Told& told,
                                  uint32_t max_new, const std::string& salt = {}) {
    const auto keep = [&told](uint32_t position, std::span<const float> row) {
      told.logits[position].assign(row.begin(), row.end());
    };
    return engine.submit({.prompt = prompt,
                          .max_new_tokens = max_new,
                          .salt = salt,
                          .on_logits = keep,
                          .logits = GenerationRequest::Logits::kComputed});
  }
  Result<RequestId> submit(Engine& engine, const std::vector<TokenId>& prompt, Told& told) const {
    return submit(engine, prompt, told, law_.new_tokens);
  }

  static void keep(const std::vector<StepEvent>& events, const std::map<RequestId, Told*>& runs) {
    for (const StepEvent& event : events) {
      Told& told = *runs.at(event.request);
      if (event.token) told.tokens.push_back(*event.token);
      if (event.report) told.report = *event.report;
    }
  }

  /// With everything that steps need compiled and allocated: nothing more is.
  static void finish(Engine& engine, const std::map<RequestId, Told*>& runs) {
    const uint64_t allocations = engine.allocations_after_prewarm();
    const uint64_t pipelines = engine.pipelines_compiled_after_prewarm();
    while (!engine.idle()) {
      const std::vector<StepEvent> events = step(engine);
      if (events.empty()) break;
      keep(events, runs);
    }
    EXPECT_EQ(engine.allocations_after_prewarm(), allocations);
    EXPECT_EQ(engine.pipelines_compiled_after_prewarm(), pipelines);
  }

  /// The prompt, by an engine that takes from a prefix store what another computed of `first`.
  Told run_from_store(const std::vector<TokenId>& first) const {
    const TemporaryFolder folder;
    const EngineOptions options{.cache_host_bytes = uint64_t{64} << 20,
                                .prefix_store = folder.path()};
    {
      const auto engine = this->engine(options);
      run(*engine, first);
      EXPECT_TRUE(engine->finish_storing().ok());
    }
    const auto engine = this->engine(options);
    const auto reading = engine->read_stored(prompt_, {});
    EXPECT_NE(reading, nullptr);
    while (reading != nullptr && !reading->done()) EXPECT_TRUE(engine->wait(10).ok());
    if (reading != nullptr) engine->adopt_stored(prompt_, *reading);
    return run(*engine, prompt_);
  }

  Told run(Engine& engine, const std::vector<TokenId>& prompt, const std::string& salt = {}) const {
    Told told;
    const uint64_t rows_before = engine.dispatched_rows();
    const Result<RequestId> id = submit(engine, prompt, told, law_.new_tokens, salt);
    EXPECT_TRUE(id.ok()) << id.error().message;
    if (!id.ok()) return told;
    finish(engine, {{*id, &told}});
    told.rows = engine.dispatched_rows() - rows_before;
    return told;
  }

  /// Rows of a run that found so many tokens cached.
  uint64_t rows_after(uint32_t cached_tokens) const {
    return prompt_.size() - cached_tokens + law_.new_tokens - 1;
  }

  /// Same tokens, and the same logits wherever something was computed. Without fp32 a token may
  /// differ whose margin was unclear, and then texts have nothing more in common.
  void expect_whole(const Told& run, const std::string& what) const {
    const size_t n_equal = static_cast<size_t>(
        std::ranges::mismatch(run.tokens, whole_.tokens).in1 - run.tokens.begin());
    if (law_.arithmetic.math == ops::Math::kF32) {
      EXPECT_EQ(run.tokens, whole_.tokens) << what;
    } else if (n_equal < whole_.tokens.size()) {
      ASSERT_LT(n_equal, run.tokens.size()) << what;
      const auto& logits = whole_.logits.at(static_cast<uint32_t>(prompt_.size() + n_equal - 1));
      EXPECT_LE(margin_of(logits), clear_margin(logits, law_.arithmetic))
          << what << ", token " << n_equal;
    }
    std::vector<float> got, expected;
    for (const auto& [position, row] : run.logits) {
      if (position >= prompt_.size() + n_equal) break;
      const std::vector<float>& whole_row = whole_.logits.at(position);
      ASSERT_TRUE(!law_.invariant || row == whole_row) << what << ", position " << position;
      got.insert(got.end(), row.begin(), row.end());
      expected.insert(expected.end(), whole_row.begin(), whole_row.end());
    }
    EXPECT_LE(nmse(got, expected), law_.arithmetic.bound) << what;
  }

  std::shared_ptr<const Model> model_;
  Law law_;
  std::vector<TokenId> prompt_;
  Told whole_;
};

}  // namespace pumice::test
