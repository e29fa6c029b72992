// One episode of the cache by itself: KvCache and NaiveCache under the same random calls, those
// that the scheduler does not make (rewinding) included, compared after each.
#pragma once

#include <deque>
#include <random>

#include "tests/model_fuzz/naive_device.hpp"
#include "tests/model_fuzz/random_cache.hpp"

namespace pumice::model_fuzz {

class CacheWorld {
 public:
  explicit CacheWorld(uint64_t seed);

  /// One random call, and all checks. Throws Divergence, or CheckFailure from the product.
  void step();
  /// End everything; every block must be free again.
  void finish();

  std::string description() const { return described(options_); }

  struct Counts {
    uint64_t begun = 0;
    uint64_t cached_tokens = 0;
    uint64_t shortened = 0;  ///< hits, by a kind
    uint64_t committed = 0;
    uint64_t behind = 0;  ///< blocks behind windows
    uint64_t rewound = 0;
    uint64_t not_rewound = 0;  ///< refused
    uint64_t losses = 0;       ///< of the device
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Running {
    SequenceId id = 0;
    NaiveCache::Id naive = 0;
    uint32_t number = 0;
    Tokens tokens;
    std::string salt;
    std::deque<uint32_t> planned;  // ends of steps that have run and are not committed
  };

  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }  // [0, n)
  bool chance(uint32_t percent) { return pick(100) < percent; }
  [[noreturn]] void diverged(const std::string& what) const { throw Divergence(what); }
  void same(uint64_t product, uint64_t reference, const char* what) const;
  Running& any() { return running_[pick(static_cast<uint32_t>(running_.size()))]; }

  void begin();
  void compute(Running& one);
  void commit(Running& one);
  void rewind(Running& one);
  void end(size_t index);
  void transfer(bool good);
  void lose_device();
  void compare();
  void compare(const Running& one);

  std::mt19937_64 random_;
  KvCacheOptions options_;
  KvCache cache_;
  NaiveCache naive_;
  NaiveDevice device_;
  std::vector<Running> running_;
  std::vector<Tokens> texts_;
  std::vector<std::pair<HashedPrompt, Tokens>> suspended_;
  uint32_t next_number_ = 0;
  Counts counts_;
};

}  // namespace pumice::model_fuzz
