// One episode of the fuzz: the product and the reference under the same random calls, compared
// after each.
#pragma once

#include <random>

#include "tests/model_fuzz/naive_device.hpp"
#include "tests/model_fuzz/naive_scheduler.hpp"

namespace pumice::model_fuzz {

class World {
 public:
  explicit World(uint64_t seed);

  /// One random call, and all checks. Throws Divergence, or CheckFailure from the product.
  void step();
  /// End everything; every block must be free again.
  void finish();

  const NaiveCounts& counts() const { return naive_.counts(); }
  std::string description() const;

 private:
  struct Flight {
    StepPlan plan;
    std::vector<NaiveDevice::Row> rows;
    bool answered = false;
    bool ran = false;
    std::vector<Tokens> sampled;  // by chunk
  };
  /// What a sequence has committed, for the independent bound on what can be cached.
  struct Committed {
    std::string salt;
    Tokens tokens;
    bool ended = false;
  };

  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }  // [0, n)
  bool chance(uint32_t percent) { return pick(100) < percent; }
  [[noreturn]] void diverged(const std::string& what) const;
  void same(uint64_t product, uint64_t reference, const char* what, RequestId id = 0) const;

  Tokens random_tokens();
  void arrive();
  void end_one();
  void remove_one();
  void ask();
  void draft();
  void plan();
  void check_plan(const StepPlan& plan, const NaivePlan& expected);
  void check_classes(const StepPlan& plan);
  void check_started(const StepPlan& plan);
  size_t ever_committed(const NaiveRequest& request) const;
  void note_ends();
  void answer(Flight& flight, bool good);
  bool run(bool fails);
  void commit();
  void fail(size_t index);
  void lose_device();
  void compare();
  void compare(const NaiveRequest& expected);
  void check_slots() const;

  std::mt19937_64 random_;
  uint32_t n_classes_;
  SchedulerOptions options_;
  KvCacheOptions cache_options_;
  Scheduler scheduler_;
  NaiveScheduler naive_;
  NaiveDevice device_;
  std::deque<Flight> flights_;
  std::vector<std::pair<std::string, Tokens>> texts_;              // seen so far
  std::map<RequestId, Tokens> drafts_;                             // of the tokens known now
  std::map<std::pair<RequestId, uint64_t>, Committed> committed_;  // by request and life
  double now_ = 0;
};

}  // namespace pumice::model_fuzz
