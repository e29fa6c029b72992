#include "bench/advise.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "bench/statistics.hpp"
#include "bench/timed_request.hpp"
#include "shaders/spirv.hpp"

namespace pumice::bench {
namespace {

/// Patterns of the kernels in use that others could stand in for: "gemm.*.broadcast".
std::set<std::string> replaceable_variants(const vk::PipelineLibrary& pipelines) {
  std::set<std::string> patterns;
  for (const std::string& name : pipelines.declared_modules()) {
    const std::string_view family = module_family(name);
    if (family.size() == name.size()) continue;  // what everything falls back to
    const bool has_other =
        std::ranges::any_of(spirv_modules(), [&](const vk::ShaderModule& module) {
          return module.name != name && module_family(module.name) == family &&
                 pipelines.obstacle(module).empty();
        });
    if (!has_other) continue;
    const size_t type = family.find('.');
    const std::string_view suffix = std::string_view(name).substr(family.size());
    patterns.insert(fmt::format("{}{}{}", family.substr(0, type),
                                type == std::string_view::npos ? "" : ".*", suffix));
  }
  return patterns;
}

class Adviser {
 public:
  Adviser(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
          const std::function<std::shared_ptr<vk::PipelineLibrary>()>& open_pipelines,
          const std::shared_ptr<const Model>& model, Advice& advice)
      : pipelines_(pipelines),
        open_pipelines_(open_pipelines),
        model_(model),
        advice_(advice),
        options_(advice.options) {}

  Status run() {
    PUMICE_TRY(base_, engine(pipelines_, {}, false));
    PUMICE_TRY_STATUS(warm_up(*base_));
    for (const auto& [text, flags] : configurations())
      PUMICE_TRY_STATUS(configuration(text, flags));
    PUMICE_TRY_STATUS(combine());
    PUMICE_TRY_STATUS(reuse());
    PUMICE_TRY_STATUS(window(2, "half the prompt"));
    PUMICE_TRY_STATUS(window(4, "a quarter of the prompt"));
    for (const LeverRow& row : advice_.levers) {
      append(advice_.now.ttft_ns, row.base.ttft_ns);
      append(advice_.now.tpot_ns, row.base.tpot_ns);
    }
    return arrivals();
  }

 private:
  using Sample = std::function<Result<Generated>(uint32_t seed)>;

  static void append(std::vector<double>& to, const std::vector<double>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  void begins(const std::string& what) const {
    if (options_.begins) options_.begins(what);
  }

  Result<std::shared_ptr<vk::PipelineLibrary>> pipelines_for(const Configuration& configuration) {
    if (configuration.variants.empty()) return pipelines_;
    std::shared_ptr<vk::PipelineLibrary> pipelines = open_pipelines_();
    PUMICE_TRY_STATUS(choose_variants(*pipelines, configuration));
    return pipelines;
  }

  Result<std::unique_ptr<Engine>> engine(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                         const Configuration& configuration, bool prefix_cache) {
    EngineOptions options = configuration.applied_to(options_.engine);
    options.context_tokens = options_.n_prompt + options_.n_gen + 1;
    options.prefix_cache = prefix_cache;
    options.greedy_only = true;
    return Engine::create(pipelines, model_, options);
  }

  Result<Generated> request(Engine& engine, uint32_t n_prompt, uint32_t seed) const {
    return generate(engine, random_prompt(n_prompt, model_->program.n_vocab, seed),
                    options_.n_gen + 1, options_.stop);
  }

  Status warm_up(Engine& engine) {
    PUMICE_TRY_STATUS(request(engine, options_.n_prompt, 0));
    return {};
  }

  /// Rounds of what runs now and of a lever, which goes first in every other one.
  Status measure(LeverRow& row, const Sample& sample) {
    const auto keep = [](Latencies& latencies, const Generated& generated) {
      latencies.ttft_ns.push_back(generated.ttft_ns());
      latencies.tpot_ns.push_back(generated.tpot_ns());
    };
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      const uint32_t seed = ++seed_;
      const bool lever_first = round % 2 == 1;
      std::optional<Generated> with;
      if (lever_first) {
        PUMICE_TRY(with, sample(seed));
      }
      PUMICE_TRY(const Generated base, request(*base_, options_.n_prompt, seed));
      if (!lever_first) {
        PUMICE_TRY(with, sample(seed));
      }
      keep(row.base, base);
      keep(row.with, *with);
    }
    return {};
  }

