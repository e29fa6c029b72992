#include "bench/evidence.hpp"

#include <fmt/core.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.hpp"
#include "shaders/experts/experts.hpp"
#include "vk/transfer.hpp"

namespace pumice::bench {
namespace {

/// What DESIGN's "Numerics" allow, for what is least precise among what ran.
struct Bound {
  double nmse = 1e-9;
  std::string arithmetic = "f32 arithmetic";
};

/// Of keys or values that are kept so (docs/TUNING.md has what reference models lose).
double kv_loss(KvType type) {
  constexpr double kLosses[kKvTypeNames.size()] = {0, 1e-6, 2e-5, 3e-4, 8e-2};
  return kLosses[static_cast<size_t>(type)];
}

Bound bound_of(const std::set<std::string>& variants, KvTypes kv_type) {
  constexpr double kF16Inputs = 2e-6;
  constexpr double kI8Inputs = 5e-4;
  constexpr double kPlanesInputs = 1e-8;
  const auto ran = [&](std::string_view word) {
    return std::ranges::any_of(variants, [&](const std::string& name) {
      return (name + '.').find(word) != std::string::npos;
    });
  };
  Bound bound;
  if (ran(".i8.")) {
    bound = {kI8Inputs, "8-bit activations"};
  } else if (ran(".matrix.")) {
    bound = {kF16Inputs, "f16 inputs"};
  } else if (ran(".planes.")) {
    bound = {kPlanesInputs, "inputs in two planes of 8 bits"};
  }
  if (kv_type != KvType::kF32) {
    bound.nmse += std::max(kv_loss(kv_type.k), kv_loss(kv_type.v));
    bound.arithmetic += fmt::format(", {} KV", kv_type.name());
  }
  return bound;
}

using Tokens = std::span<const TokenId>;
using Stop = std::function<bool()>;

Status run_until_idle(Engine& engine, const Stop& stop) {
  while (!engine.idle()) {
    if (stop && stop()) return make_error(ErrorCode::kCancelled, "interrupted");
    PUMICE_TRY_STATUS(engine.step());
  }
  return {};
}

/// Where two experts are nearly as good, less precise arithmetic takes the other one, and all that
/// follows is another model's: so rows take those of the evaluation in fp64. Rows before the
/// tokens' take any.
Status give_experts(Engine& engine, const ReferenceLogits& reference, uint32_t first_token,
                    uint32_t n_before) {
  PUMICE_CHECK(engine.routes().size() == reference.experts.size(), "other routers");
  vk::Uploader uploader(engine.device());
  for (size_t router = 0; router < reference.experts.size(); ++router) {
    const std::vector<uint32_t>& experts = reference.experts[router];
    const vk::BufferRange& routes = engine.routes()[router];
    const size_t n_used = experts.size() / kEvidenceTokens;
    const size_t n_rows = routes.size_bytes / (n_used * ops::kRouteBytes);
    std::vector<uint32_t> words;  // ids and weights, which follow
    for (size_t row = 0; row < n_rows; ++row) {
      const size_t token = first_token + (row < n_before ? 0 : row - n_before);
      for (size_t rank = 0; rank < n_used; ++rank) {
        words.push_back(experts[token % kEvidenceTokens * n_used + rank]);
        words.push_back(0);
      }
    }
    PUMICE_TRY_STATUS(uploader.write(routes, std::span<const uint32_t>(words)));
  }
  return {};
}

/// float [n_last][n_vocab] of the last tokens, in chunks of the engine's size.
Result<std::vector<float>> logits_of(Engine& engine, Tokens tokens, uint32_t n_last,
                                     const Stop& stop) {
  const size_t first = tokens.size() - n_last;
  std::vector<float> logits;
  const auto add = [&](uint32_t position, std::span<const float> row) {
    if (position >= first) logits.insert(logits.end(), row.begin(), row.end());
  };
  PUMICE_TRY_STATUS(engine.submit({.prompt = {tokens.begin(), tokens.end()},
                                   .on_logits = add,
                                   .logits = GenerationRequest::Logits::kComputed}));
  PUMICE_TRY_STATUS(run_until_idle(engine, stop));
  return logits;
}

/// Of one position.
struct Best {
  TokenId token = 0;
  double value = 0;
};
template <typename T>
Best best_of(std::span<const T> logits) {
  const auto best = std::ranges::max_element(logits);
  return {static_cast<TokenId>(best - logits.begin()), static_cast<double>(*best)};
}

void compare(EvidencePass& pass, std::span<const float> got, std::span<const double> expected,
             size_t n_vocab) {
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - expected[i];
    error += difference * difference;
    power += expected[i] * expected[i];
  }
  pass.nmse = std::isfinite(error) && power > 0 ? error / power : INFINITY;
  for (size_t first = 0; first < got.size(); first += n_vocab) {
    pass.top1.push_back(best_of(got.subspan(first, n_vocab)).token);
  }
  pass.digest = logits_digest(got);
}

/// A margin is clear above what the bound allows a pair of logits to move: six deviations, and the
/// 0.01 below which no two implementations need agree.
void compare_top1(EvidencePass& pass, std::span<const double> expected, size_t n_vocab,
                  double bound) {
  constexpr double kLeast = 0.01;
  constexpr double kDeviations = 6;
  double power = 0;
  for (const double value : expected) power += value * value;
  const double deviation = std::sqrt(2 * bound * power / static_cast<double>(expected.size()));
  const double clear = std::max(kLeast, kDeviations * deviation);
  for (size_t position = 0; position < pass.top1.size(); ++position) {
    const auto logits = expected.subspan(position * n_vocab, n_vocab);
    const Best best = best_of(logits);
    double second = -INFINITY;
    for (size_t i = 0; i < n_vocab; ++i) {
      if (i != best.token) second = std::max(second, logits[i]);
    }
    if (best.value - second <= clear) {
      ++pass.top1_unclear;
    } else if (pass.top1[position] != best.token) {
      ++pass.top1_differ;
    }
  }
}

}  // namespace

