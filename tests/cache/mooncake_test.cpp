// The prefix hit rate of a published trace, against figures computed independently.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cache/kv_cache.hpp"
#include "tests/shared_data.hpp"

namespace pumice {
namespace {

struct TraceRequest {
  uint32_t n_tokens = 0;
  std::vector<uint64_t> keys;
};

std::vector<TraceRequest> read_trace(const std::filesystem::path& path) {
  std::vector<TraceRequest> requests;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    TraceRequest request;
    const std::string length = "\"input_length\": ";
    request.n_tokens =
        static_cast<uint32_t>(std::stoul(line.substr(line.find(length) + length.size())));
    std::istringstream ids(line.substr(line.find('[') + 1));
    for (uint64_t key = 0; ids >> key; ids.ignore(1)) request.keys.push_back(key);
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Percent of all full prompt blocks that are matched, requests one after another, outputs not
/// cached.
double hit_rate(const std::vector<TraceRequest>& requests, uint32_t n_blocks) {
  KvCache cache({.n_pages = n_blocks, .block_tokens = 512, .keyed = true});
  for (const TraceRequest& request : requests) {
    HashedPrompt prompt = cache.hash_keys(request.keys, request.n_tokens);
    const SequenceId id = *cache.begin(prompt, request.n_tokens);
    cache.commit(id, request.n_tokens);
    cache.release(id);
  }
  return 100.0 * static_cast<double>(cache.stats().matched_blocks) /
         static_cast<double>(cache.stats().queried_blocks);
}

TEST(Mooncake, HitRatesAreThoseComputedIndependently) {
  PUMICE_REQUIRE_SHARED(path, "traces/mooncake_conversation_trace.jsonl");
  const std::vector<TraceRequest> requests = read_trace(path);
  ASSERT_GT(requests.size(), 10000u);
  EXPECT_NEAR(hit_rate(requests, kUnlimitedPages), 38.19, 0.01);
  EXPECT_NEAR(hit_rate(requests, 1000), 4.7, 0.1);
  EXPECT_NEAR(hit_rate(requests, 10000), 22.4, 0.1);
  EXPECT_NEAR(hit_rate(requests, 50000), 37.2, 0.1);
}

}  // namespace
}  // namespace pumice