  std::vector<std::pair<std::string, std::string>> configurations() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string_view math : ops::kMathNames) {
      if (math == "auto" || math == ops::math_name(options_.engine.math)) continue;
      all.emplace_back(fmt::format("math={}", math), fmt::format("--math {}", math));
    }
    const char* const kv = options_.engine.kv_type == KvType::kF16 ? "f32" : "f16";
    all.emplace_back(fmt::format("kv={}", kv), fmt::format("-ctk {} -ctv {}", kv, kv));
    for (const std::string& pattern : replaceable_variants(*pipelines_)) {
      all.emplace_back("variant=-" + pattern, "");
    }
    return all;
  }

  Status configuration(const std::string& text, const std::string& flags) {
    begins(text);
    PUMICE_TRY(const Configuration configuration, Configuration::parse(text));
    LeverRow row{.lever = text, .flags = flags};
    PUMICE_TRY(const std::shared_ptr<vk::PipelineLibrary> pipelines, pipelines_for(configuration));
    Result<std::unique_ptr<Engine>> made = engine(pipelines, configuration, false);
    if (!made.ok()) {
      if (made.error().code == ErrorCode::kDeviceLost) return made.error();
      row.note = "not on this device: " + made.error().message;
      advice_.levers.push_back(std::move(row));
      return {};
    }
    Engine& engine = **made;
    PUMICE_TRY_STATUS(warm_up(engine));
    if (configuration.variants.empty() && engine.variants() == base_->variants()) {
      row.note = "the same kernels run";
    } else if (Status right = check(pipelines, configuration, row); !right.ok()) {
      if (right.error().code != ErrorCode::kSelfTestFailed) return right;
      row.note = right.error().message;
    } else {
      PUMICE_TRY_STATUS(
          measure(row, [&](uint32_t seed) { return request(engine, options_.n_prompt, seed); }));
    }
    advice_.levers.push_back(std::move(row));
    return {};
  }

  Status check(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
               const Configuration& configuration, LeverRow& row) const {
    if (!options_.check) return {};
    const EngineOptions asked = configuration.applied_to(options_.engine);
    PUMICE_TRY(row.evidence, options_.check(pipelines, asked.kv_type, asked.math));
    return {};
  }

  /// The best arithmetic and the best KV type together, where both help.
  Status combine() {
    std::string text;
    std::string flags;
    int n_parts = 0;
    for (const std::string_view key : {"math=", "kv="}) {
      const LeverRow* best = nullptr;
      for (const LeverRow& row : advice_.levers) {
        if (!row.measured() || !row.lever.starts_with(key)) continue;
        if (advice_.score(row.with) >= advice_.score(row.base)) continue;
        if (best == nullptr || advice_.score(row.with) < advice_.score(best->with)) best = &row;
      }
      if (best == nullptr) continue;
      if (n_parts > 0) {
        text += ',';
        flags += ' ';
      }
      text += best->lever;
      flags += best->flags;
      ++n_parts;
    }
    if (n_parts < 2) return {};
    return configuration(text, flags);
  }

  Status reuse() {
    begins("the prompt again");
    LeverRow row{.kind = LeverRow::Kind::kReuse,
                 .lever = "the prompt again",
                 .flags = "--prompt-cache FILE"};
    PUMICE_TRY(const std::unique_ptr<Engine> cached, engine(pipelines_, {}, true));
    PUMICE_TRY_STATUS(warm_up(*cached));
    const Sample again = [&](uint32_t seed) -> Result<Generated> {
      PUMICE_TRY_STATUS(request(*cached, options_.n_prompt, seed));
      return request(*cached, options_.n_prompt, seed);
    };
    PUMICE_TRY_STATUS(measure(row, again));
    advice_.levers.push_back(std::move(row));
    return {};
  }