uint64_t logits_digest(std::span<const float> logits) {
  std::vector<int32_t> rounded;
  rounded.reserve(logits.size());
  for (const float logit : logits) {
    const double steps = std::clamp(static_cast<double>(logit) * 1024, -2e9, 2e9);
    rounded.push_back(std::isfinite(logit) ? static_cast<int32_t>(std::lround(steps)) : INT32_MIN);
  }
  return XXH3_64bits(rounded.data(), rounded.size() * sizeof(int32_t));
}

std::vector<TokenId> evidence_prompt(uint32_t n_vocab, uint32_t n_tokens) {
  std::mt19937 random(20261120);
  std::vector<TokenId> tokens(n_tokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % n_vocab);
  return tokens;
}

std::set<std::string> Evidence::unchecked(const std::set<std::string>& measured) const {
  std::set<std::string> left;
  std::ranges::set_difference(measured, variants, std::inserter(left, left.end()));
  return left;
}

Result<Evidence> gather_evidence(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                 const std::shared_ptr<const Model>& model,
                                 const ModelSource& source, const EvidenceOptions& options) {
  const uint32_t n_vocab = model->program.n_vocab;
  const std::vector<TokenId> tokens = evidence_prompt(n_vocab);
  std::shared_ptr<const ReferenceLogits> known = options.reference;
  if (!known) {
    PUMICE_TRY(ReferenceLogits computed, reference_logits(source, model->program, tokens,
                                                          {.seconds = options.seconds,
                                                           .stop = options.stop,
                                                           .context_tokens = kEvidenceTokens}));
    known = std::make_shared<const ReferenceLogits>(std::move(computed));
  }
  const ReferenceLogits& reference = *known;
  Evidence evidence{.reference = known,
                    .n_tokens = kEvidenceTokens,
                    .layers_checked = reference.n_layers,
                    .n_layers = model->n_layers(),
                    .reference_seconds = reference.seconds};
  const std::shared_ptr<const Model> checked =
      reference.n_layers == evidence.n_layers ? model : model->first_layers(reference.n_layers);
  EngineOptions engine_options{
      .kv_type = options.kv_type,
      .math = options.math,
      .context_tokens = kEvidenceTokens,
      .token_budget = kEvidenceTokens,
      .chunk_tokens = kEvidenceTokens,
      .prefix_cache = false,  // which cuts prompts where it keeps states
      .prompt_logits = true,
      .greedy_only = true,
      .routing = reference.experts.empty() ? Routing::kChosen : Routing::kGiven};
  const auto expected_of = [&](const EvidencePass& pass) {
    return std::span(reference.logits).last(size_t{pass.n_tokens} * n_vocab);
  };
  const auto add_pass = [&](EvidencePass pass, const Result<std::vector<float>>& logits) -> Status {
    if (!logits.ok()) return logits.error();
    const std::span<const double> expected = expected_of(pass);
    if (logits->size() != expected.size()) {
      return make_error(ErrorCode::kInternal, "{}: {} logits came back, not {}", pass.name,
                        logits->size(), expected.size());
    }
    compare(pass, *logits, expected, n_vocab);
    evidence.passes.push_back(std::move(pass));
    return {};
  };
  const auto run = [&](const EvidencePass& pass, Tokens before) -> Status {
    PUMICE_TRY(const std::unique_ptr<Engine> engine,
               Engine::create(pipelines, checked, engine_options));
    if (!before.empty()) {
      PUMICE_TRY_STATUS(engine->submit({.prompt = {before.begin(), before.end()}}));
    }
    uint32_t n_steps = 0;  // one is under way at a time
    const auto give = [&](StepStage stage) -> Status {
      if (stage != StepStage::kSubmit || reference.experts.empty()) return {};
      return give_experts(*engine, reference, n_steps++ * engine_options.chunk_tokens,
                          static_cast<uint32_t>(before.size()));
    };
    engine->set_hooks({.at_stage = give});
    PUMICE_TRY_STATUS(add_pass(pass, logits_of(*engine, tokens, pass.n_tokens, options.stop)));
    evidence.variants.insert(engine->variants().begin(), engine->variants().end());
    return {};
  };
  PUMICE_TRY_STATUS(run({"prefill", kEvidenceTokens, kEvidenceTokens}, {}));
  engine_options.chunk_tokens = 1;
  PUMICE_TRY_STATUS(run({"decode", kEvidenceDecodeTokens, 1}, {}));
  if (options.batch_rows > 0) {
    const uint32_t rows = kEvidenceTokens + options.batch_rows;
    engine_options.context_tokens = rows;
    engine_options.n_sequences = 2;
    engine_options.token_budget = engine_options.chunk_tokens = rows;
    PUMICE_TRY_STATUS(
        run({"batch", kEvidenceTokens, rows}, evidence_prompt(n_vocab, options.batch_rows)));
  }
  const Bound bound = bound_of(evidence.variants, options.kv_type);
  evidence.bound = bound.nmse;
  evidence.bound_for = bound.arithmetic;
  for (EvidencePass& pass : evidence.passes) {
    compare_top1(pass, expected_of(pass), n_vocab, bound.nmse);
  }
  return evidence;
}

