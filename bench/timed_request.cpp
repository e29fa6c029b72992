#include "bench/timed_request.hpp"

#include <chrono>
#include <random>

#include "bench/statistics.hpp"

namespace pumice::bench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double Generated::tpot_ns() const {
  return summarize(std::span(ns).subspan(std::min<size_t>(1, ns.size()))).median;
}

Result<Generated> generate(Engine& engine, const std::vector<TokenId>& prompt, uint32_t n,
                           const std::function<bool()>& stop) {
  Generated generated;
  auto last = Clock::now();
  PUMICE_TRY(
      const RequestId id,
      engine.submit({.prompt = prompt, .max_new_tokens = n, .sampling = {.temperature = 0}}));
  while (generated.tokens.size() < n) {
    if (stop()) {
      engine.cancel(id);
      return make_error(ErrorCode::kCancelled, "interrupted");
    }
    PUMICE_TRY(const std::vector<StepEvent> events, engine.step());
    if (events.empty()) return make_error(ErrorCode::kInternal, "the engine stopped early");
    for (const StepEvent& event : events) {
      if (!event.token) continue;
      const auto now = Clock::now();
      generated.tokens.push_back(*event.token);
      generated.ns.push_back(std::chrono::duration<double, std::nano>(now - last).count());
      last = now;
    }
  }
  engine.cancel(id);
  while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());  // what was under way
  return generated;
}

std::vector<TokenId> random_prompt(uint32_t n_tokens, uint32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n_tokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

}  // namespace pumice::bench
