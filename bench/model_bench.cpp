#include "bench/model_bench.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "bench/build_info.hpp"
#include "bench/statistics.hpp"
#include "shaders/spirv.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

/// Asks `stop` many times a second. Errors: kCancelled.
Status wait(double seconds, const std::function<bool()>& stop) {
  constexpr std::chrono::duration<double> kAtOnce = std::chrono::milliseconds(50);
  const auto start = Clock::now();
  for (;;) {
    if (stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    const std::chrono::duration<double> left =
        std::chrono::duration<double>(seconds) - (Clock::now() - start);
    if (left.count() <= 0) return {};
    std::this_thread::sleep_for(std::min(left, kAtOnce));
  }
}

double ns_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

/// The context of one request, the same for every sample.
std::vector<TokenId> depth_tokens(const ModelTest& test, uint32_t request, uint32_t n_vocab) {
  std::mt19937 random(request + 1);
  std::vector<TokenId> tokens(test.n_depth);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

/// Context and prompt. What follows the context begins with the sample's number in two digits, so
/// that at most the first of them is found in the cache.
std::vector<TokenId> prompt_of(const ModelTest& test, uint32_t request, uint32_t sample,
                               uint32_t n_vocab) {
  std::vector<TokenId> tokens = depth_tokens(test, request, n_vocab);
  std::mt19937 random(1000 * sample + request);
  const uint32_t number[] = {sample % n_vocab, sample / n_vocab % n_vocab};
  for (uint32_t i = 0; i < std::max(test.n_prompt, 1u); ++i) {
    const auto other = static_cast<uint32_t>(random() % n_vocab);
    tokens.push_back(static_cast<TokenId>(i < std::size(number) ? number[i] : other));
  }
  return tokens;
}

struct Watched {
  RequestId id = 0;
  uint32_t n_tokens = 0;
  double ttft_ns = 0;
  std::optional<RequestReport> report;
};

/// Step until every request has `wanted` tokens, then let go of all.
Status drive(Engine& engine, std::span<Watched> requests, uint32_t wanted, Clock::time_point start,
             Clock::time_point& end, const std::function<bool()>& stop) {
  size_t n_done = 0;
  while (n_done < requests.size()) {
    if (stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    PUMICE_TRY(const std::vector<StepEvent> events, engine.step());
    end = Clock::now();
    if (events.empty()) {
      return make_error(ErrorCode::kInternal, "the engine stopped before a test was done");
    }
    for (const StepEvent& event : events) {
      const auto request = std::ranges::find_if(
          requests, [&](const Watched& watched) { return watched.id == event.request; });
      if (request == requests.end()) continue;
      if (event.report) request->report = event.report;
      if (!event.token || request->n_tokens == wanted) continue;
      if (++request->n_tokens == 1) request->ttft_ns = ns_between(start, end);
      if (request->n_tokens == wanted) ++n_done;
    }
  }
  return {};
}

/// All requests at once, submitted when the clock starts.
Result<Sample> run_requests(Engine& engine, std::vector<std::vector<TokenId>> prompts,
                            uint32_t wanted, uint32_t depth, const std::function<bool()>& stop) {
  std::vector<Watched> requests(prompts.size());
  Status status;
  const auto start = Clock::now();
  Clock::time_point end = start;
  for (size_t i = 0; i < prompts.size() && status.ok(); ++i) {
    const Result<RequestId> id = engine.submit({.prompt = std::move(prompts[i]),
                                                .max_new_tokens = wanted,
                                                .sampling = {.temperature = 0}});
    status = id.ok() ? Status() : Status(id.error());
    if (id.ok()) requests[i].id = *id;
  }
  if (status.ok()) status = drive(engine, requests, wanted, start, end, stop);
  for (Watched& request : requests) {
    const std::optional<RequestReport> report = engine.cancel(request.id);
    if (report) request.report = report;
  }
  if (!status.ok()) return status.error();
  while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());  // what was under way
  Sample sample{.ns = ns_between(start, end)};
  for (const Watched& request : requests) {
    const uint32_t cached = request.report ? request.report->cache.cached_tokens : 0;
    if (cached < depth || cached > depth + 1) {
      return make_error(ErrorCode::kInternal, "{} tokens came from the cache, not {}", cached,
                        depth);
    }
    sample.ttft_ns.push_back(request.ttft_ns);
  }
  sample.prefill_ns = *std::ranges::max_element(sample.ttft_ns);
  return sample;
}

/// Compute the contexts, which stay in the engine's cache: whole blocks, so a few tokens more than
/// the depth, the first of which no sample has there.
Status fill_depth(Engine& engine, uint32_t n_vocab, const ModelTest& test,
                  const std::function<bool()>& stop) {
  for (uint32_t request = 0; request < test.n_parallel; ++request) {
    std::vector<Watched> watched(1);
    std::vector<TokenId> tokens = depth_tokens(test, request, n_vocab);
    while (tokens.size() % kKvBlockTokens != 0) tokens.push_back(static_cast<TokenId>(n_vocab - 1));
    PUMICE_TRY(watched[0].id, engine.submit({.prompt = std::move(tokens),
                                             .max_new_tokens = 1,
                                             .sampling = {.temperature = 0}}));
    Clock::time_point end;
    Status status = drive(engine, watched, 1, end, end, stop);
    engine.cancel(watched[0].id);
    if (!status.ok()) return status;
    while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());
  }
  return {};
}

Status fill(ModelRow& row, Engine& engine, uint32_t n_vocab, uint32_t repetitions,
            const std::function<bool()>& stop, uint32_t first_sample) {
  PUMICE_TRY_STATUS(warm_up(engine, n_vocab, row.test, first_sample, stop));
  for (uint32_t i = 1; i <= repetitions; ++i) {
    PUMICE_TRY(Sample sample, run_sample(engine, n_vocab, row.test, first_sample + i, stop));
    row.samples.push_back(std::move(sample));
  }
  return {};
}

std::vector<double> rates_of(const ModelRow& row, uint64_t n_tokens,
                             double (*ns_of)(const Sample&)) {
  std::vector<double> rates;
  if (n_tokens == 0) return rates;
  for (const Sample& sample : row.samples) {
    rates.push_back(static_cast<double>(n_tokens) * 1e9 / ns_of(sample));
  }
  return rates;
}

/// Keys of llama-bench's records that choose what Pumice does in one way only; programs that read
/// its records insist on them. Every layer is on the device, the file is mapped.
Json fixed_keys() {
  return {{"n_threads", 0},
          {"cpu_mask", "0x0"},
          {"cpu_strict", false},
          {"poll", 0},
          {"n_gpu_layers", -1},
          {"split_mode", "none"},
          {"main_gpu", 0},
          {"no_kv_offload", false},
          {"flash_attn", true},
          {"tensor_split", "0.00"},
          {"tensor_buft_overrides", "none"},
          {"use_mmap", true},
          {"embeddings", false},
          {"no_op_offload", false}};
}

/// "12.34" of samples, or nothing.
std::string median_cell(std::span<const double> samples, double factor = 1) {
  if (samples.empty()) return "";
  return fmt::format("{:.2f}", summarize(samples).median * factor);
}

}  // namespace

