// What an engine says of its queue and of how long its requests take.
#include <vector>

#include "tests/api/api_fixture.hpp"

namespace pumice {
namespace {

class ApiStatistics : public test::ApiTest {
 protected:
  static pumice_latency latency_of(pumice_engine* engine, pumice_latency_kind kind) {
    pumice_latency latency{sizeof latency};
    EXPECT_OK(pumice_get_latency(engine, kind, &latency));
    return latency;
  }
  static pumice_stats stats_of(pumice_engine* engine) {
    pumice_stats stats{sizeof stats};
    EXPECT_OK(pumice_get_stats(engine, &stats));
    return stats;
  }
};

TEST_F(ApiStatistics, LatenciesAreThoseOfTheRequests) {
  pumice_engine* engine = test::create_engine(model_, 2);
  EXPECT_EQ(latency_of(engine, PUMICE_LATENCY_TOTAL).count, 0u);
  EXPECT_EQ(latency_of(engine, PUMICE_LATENCY_TOTAL).max_us, 0u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(test::ask(engine, 0, test::request_of("Once upon a time", 9)).tokens.size(), 9u);
  }
  const pumice_latency first = latency_of(engine, PUMICE_LATENCY_FIRST_TOKEN);
  const pumice_latency interval = latency_of(engine, PUMICE_LATENCY_TOKEN_INTERVAL);
  const pumice_latency total = latency_of(engine, PUMICE_LATENCY_TOTAL);
  EXPECT_EQ(latency_of(engine, PUMICE_LATENCY_QUEUE).count, 3u);
  EXPECT_EQ(first.count, 3u);
  EXPECT_EQ(interval.count, 24u);
  EXPECT_EQ(total.count, 3u);
  EXPECT_LE(first.p50_us, first.p90_us);
  EXPECT_LE(first.p90_us, first.p99_us);
  EXPECT_LE(first.p99_us, first.max_us);
  EXPECT_GT(first.p50_us, 0u);
  // What a request takes is its first token and what is between those that follow, and little else.
  EXPECT_LE(first.sum_us + interval.sum_us, total.sum_us + 30);
  EXPECT_GE(first.sum_us + interval.sum_us, total.sum_us / 2);
  pumice_engine_close(engine);
}

TEST_F(ApiStatistics, RequestsRunOrWait) {
  pumice_engine* engine = test::create_engine(model_, 2);
  EXPECT_EQ(stats_of(engine).running_requests + stats_of(engine).waiting_requests, 0u);
  std::vector<pumice_request> requests(5);
  for (pumice_request& request : requests) {
    const pumice_request_options options = test::request_of("Once upon a time", 100);
    EXPECT_OK(pumice_submit(engine, 0, &options, &request));
  }
  EXPECT_OK(pumice_poll(engine, PUMICE_NO_LIMIT));
  EXPECT_EQ(stats_of(engine).running_requests, 2u);
  EXPECT_EQ(stats_of(engine).waiting_requests, 3u);
  for (const pumice_request request : requests) EXPECT_OK(pumice_cancel(engine, request));
  EXPECT_OK(pumice_poll(engine, PUMICE_NO_LIMIT));
  EXPECT_EQ(stats_of(engine).running_requests + stats_of(engine).waiting_requests, 0u);
  EXPECT_EQ(latency_of(engine, PUMICE_LATENCY_TOTAL).count, 5u);
  pumice_engine_close(engine);
}

}  // namespace
}  // namespace pumice