  Status window(uint32_t part, const std::string& name) {
    const uint32_t n_prompt = std::max(1u, options_.n_prompt / part);
    begins(name);
    LeverRow row{.kind = LeverRow::Kind::kWindow,
                 .lever = name,
                 .flags = fmt::format("-c {}", n_prompt + options_.n_gen)};
    PUMICE_TRY_STATUS(measure(row, [&](uint32_t seed) { return request(*base_, n_prompt, seed); }));
    advice_.levers.push_back(std::move(row));
    return {};
  }

  /// Chunks: what a prompt waits for and what streams beside it see.
  Status arrivals() {
    base_.reset();  // its memory
    const ServeOptions serve{.n_streams = options_.n_streams,
                             .long_prompt_tokens = options_.n_prompt,
                             .tpot_target_s = options_.tpot_target_s,
                             .chunk_tokens = {16, 64, 256},
                             .kv_type = options_.engine.kv_type,
                             .math = options_.engine.math,
                             .stop = options_.stop};
    Result<ServeReport> report = run_arrivals(
        pipelines_, model_, serve,
        [&](std::string_view what) { begins(fmt::format("streams beside a prompt: {}", what)); });
    if (report.ok()) {
      advice_.arrivals = std::move(report->arrivals);
      return {};
    }
    if (report.error().code != ErrorCode::kDoesNotFit) return report.error();
    advice_.arrivals_note = report.error().message;
    return {};
  }

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::function<std::shared_ptr<vk::PipelineLibrary>()> open_pipelines_;
  std::shared_ptr<const Model> model_;
  Advice& advice_;
  const AdviseOptions& options_;
  std::unique_ptr<Engine> base_;
  uint32_t seed_ = 0;
};

}  // namespace

double Latencies::ttft_s() const { return summarize(ttft_ns).median * 1e-9; }

double Latencies::tpot_s() const { return summarize(tpot_ns).median * 1e-9; }

bool Advice::ttft_met(double seconds) const {
  return options.ttft_target_s <= 0 || seconds <= options.ttft_target_s;
}

bool Advice::tpot_met(double seconds) const {
  return options.tpot_target_s <= 0 || seconds <= options.tpot_target_s;
}

bool Advice::met(const Latencies& latencies) const {
  return ttft_met(latencies.ttft_s()) && tpot_met(latencies.tpot_s());
}

double Advice::score(const Latencies& latencies) const {
  const auto part = [](double seconds, double target) { return target > 0 ? seconds / target : 0; };
  return std::max(part(latencies.ttft_s(), options.ttft_target_s),
                  part(latencies.tpot_s(), options.tpot_target_s));
}

const LeverRow* Advice::chosen() const {
  for (const auto kind :
       {LeverRow::Kind::kConfiguration, LeverRow::Kind::kReuse, LeverRow::Kind::kWindow}) {
    const LeverRow* best = nullptr;
    for (const LeverRow& row : levers) {
      if (row.kind != kind || !row.measured() || !met(row.with)) continue;
      // Of windows the largest, which comes first; else the fastest.
      if (best == nullptr ||
          (kind != LeverRow::Kind::kWindow && score(row.with) < score(best->with))) {
        best = &row;
      }
    }
    if (best != nullptr) return best;
  }
  return nullptr;
}

Advice advise(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
              const std::function<std::shared_ptr<vk::PipelineLibrary>()>& open_pipelines,
              const std::shared_ptr<const Model>& model, const AdviseOptions& options) {
  Advice advice{.options = options};
  const Status status = Adviser(pipelines, open_pipelines, model, advice).run();
  if (!status.ok()) advice.ended = status.error();
  return advice;
}

}  // namespace pumice::bench
