// Loads on a server: texts of traces, streams of events, and what is reported.
#include "bench/load.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pumice::bench {
namespace {

size_t n_words(const std::string& text) {
  return static_cast<size_t>(std::ranges::count(text, ' ')) + 1;
}

TEST(Loads, ShareWhatTheirTraceShares) {
  const Trace trace{
      .block_tokens = 4,
      .requests = {{.arrival_s = 5, .prompt_tokens = 10, .output_tokens = 7, .keys = {1, 2}},
                   {.arrival_s = 6, .prompt_tokens = 9, .output_tokens = 0, .keys = {1, 3}},
                   {.arrival_s = 8, .prompt_tokens = 4, .output_tokens = 1, .keys = {1}}}};
  const std::vector<LoadRequest> load = load_of(trace);
  ASSERT_EQ(load.size(), 3u);
  EXPECT_EQ(load[0].arrival_s, 0);
  EXPECT_EQ(load[2].arrival_s, 3);
  EXPECT_EQ(load[0].output_tokens, 7u);
  EXPECT_EQ(load[1].output_tokens, 1u);
  EXPECT_EQ(n_words(load[0].prompt), 10u);
  EXPECT_EQ(n_words(load[1].prompt), 9u);
  const std::string& shared = load[2].prompt;
  EXPECT_EQ(n_words(shared), 4u);
  EXPECT_TRUE(load[0].prompt.starts_with(shared + " "));
  EXPECT_TRUE(load[1].prompt.starts_with(shared + " "));
  EXPECT_NE(load[0].prompt.substr(0, load[1].prompt.size()), load[1].prompt);
}

TEST(Loads, EventsAreTheSameHoweverTheyAreCut) {
  const std::string stream =
      ": comment\n\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\nevent: x\ndata: {\"a\": "
      "1}\n\ndata: [DONE]\n\n";
  const std::vector<std::string> expected = {"one", "two\nlines", "{\"a\": 1}", "[DONE]"};
  for (size_t size = 1; size <= stream.size(); ++size) {
    EventStreamReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += size) {
      for (std::string& event : reader.feed(std::string_view(stream).substr(at, size))) {
        events.push_back(std::move(event));
      }
    }
    EXPECT_EQ(events, expected) << size;
    EXPECT_EQ(reader.n_pending(), 0u);
  }
}

TEST(Loads, WhatIsReported) {
  std::vector<LoadSample> samples;
  for (int i = 0; i < 4; ++i) {
    const double late = i == 3 ? 1.0 : 0.1;  // the last one waited
    samples.push_back({.due_s = 1.0 * i,
                       .sent_s = 1.0 * i,
                       .first_s = i + late,
                       .last_s = i + late + 0.4,
                       .ended_s = i + late + 0.5,
                       .gaps_s = {0.1, 0.3},
                       .prompt_tokens = 10,
                       .cached_tokens = 4,
                       .output_tokens = 3});
  }
  samples.push_back({.error = "status 400: 517 tokens are too many"});
  samples.push_back({.error = "status 400: 99 tokens are too many"});
  const nlohmann::json report = load_report_json(samples, 2, {.ttft_s = 0.5, .tpot_s = 1});
  EXPECT_EQ(report["requests"], 6);
  EXPECT_EQ(report["failed"], 2);
  EXPECT_EQ(report["errors"]["status 400: 517 tokens are too many"], 2);
  EXPECT_DOUBLE_EQ(report["requests_per_s"], 2);
  EXPECT_DOUBLE_EQ(report["goodput_requests_per_s"], 1.5);
  EXPECT_DOUBLE_EQ(report["output_tokens_per_s"], 6);
  EXPECT_EQ(report["cached_tokens"], 16);
  EXPECT_NEAR(report["ttft_ms"]["p50"], 100, 1e-9);
  EXPECT_NEAR(report["ttft_ms"]["mean"], 325, 1e-9);
  EXPECT_NEAR(report["tpot_ms"]["p99"], 200, 1e-9);
  EXPECT_NEAR(report["itl_ms"]["p50"], 200, 1e-9);
  EXPECT_NEAR(report["e2el_ms"]["p50"], 600, 1e-9);
  const std::string text = load_report_text(report);
  EXPECT_NE(text.find("| TTFT | 325.00 | 100.00 |"), std::string::npos) << text;
  EXPECT_NE(text.find("2 failed: status 400: 517 tokens"), std::string::npos) << text;
  const nlohmann::json none = load_report_json({}, 0, {});
  EXPECT_TRUE(none["ttft_ms"].is_null());
  EXPECT_FALSE(load_report_text(none).empty());
}

}  // namespace
}  // namespace pumice::bench