std::vector<double> ModelRow::rates() const {
  return rates_of(*this, test.n_tokens(), [](const Sample& sample) { return sample.ns; });
}

std::vector<double> ModelRow::prefill_rates() const {
  return rates_of(*this, uint64_t{test.n_parallel} * test.n_prompt,
                  [](const Sample& sample) { return sample.prefill_ns; });
}

std::vector<double> ModelRow::decode_rates() const {
  return rates_of(*this, uint64_t{test.n_parallel} * test.n_gen,
                  [](const Sample& sample) { return sample.decode_ns(); });
}

std::vector<double> ModelRow::ttft_ns() const {
  std::vector<double> all;
  for (const Sample& sample : samples) {
    all.insert(all.end(), sample.ttft_ns.begin(), sample.ttft_ns.end());
  }
  return all;
}

Result<Sample> run_sample(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t index,
                          const std::function<bool()>& stop) {
  std::vector<std::vector<TokenId>> prompts;
  for (uint32_t request = 0; request < test.n_parallel; ++request) {
    prompts.push_back(prompt_of(test, request, index, n_vocab));
  }
  const uint32_t wanted = test.n_prompt > 0 ? test.n_gen + 1 : test.n_gen;
  PUMICE_TRY(Sample sample, run_requests(engine, std::move(prompts), wanted, test.n_depth, stop));
  if (test.n_prompt == 0) {  // its first token is one of those generated
    sample.ttft_ns.clear();
    sample.prefill_ns = 0;
  }
  return sample;
}

