#include "bench/model_bench.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <random>

#include "bench/device_record.hpp"
#include "bench/statistics.hpp"
#include "shaders/spirv.hpp"

namespace pumice::bench {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

/// From submission until `test` is done; generation starts from one token.
Result<double> run_once(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t seed,
                        const std::function<bool()>& stop) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt(std::max(test.n_prompt, 1u));
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % n_vocab);
  const uint32_t wanted = std::max(test.n_gen, 1u);
  const auto start = Clock::now();
  PUMICE_TRY(const RequestId id, engine.submit({.prompt = std::move(prompt),
                                                .max_new_tokens = wanted,
                                                .sampling = {.temperature = 0}}));
  uint32_t n_tokens = 0;
  Clock::time_point end = start;
  while (n_tokens < wanted) {
    if (stop()) {
      engine.cancel(id);
      return make_error(ErrorCode::kCancelled, "interrupted");
    }
    PUMICE_TRY(const std::vector<StepEvent> events, engine.step());
    if (events.empty()) {
      return make_error(ErrorCode::kInternal, "the engine stopped after {} of {} tokens", n_tokens,
                        wanted);
    }
    for (const StepEvent& event : events) n_tokens += event.token ? 1 : 0;
    end = Clock::now();
  }
  engine.cancel(id);
  while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());  // what was under way
  return std::chrono::duration<double, std::nano>(end - start).count();
}

Status fill(ModelRow& row, Engine& engine, uint32_t n_vocab, uint32_t repetitions,
            const std::function<bool()>& stop) {
  constexpr uint32_t kWarmUpTokens = 8;
  ModelTest warm_up = row.test;
  warm_up.n_gen = std::min(warm_up.n_gen, kWarmUpTokens);
  PUMICE_TRY_STATUS(run_once(engine, n_vocab, warm_up, 0, stop));
  for (uint32_t i = 0; i < repetitions; ++i) {
    PUMICE_TRY(const double ns, run_once(engine, n_vocab, row.test, i + 1, stop));
    row.samples_ns.push_back(ns);
  }
  return {};
}

const char* kv_name(const Engine& engine) {
  return engine.options().kv_type == KvType::kF32 ? "f32" : "f16";
}

}  // namespace

std::string ModelTest::name() const {
  return n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
}

std::vector<double> ModelRow::samples_per_second() const {
  std::vector<double> rates;
  for (const double ns : samples_ns) rates.push_back(test.n_tokens() * 1e9 / ns);
  return rates;
}

ModelFacts model_facts(const std::string& filename, const GgufFile& file) {
  ModelFacts facts{.filename = filename};
  std::map<std::string_view, uint64_t> elements_of_type;
  for (const GgufTensor& tensor : file.tensors()) {
    facts.size_bytes += tensor.n_bytes;
    facts.n_params += tensor.n_elements();
    elements_of_type[tensor.type->name] += tensor.n_elements();
  }
  const auto commonest = std::max_element(elements_of_type.begin(), elements_of_type.end(),
                                          [](auto& a, auto& b) { return a.second < b.second; });
  const auto params = static_cast<double>(facts.n_params);
  const Result<std::string_view> architecture = file.get<std::string_view>("general.architecture");
  facts.type = fmt::format("{} {} {}", architecture.ok() ? *architecture : "model",
                           params >= 1e9 ? fmt::format("{:.2f} B", params * 1e-9)
                                         : fmt::format("{:.2f} M", params * 1e-6),
                           commonest == elements_of_type.end() ? "empty" : commonest->first);
  return facts;
}

uint32_t context_for(std::span<const ModelTest> tests) {
  uint32_t tokens = 1;
  for (const ModelTest& test : tests) tokens = std::max(tokens, test.n_tokens() + 1);
  return tokens;
}

ModelRow bench_model(Engine& engine, uint32_t n_vocab, const ModelTest& test, uint32_t repetitions,
                     const std::function<bool()>& stop) {
  ModelRow row{.test = test, .started = utc_now()};
  const Status status = fill(row, engine, n_vocab, repetitions, stop);
  if (!status.ok()) row.error = status.error();
  return row;
}

Json to_json(std::span<const ModelRow> rows, const ModelFacts& model, const Engine& engine,
             const vk::Device& device) {
  Json records = Json::array();
  for (const ModelRow& row : rows) {
    const Summary ns = summarize(row.samples_ns);
    const std::vector<double> rates = row.samples_per_second();
    const Summary per_second = summarize(rates);
    Json record{{"build_commit", PUMICE_COMMIT},
                {"build_number", 0},
                {"gpu_info", device.snapshot().name},
                {"cpu_info", ""},
                {"backends", "Vulkan"},
                {"model_filename", model.filename},
                {"model_type", model.type},
                {"model_size", model.size_bytes},
                {"model_n_params", model.n_params},
                {"n_batch", engine.options().token_budget},
                {"n_ubatch", engine.options().chunk_tokens},
                {"type_k", kv_name(engine)},
                {"type_v", kv_name(engine)},
                {"n_prompt", row.test.n_prompt},
                {"n_gen", row.test.n_gen},
                {"n_depth", 0},
                {"test_time", row.started},
                {"avg_ns", ns.mean},
                {"stddev_ns", ns.stddev},
                {"avg_ts", per_second.mean},
                {"stddev_ts", per_second.stddev},
                {"samples_ns", row.samples_ns},
                {"samples_ts", rates}};
    record["test"] = row.test.name();
    record["median_ns"] = ns.median;
    record["median_ts"] = per_second.median;
    record["variants"] = engine.variants();
    record["shader_hash"] = fmt::format("{:016x}", spirv_hash());
    record["device"] = device_to_json(device);
    if (row.error) record["error"] = row.error->message;
    records.push_back(std::move(record));
  }
  return records;
}

std::string to_markdown(std::span<const ModelRow> rows, const ModelFacts& model,
                        const vk::Device& device) {
  std::string text =
      "| model | size | params | device | test | t/s |\n| :-- | --: | --: | :-- | --: | --: |\n";
  for (const ModelRow& row : rows) {
    const Summary rate = summarize(row.samples_per_second());
    text += fmt::format(
        "| {} | {:.2f} MiB | {:.2f} M | {} | {} | {} |\n", model.type,
        static_cast<double>(model.size_bytes) / (1 << 20),
        static_cast<double>(model.n_params) * 1e-6, device.snapshot().name, row.test.name(),
        row.error ? row.error->message : fmt::format("{:.2f} ± {:.2f}", rate.mean, rate.stddev));
  }
  return text;
}

}  // namespace pumice::bench
