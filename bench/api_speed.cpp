// pumice_bench_api: how fast a model reads and generates through the C ABI, against the engine that
// `pumice bench` drives, in turns within one process. Not a test: exit code 1 is for errors only.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "base/result.hpp"
#include "bench/ab.hpp"
#include "bench/model_bench.hpp"
#include "bench/timed_request.hpp"
#include "pumice/pumice.h"

namespace pumice::bench {
namespace {

constexpr const char* kUsage =
    "usage: pumice_bench_api MODEL [ROUNDS [PROMPT [GENERATED]]]\n"
    "  reads PROMPT tokens (128) and generates GENERATED (64), ROUNDS times (20) each way\n";

struct Close {
  void operator()(pumice_device* device) const { pumice_device_close(device); }
  void operator()(pumice_model* model) const { pumice_model_close(model); }
  void operator()(pumice_engine* engine) const { pumice_engine_close(engine); }
};
template <typename Handle>
using Owned = std::unique_ptr<Handle, Close>;

Status check(pumice_status status) {
  if (status == PUMICE_OK) return {};
  return make_error(ErrorCode::kInternal, "{}: {}", pumice_status_name(status),
                    pumice_last_error());
}

/// As run_sample, through the C ABI: nanoseconds from submission to the last event.
Result<double> run_api(pumice_engine* engine, const std::vector<uint32_t>& prompt, uint32_t n) {
  pumice_request_options options{sizeof options};
  options.tokens = prompt.data();
  options.n_tokens = prompt.size();
  options.max_new_tokens = n;
  options.ignore_end = 1;
  pumice_request request = 0;
  const auto start = std::chrono::steady_clock::now();
  PUMICE_TRY_STATUS(check(pumice_submit(engine, 0, &options, &request)));
  while (true) {
    PUMICE_TRY_STATUS(check(pumice_poll(engine, PUMICE_NO_LIMIT)));
    pumice_event event{sizeof event};
    do {
      PUMICE_TRY_STATUS(check(pumice_next_event(engine, &event)));
      if (event.kind != PUMICE_EVENT_FINISHED) continue;
      const auto end = std::chrono::steady_clock::now();
      if (event.generated_tokens != n) {
        return make_error(ErrorCode::kInternal, "{} tokens instead of {}", event.generated_tokens,
                          n);
      }
      return std::chrono::duration<double, std::nano>(end - start).count();
    } while (event.kind != PUMICE_EVENT_NONE);
    PUMICE_TRY_STATUS(check(pumice_wait(engine, 1'000'000)));
  }
}

/// A: the engine as the tools drive it. B: through the C ABI.
struct Sides {
  std::array<Engine*, 2> direct;
  pumice_engine* api;
  uint32_t n_vocab;

  Result<double> run(size_t side, const ModelTest& test, uint32_t round) const {
    if (side == 1) {
      const uint32_t n_prompt = std::max(test.n_prompt, 1u);
      return run_api(api, random_prompt(n_prompt, n_vocab, round), std::max(test.n_gen, 1u));
    }
    PUMICE_TRY(const Sample sample,
               run_sample(*direct[side / 2], n_vocab, test, round, [] { return false; }));
    return sample.ns;
  }
};

Result<AbRow> compare(const Sides& sides, const ModelTest& test, uint32_t rounds) {
  AbRow row{.test = test};
  for (size_t side = 0; side < kAbSides; ++side) PUMICE_TRY_STATUS(sides.run(side, test, 0));
  std::mt19937 random(1);
  for (uint32_t round = 1; round <= rounds; ++round) {
    std::array<uint8_t, kAbSides> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    for (const uint8_t side : order) {
      PUMICE_TRY(const double ns, sides.run(side, test, round));
      row.samples_ns[side].push_back(ns);
    }
    row.order.push_back(order);
  }
  return row;
}

Status run(const char* path, uint32_t rounds, uint32_t n_prompt, uint32_t n_gen) {
  const char* selector = std::getenv("PUMICE_DEVICE");
  pumice_device_options device_options{sizeof device_options};
  device_options.selector = pumice_str(selector);
  pumice_device* opened = nullptr;
  PUMICE_TRY_STATUS(check(pumice_device_open(&device_options, &opened)));
  const Owned<pumice_device> device(opened);
  pumice_model_options model_options{sizeof model_options};
  model_options.path = pumice_str(path);
  pumice_model* loaded = nullptr;
  PUMICE_TRY_STATUS(check(pumice_model_load(device.get(), &model_options, &loaded)));
  const Owned<pumice_model> model(loaded);

  const std::array<ModelTest, 2> tests = {ModelTest{.n_prompt = n_prompt},
                                          ModelTest{.n_gen = n_gen}};
  const TestGroup group = group_tests(tests).front();
  pumice_engine_options options{sizeof options};
  options.context_tokens = static_cast<uint32_t>(group.context_tokens);
  options.no_prefix_cache = 1;
  pumice_engine* created = nullptr;
  PUMICE_TRY_STATUS(check(pumice_engine_create(model.get(), &options, &created)));
  const Owned<pumice_engine> engine(created);
  const EngineOptions direct_options = engine_options(group, {});
  const host::OpenedModel on_device = model->owner->opened();
  PUMICE_TRY(const auto a, on_device.make_engine(direct_options));
  PUMICE_TRY(const auto again, on_device.make_engine(direct_options));

  const Sides sides{{a.get(), again.get()}, engine.get(), model->info.n_vocabulary};
  std::vector<AbRow> rows;
  for (const ModelTest& test : tests) {
    PUMICE_TRY(rows.emplace_back(), compare(sides, test, rounds));
  }
  pumice_device_info info{sizeof info};
  PUMICE_TRY_STATUS(check(pumice_device_get_info(device.get(), &info)));
  fmt::print("{}, {}\n\n{}", info.name, info.driver,
             to_markdown(rows, {.configuration = "Engine::step, as pumice bench"},
                         {.configuration = "the C ABI"}));
  return {};
}

}  // namespace
}  // namespace pumice::bench

int main(int argc, char** argv) {
  const auto number = [&](int i, int usual) { return i < argc ? std::atoi(argv[i]) : usual; };
  const int rounds = number(2, 20);
  const int n_prompt = number(3, 128);
  const int n_gen = number(4, 64);
  if (argc < 2 || argc > 5 || rounds < 1 || n_prompt < 1 || n_gen < 1) {
    fmt::print(stderr, "{}", pumice::bench::kUsage);
    return 2;
  }
  const pumice::Status status =
      pumice::bench::run(argv[1], static_cast<uint32_t>(rounds), static_cast<uint32_t>(n_prompt),
                         static_cast<uint32_t>(n_gen));
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.error().message);
  return 1;
}