Status warm_up(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t sample,
               const std::function<bool()>& stop) {
  constexpr uint32_t kWarmUpTokens = 8;
  if (test.n_depth > 0) PUMICE_TRY_STATUS(fill_depth(engine, n_vocab, test, stop));
  ModelTest some = test;
  some.n_gen = std::min(some.n_gen, kWarmUpTokens);
  PUMICE_TRY_STATUS(run_sample(engine, n_vocab, some, sample, stop));
  return {};
}

ModelRow bench_model(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t repetitions,
                     const std::function<bool()>& stop, uint32_t first_sample) {
  ModelRow row{.test = test, .started = utc_now(), .kv_type = engine.options().kv_type};
  const Status status = fill(row, engine, n_vocab, repetitions, stop, first_sample);
  if (!status.ok()) row.error = status.error();
  row.variants = engine.variants();
  return row;
}

namespace {

void check_after(ModelRow& row, const Status& right) {
  row.checked_after = right.ok();
  if (right.ok() || right.error().code == ErrorCode::kDoesNotFit) return;
  row.samples.clear();
  row.error = right.error();
}

}  // namespace

EngineOptions engine_options(const TestGroup& group, EngineOptions base) {
  constexpr uint64_t kMostContext = std::numeric_limits<uint32_t>::max();
  const ModelTest& test = group.tests.front();
  if (base.context_tokens == 0) {
    base.context_tokens = static_cast<uint32_t>(std::min(group.context_tokens, kMostContext));
  }
  base.n_sequences = test.n_parallel;
  base.token_budget = test.n_batch;
  base.chunk_tokens = test.n_ubatch;
  base.prefix_cache = group.has_depth;
  base.greedy_only = true;
  if (group.has_depth) {
    // One more a request: the block that a partial one is copied from stays beside the copy.
    const uint64_t blocks =
        (uint64_t{base.context_tokens} + kKvBlockTokens - 1) / kKvBlockTokens + 1;
    base.kv_blocks = static_cast<uint32_t>(std::min(test.n_parallel * blocks, kMostContext));
  }
  return base;
}

std::vector<ModelRow> bench_models(std::span<const ModelTest> tests, const ModelBench& bench) {
  std::vector<ModelRow> rows;
  std::optional<Error> ended;
  const auto end = [&](ModelRow row) {
    if (row.error && row.error->code != ErrorCode::kDoesNotFit) ended = row.error;
    rows.push_back(std::move(row));
    if (bench.ended) bench.ended(rows.back());
  };
  for (const TestGroup& group : group_tests(tests)) {
    std::unique_ptr<Engine> engine;
    std::optional<Error> no_engine = ended;
    if (!ended) {
      Result<std::unique_ptr<Engine>> made = bench.make_engine(group);
      if (made.ok()) engine = std::move(*made);
      if (!made.ok()) no_engine = made.error();
    }
    for (const ModelTest& test : group.tests) {
      if (no_engine || ended) {
        end({.test = test, .started = utc_now(), .error = ended ? ended : no_engine});
        continue;
      }
      if (bench.begins) bench.begins(test);
      if (const Status waited = wait(bench.delay_s, bench.stop); !waited.ok()) {
        end({.test = test, .started = utc_now(), .error = waited.error()});
        continue;
      }
      const auto first_sample = static_cast<uint32_t>(rows.size()) * (bench.repetitions + 1);
      const auto read_machine = [&] { return bench.read_machine ? bench.read_machine() : Json(); };
      const Json before = read_machine();
      ModelRow row =
          bench_model(*engine, bench.n_vocab, test, bench.repetitions, bench.stop, first_sample);
      if (!before.is_null()) row.machine = {{"before", before}, {"after", read_machine()}};
      if (bench.check && !row.error) check_after(row, bench.check());
      end(std::move(row));
    }
    if (engine && bench.engine_done) bench.engine_done(*engine);
  }
  return rows;
}

Status verdict(std::span<const ModelRow> rows) {
  const Error* worst = nullptr;
  for (const ModelRow& row : rows) {
    if (!row.error) continue;
    if (worst == nullptr || row.error->code == ErrorCode::kDeviceLost) worst = &*row.error;
  }
  if (worst != nullptr) return *worst;
  return {};
}

