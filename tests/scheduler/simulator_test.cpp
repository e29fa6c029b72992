#include "scheduler/simulator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/shared_data.hpp"

namespace pumice {
namespace {

const StepCost kSimulatedDevice{.fixed = 3e-3,
                                .per_row = 2e-5,
                                .per_row_context = 3e-8,
                                .per_token = 4e-5,
                                .per_token_context = 1e-9};

double hit_rate(const Trace& trace, uint32_t n_pages) {
  return find_prefix_hits(trace, {.n_pages = n_pages}).rate();
}

SimulationOptions busy_server() {
  return {.scheduler = {.token_budget = 2048,
                        .chunk_tokens = 2048,
                        .tpot_target_s = 30e-3,
                        .max_running = 128},
          .n_pages = 20000,
          .device = kSimulatedDevice};
}

TEST(Simulator, ServesEveryRequestOfASyntheticMixAndFindsTheSharedPrompts) {
  const Trace trace = make_synthetic_trace({.n_requests = 300, .requests_per_s = 20}, 16);
  const auto report = simulate(trace, busy_server());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->n_refused, 0u);
  EXPECT_EQ(report->telemetry.finished, 300u);
  uint64_t output = 0;
  for (const TraceRequest& request : trace.requests) output += request.output_tokens;
  EXPECT_EQ(report->telemetry.generated_tokens, output);
  EXPECT_GT(report->hit_rate, 0.3);
  EXPECT_NEAR(hit_rate(trace, kUnlimitedPages), report->hit_rate, 0.1);
}

TEST(Simulator, AdaptiveChunksKeepTheGapBetweenTokensNearItsTargetAndAMonolithicPrefillDoesNot) {
  const TradeOffOptions options{.chunk_tokens = {0, 64, 512, 8192},
                                .active_decodes = {8},
                                .tpot_target_s = 20e-3,
                                .device = kSimulatedDevice};
  const auto rows = sweep_chunks(options);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  const auto& adaptive = rows->at(0);
  const auto& monolithic = rows->at(3);
  EXPECT_LE(adaptive.itl_p99_s, 2 * options.tpot_target_s);
  EXPECT_GT(monolithic.itl_p99_s, 10 * options.tpot_target_s);
  EXPECT_LT(rows->at(1).itl_p99_s, rows->at(2).itl_p99_s);
  EXPECT_GT(rows->at(1).ttft_s, rows->at(2).ttft_s);
}

TEST(Simulator, ADeviceTenTimesSlowerGetsOtherChunks) {
  const Trace trace = make_synthetic_trace({.n_requests = 100, .requests_per_s = 4}, 16);
  SimulationOptions options = busy_server();
  options.scheduler.tpot_target_s = 60e-3;
  const auto fast = simulate(trace, options);
  options.device.per_token *= 10;
  options.device.per_row *= 10;
  const auto slow = simulate(trace, options);
  ASSERT_TRUE(fast.ok() && slow.ok());
  EXPECT_LT(slow->telemetry.chunk_tokens.percentile(0.5),
            fast->telemetry.chunk_tokens.percentile(0.5) / 2);
}

/// The same pages, three of four of them for windows: what models with local layers gain.
TEST(Simulator, ServesMoreAtOnceWhereMostGroupsAreWindows) {
  const Trace trace = make_synthetic_trace(
      {.n_requests = 200, .requests_per_s = 40, .median_prompt_tokens = 2048}, 16);
  SimulationOptions options = busy_server();
  options.n_pages = 8000;
  const PageKind full{"full", StateForm::kFull};
  const PageKind local{"local", StateForm::kWindow, 256};
  options.kinds = {full, full, full, full};
  const auto all_full = simulate(trace, options);
  options.kinds = {full, local, local, local};
  const auto windows = simulate(trace, options);
  ASSERT_TRUE(all_full.ok() && windows.ok());
  EXPECT_EQ(windows->telemetry.finished + windows->n_refused, 200u);
  EXPECT_LE(windows->n_refused, all_full->n_refused);
  EXPECT_LT(windows->telemetry.wait_seconds.percentile(0.9),
            all_full->telemetry.wait_seconds.percentile(0.9));
  EXPECT_LT(windows->cache.kinds[0].evicted_blocks, all_full->cache.kinds[0].evicted_blocks);
}

TEST(Simulator, FindsSharedPromptsByTheirKeptStates) {
  const Trace trace = make_synthetic_trace({.n_requests = 300, .requests_per_s = 20}, 16);
  SimulationOptions options = busy_server();
  const auto full = simulate(trace, options);
  options.kinds = {{"full", StateForm::kFull}, {"state", StateForm::kRecurrent}};
  const auto hybrid = simulate(trace, options);
  ASSERT_TRUE(full.ok() && hybrid.ok());
  EXPECT_EQ(hybrid->telemetry.finished, 300u);
  // The second request of a system prompt leaves a state where it branches off, for the third.
  EXPECT_GT(hybrid->hit_rate, 0.8 * full->hit_rate);
  EXPECT_LT(hybrid->hit_rate, full->hit_rate);
  EXPECT_GT(hybrid->cache.kinds[1].shortened, 0u);
  EXPECT_GT(hybrid->cache.misses[static_cast<size_t>(MissReason::kGroup)], 0u);
}

/// Two turns of one conversation, and two users of one system prompt: what each place is good for.
TEST(Simulator, KeepsStatesWhereItIsTold) {
  Trace trace{.block_tokens = 16};
  const auto ask = [&](std::vector<uint64_t> keys) {
    const auto n = static_cast<uint32_t>(keys.size() * 16 + 1);
    trace.requests.push_back({.prompt_tokens = n, .output_tokens = 1, .keys = std::move(keys)});
  };
  ask({1, 2, 3});
  ask({1, 2, 3, 4, 5});  // the next turn: 3 blocks by the prompt's edge
  ask({1, 2, 9});        // another user: 0, and then 2 by a branch
  ask({1, 2, 8});
  const auto matched = [&](KeptStates kept) {
    const PrefixHits hits = find_prefix_hits(
        trace, {.n_pages = 1000,
                .kinds = {{"full", StateForm::kFull}, {"state", StateForm::kRecurrent}},
                .kept_states = kept});
    EXPECT_EQ(hits.prompt_blocks, 14u);
    return std::pair(hits.matched_blocks, hits.cache.kinds[1].kept_states);
  };
  using Result = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(matched(KeptStates::kNone), Result(0, 0));
  EXPECT_EQ(matched(KeptStates::kPromptEdge), Result(3, 4));
  EXPECT_EQ(matched(KeptStates::kBranch), Result(2, 2));  // of the second and the third
  EXPECT_EQ(matched(KeptStates::kEdgeAndBranch), Result(3 + 2, 5));
  EXPECT_EQ(matched(KeptStates::kEveryEdge), Result(3 + 2 + 2, 3 + 2 + 1 + 1));
}

TEST(Simulator, ALatecomerIsServedAmidBatchRequestsAndBehindALongPrompt) {
  LatecomerOptions options{.scheduler = {.token_budget = 512, .chunk_tokens = 512, .aging_s = 20},
                           .n_pages = kUnlimitedPages,
                           .device = kSimulatedDevice};
  for (const uint32_t n_pages : {kUnlimitedPages, 6600u}) {  // nearly all of it the long prompt's
    options.n_pages = n_pages;
    for (const uint32_t prompt_tokens : {1u, 400u, 900u}) {
      options.prompt_tokens = prompt_tokens;
      const auto report = simulate_latecomer(options);
      ASSERT_TRUE(report.ok()) << report.error().message;
      ASSERT_EQ(report->rows.size(), 4u);
      const uint32_t alone = report->rows[0].steps;
      EXPECT_EQ(alone, (prompt_tokens + 511) / 512);
      for (const Latecomer& row : report->rows) EXPECT_LE(row.steps, alone + 2) << row.amid;
      EXPECT_EQ(report->rows[0].preemptions, 0u);
      EXPECT_EQ(report->rows[1].preemptions, 1u) << "a place";
      EXPECT_GE(report->batch_ttft_s, 20);
      EXPECT_LE(report->batch_ttft_s, 20.1);
    }
  }
  options.scheduler.aging_s = 0;
  const auto never = simulate_latecomer(options);
  ASSERT_TRUE(never.ok());
  EXPECT_TRUE(std::isinf(never->batch_ttft_s));
  options.n_pages = 1000;
  const auto refused = simulate_latecomer(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
}

TEST(Simulator, LearnsADeviceItDoesNotKnow) {
  const Trace trace = make_synthetic_trace({.n_requests = 200, .requests_per_s = 10}, 16);
  SimulationOptions options = busy_server();
  options.calibrated = false;
  const auto report = simulate(trace, options);
  ASSERT_TRUE(report.ok());
  EXPECT_LE(report->telemetry.itl_seconds.percentile(0.95), 2 * options.scheduler.tpot_target_s);
}

TEST(Traces, HitRateOfMooncakesConversationIsTheIndependentlyComputedOne) {
  PUMICE_REQUIRE_SHARED(shared, "traces/mooncake_conversation_trace.jsonl");
  const auto trace = read_trace(shared);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->block_tokens, 512u);
  EXPECT_NEAR(hit_rate(*trace, kUnlimitedPages), 0.3819, 5e-5);
  EXPECT_NEAR(hit_rate(*trace, 1000), 0.047, 5e-4);
  EXPECT_NEAR(hit_rate(*trace, 10000), 0.224, 5e-4);
  EXPECT_NEAR(hit_rate(*trace, 50000), 0.372, 5e-4);
}

TEST(Traces, AzuresHasLengthsAndTimes) {
  PUMICE_REQUIRE_SHARED(shared, "traces/AzureLLMInferenceTrace_conv.csv");
  const auto trace = read_trace(shared);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->requests.size(), 19366u);
  EXPECT_EQ(trace->requests[0].prompt_tokens, 374u);
  EXPECT_EQ(trace->requests[0].output_tokens, 44u);
  EXPECT_NEAR(trace->requests[1].arrival_s, 4.314579, 1e-5);
  EXPECT_EQ(hit_rate(*trace, kUnlimitedPages), 0);
}

TEST(Traces, DamagedOnesAreRefusedNamingTheLine) {
  const auto error_of = [](const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / name;
    std::ofstream(path) << text;
    const auto trace = read_trace(path);
    std::filesystem::remove(path);
    return trace.ok() ? std::string() : trace.error().message;
  };
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  EXPECT_NE(error_of("pumice_a.csv", "x\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("pumice_b.csv", header + "2023-11-16 18:15:46.6,10,-3\n").find("line 2"),
            std::string::npos);
  EXPECT_NE(error_of("pumice_c.csv", header).find("no requests"), std::string::npos);
  EXPECT_NE(error_of("pumice_d.jsonl", "{\"timestamp\": 0}\n").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("pumice_e.jsonl", R"({"timestamp": 0, "input_length": 2000,
      "output_length": 1, "hash_ids": [1]})"),
            "");
  EXPECT_NE(error_of("pumice_f.txt", "x").find(".jsonl"), std::string::npos);
  EXPECT_NE(read_trace("/no/such.csv").error().message.find("cannot read"), std::string::npos);
}

}  // namespace
}  // namespace pumice