Status verdict(const Evidence& evidence) {
  for (const EvidencePass& pass : evidence.passes) {
    if (!(pass.nmse <= evidence.bound)) {
      return make_error(ErrorCode::kSelfTestFailed,
                        "no score: logits of {} are off from fp64 by {:.1e} (mean square over mean "
                        "square), above the {:.1e} of {}; pumice info --self-test names the kernel",
                        pass.name, pass.nmse, evidence.bound, evidence.bound_for);
    }
    if (pass.top1_differ > 0) {
      return make_error(ErrorCode::kSelfTestFailed,
                        "no score: in {} the best token at {} of {} positions differs from fp64's; "
                        "pumice info --self-test names the kernel",
                        pass.name, pass.top1_differ, pass.n_tokens);
    }
  }
  return {};
}

nlohmann::json to_json(const Evidence& evidence) {
  nlohmann::json json{{"checked", true},
                      {"passed", verdict(evidence).ok()},
                      {"tokens", evidence.n_tokens},
                      {"layers_checked", evidence.layers_checked},
                      {"layers", evidence.n_layers},
                      {"nmse_bound", evidence.bound},
                      {"bound_for", evidence.bound_for},
                      {"reference", "fp64 on the CPU"},
                      {"reference_s", evidence.reference_seconds},
                      {"variants", evidence.variants}};
  if (!evidence.passes.empty()) json["top1"] = evidence.passes.front().top1;
  json["passes"] = nlohmann::json::array();
  for (const EvidencePass& pass : evidence.passes) {
    nlohmann::json entry{{"name", pass.name},
                         {"tokens", pass.n_tokens},
                         {"rows", pass.rows},
                         {"top1_differ", pass.top1_differ},
                         {"top1_unclear", pass.top1_unclear},
                         {"digest", fmt::format("{:016x}", pass.digest)}};
    entry["nmse"] = std::isfinite(pass.nmse) ? nlohmann::json(pass.nmse) : nlohmann::json("inf");
    json["passes"].push_back(std::move(entry));
  }
  return json;
}

std::string describe(const Evidence& evidence) {
  double worst = 0;
  for (const EvidencePass& pass : evidence.passes) worst = std::max(worst, pass.nmse);
  const std::string layers =
      evidence.layers_checked == evidence.n_layers
          ? ""
          : fmt::format(", first {} of {} layers", evidence.layers_checked, evidence.n_layers);
  return fmt::format("logits of {} tokens within {:.1e} of fp64 (bound {:.0e}: {}{})",
                     evidence.n_tokens, worst, evidence.bound, evidence.bound_for, layers);
}

}  // namespace pumice::bench