ModelRecord model_record(const std::string& filename, const GgufFile& file) {
  ModelRecord record{.filename = filename};
  std::map<std::string_view, uint64_t> elements_of_type;
  for (const GgufTensor& tensor : file.tensors()) {
    record.size_bytes += tensor.n_bytes;
    record.n_params += tensor.n_elements();
    elements_of_type[tensor.type->name] += tensor.n_elements();
  }
  const auto commonest = std::ranges::max_element(
      elements_of_type, [](auto& a, auto& b) { return a.second < b.second; });
  const auto params = static_cast<double>(record.n_params);
  const Result<std::string_view> architecture = file.get<std::string_view>("general.architecture");
  record.type = fmt::format("{} {} {}", architecture.ok() ? *architecture : "model",
                            params >= 1e9 ? fmt::format("{:.2f} B", params * 1e-9)
                                          : fmt::format("{:.2f} M", params * 1e-6),
                            commonest == elements_of_type.end() ? "empty" : commonest->first);
  return record;
}

Json to_json(const ModelRow& row, const ModelRecord& model) {
  const std::string kv_name = row.kv_type.name();
  std::vector<double> samples_ns;
  for (const Sample& sample : row.samples) samples_ns.push_back(sample.ns);
  const Summary ns = summarize(samples_ns);
  const Summary rate = summarize(row.rates());
  Json record{{"build_commit", build_commit()},
              {"build_dirty", build_is_dirty()},
              {"build_number", 0},
              {"backends", "Vulkan"},
              {"model_filename", model.filename},
              {"model_type", model.type},
              {"model_size", model.size_bytes},
              {"model_n_params", model.n_params},
              {"n_batch", row.test.n_batch},
              {"n_ubatch", row.test.n_ubatch},
              {"type_k", kv_name},
              {"type_v", kv_name},
              {"n_prompt", row.test.n_prompt},
              {"n_gen", row.test.n_gen},
              {"n_depth", row.test.n_depth},
              {"test_time", row.started},
              {"avg_ns", ns.mean},
              {"stddev_ns", ns.stddev},
              {"avg_ts", rate.mean},
              {"stddev_ts", rate.stddev},
              {"samples_ns", samples_ns},
              {"samples_ts", row.rates()}};
  record.update(fixed_keys());
  record["test"] = row.test.name();
  record["n_parallel"] = row.test.n_parallel;
  record["median_ns"] = ns.median;
  record["median_ts"] = rate.median;
  const auto add = [&](const std::string& name, const std::vector<double>& samples) {
    record["samples_" + name] = samples;
    record["median_" + name] =
        samples.empty() ? std::numeric_limits<double>::quiet_NaN() : summarize(samples).median;
  };
  add("ttft_ns", row.test.n_prompt > 0 ? row.ttft_ns() : std::vector<double>());
  add("prefill_ts", row.test.n_prompt > 0 ? row.prefill_rates() : std::vector<double>());
  add("decode_ts", row.test.n_gen > 0 ? row.decode_rates() : std::vector<double>());
  record["variants"] = row.variants;
  record["shader_hash"] = fmt::format("{:016x}", spirv_hash());
  for (const auto& [key, value] : model.run.items()) record[key] = value;
  record["evidence"] = model.evidence ? to_json(*model.evidence) : Json{{"checked", false}};
  record["variants_not_checked"] =
      model.evidence ? Json(model.evidence->unchecked(row.variants)) : Json();
  record["checked_after"] = model.evidence && row.checked_after;
  record["machine"] = row.machine;
  record["error"] = row.error ? Json(row.error->message) : Json();
  return record;
}

std::string to_pts(const ModelRow& row) {
  if (row.error || row.samples.empty()) return {};
  return fmt::format("{}: {:.2f} t/s\n", row.test.name(), summarize(row.rates()).median);
}

std::string to_markdown(std::span<const ModelRow> rows, const ModelRecord& model) {
  std::string text =
      "| model | size | params | test | t/s | prefill t/s | decode t/s | TTFT ms |\n"
      "| :-- | --: | --: | --: | --: | --: | --: | --: |\n";
  for (const ModelRow& row : rows) {
    const Summary rate = summarize(row.rates());
    text += fmt::format(
        "| {} | {:.2f} MiB | {:.2f} M | {} | {} | {} | {} | {} |\n", model.type,
        static_cast<double>(model.size_bytes) / (1 << 20),
        static_cast<double>(model.n_params) * 1e-6, row.test.name(),
        row.error ? row.error->message : fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.stddev),
        median_cell(row.prefill_rates()), median_cell(row.decode_rates()),
        median_cell(row.ttft_ns(), 1e-6));
  }
  return text;
}

}  // namespace pumice::bench
