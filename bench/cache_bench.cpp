// What reuse costs per block of 16 tokens, in an index of 10^6 blocks spread over memory.
//
//   bench/pumice_bench_cache --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "cache/block_hash.hpp"
#include "cache/kv_cache.hpp"
#include "cache/prefix_index.hpp"

namespace pumice {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kIndexBlocks = 1'000'000;
constexpr uint32_t kPromptBlocks = 512;  ///< a prompt of 8k tokens

std::vector<uint32_t> random_tokens(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> tokens(n);
  for (uint32_t& token : tokens) token = random() % 128'000;
  return tokens;
}

/// An index of kIndexBlocks blocks: prompts whose blocks were added in turns, so that neighbours of
/// a prompt are not neighbours in memory.
struct BigIndex {
  BlockHasher hasher;
  PrefixIndex index{kBlockTokens, kIndexBlocks};
  BlockHash root_hash;
  NodeId root;
  std::vector<std::vector<uint32_t>> prompts;

  BigIndex() : root_hash(hasher.root({}, "")), root(index.find_or_add_root({}, "", root_hash)) {
    index.refer(root);
    const uint32_t n_prompts = kIndexBlocks / kPromptBlocks;
    for (uint32_t p = 0; p < n_prompts; ++p) {
      prompts.push_back(random_tokens(size_t{kPromptBlocks} * kBlockTokens, p));
    }
    std::vector<NodeId> tips(n_prompts, root);
    std::vector<BlockHash> hashes(n_prompts, root_hash);
    std::vector<uint32_t> order(n_prompts);
    std::iota(order.begin(), order.end(), 0u);
    std::mt19937 random(1);
    PageId page = 0;
    for (uint32_t i = 0; i < kPromptBlocks; ++i) {
      std::shuffle(order.begin(), order.end(), random);
      for (const uint32_t p : order) {
        const std::span<const uint32_t> content{prompts[p].data() + size_t{i} * kBlockTokens,
                                                kBlockTokens};
        hashes[p] = hasher.child(hashes[p], content);
        tips[p] = index.add(hashes[p], tips[p], content);
        index.attach(tips[p], page++);
      }
    }
  }
};

BigIndex& big_index() {
  static BigIndex index;
  return index;
}

void set_per_block(benchmark::State& state) {
  const double blocks = static_cast<double>(state.iterations()) * kPromptBlocks;
  state.counters["per_block"] =
      benchmark::Counter(blocks, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void hash_blocks(benchmark::State& state) {
  const BlockHasher hasher;
  const std::vector<uint32_t> tokens = random_tokens(size_t{kPromptBlocks} * kBlockTokens, 7);
  std::vector<BlockHash> hashes(kPromptBlocks);
  for (auto _ : state) {
    hasher.chain({}, tokens, kBlockTokens, hashes);
    benchmark::DoNotOptimize(hashes.data());
  }
  set_per_block(state);
}
BENCHMARK(hash_blocks);

/// Hash a prompt that is in the index, and find all its blocks, verified. Another prompt each time.
void hash_and_look_up(benchmark::State& state) {
  BigIndex& big = big_index();
  std::vector<BlockHash> hashes(kPromptBlocks);
  std::vector<NodeId> chain;
  size_t next = 0;
  for (auto _ : state) {
    const std::vector<uint32_t>& prompt = big.prompts[next];
    next = (next + 769) % big.prompts.size();
    big.hasher.chain(big.root_hash, prompt, kBlockTokens, hashes);
    chain.clear();
    big.index.find_chain(big.root, hashes, prompt, chain);
    if (chain.size() != kPromptBlocks) state.SkipWithError("a block was not found");
  }
  set_per_block(state);
}
BENCHMARK(hash_and_look_up);

/// The same one block at a time, for comparison.
void hash_and_look_up_unbatched(benchmark::State& state) {
  BigIndex& big = big_index();
  size_t next = 0;
  for (auto _ : state) {
    const std::span<const uint32_t> prompt = big.prompts[next];
    next = (next + 769) % big.prompts.size();
    BlockHash hash = big.root_hash;
    NodeId node = big.root;
    for (size_t i = 0; i < kPromptBlocks && node != kNoNode; ++i) {
      const auto content = prompt.subspan(i * kBlockTokens, kBlockTokens);
      hash = big.hasher.child(hash, content);
      node = big.index.find(hash, node, content);
    }
    if (node == kNoNode) state.SkipWithError("a block was not found");
  }
  set_per_block(state);
}
BENCHMARK(hash_and_look_up_unbatched);

/// All that reuse costs a prompt of which nothing is known: hashing, looking up, indexing,
/// evicting.
void prompt_with_no_hit(benchmark::State& state) {
  const bool reuse = state.range(0) != 0;
  KvCache cache({.n_pages = 65536, .block_tokens = kBlockTokens, .reuse = reuse});
  uint32_t seed = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<uint32_t> tokens =
        random_tokens(size_t{kPromptBlocks} * kBlockTokens, ++seed);
    state.ResumeTiming();
    HashedPrompt prompt = cache.hash_prompt(tokens);
    const SequenceId id = *cache.begin(prompt, static_cast<uint32_t>(tokens.size()));
    (void)cache.finish_transfers(cache.take_transfers().batch);
    cache.commit(id, static_cast<uint32_t>(tokens.size()));
    cache.release(id);
  }
  set_per_block(state);
}
BENCHMARK(prompt_with_no_hit)->ArgName("reuse")->Arg(0)->Arg(1);

}  // namespace
}  // namespace pumice

BENCHMARK_MAIN();
