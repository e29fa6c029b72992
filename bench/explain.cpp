#include "bench/explain.hpp"

#include <algorithm>
#include <map>

#include "shaders/expert_gemm/expert_gemm.hpp"

namespace pumice::bench {
namespace {

constexpr std::string_view kSampling = "sampling";  // the engine's own commands after the model's

}  // namespace

std::optional<Component> component_of_part(std::string_view part) {
  // As the cost model counts them: what a recurrence reads is made by matrices that count as gate
  // and up.
  static constexpr std::pair<std::string_view, Component> kParts[] = {
      {"embedding", Component::kEmbedding},
      {"token_embd", Component::kEmbedding},
      {"token_embd_norm", Component::kEmbedding},
      {"token_types", Component::kEmbedding},
      {"position_embd", Component::kEmbedding},
      {"embed_scale", Component::kEmbedding},
      {"nextn.embed_tokens", Component::kEmbedding},
      {"per_layer_token_embd", Component::kEmbedding},
      {"per_layer_model_proj", Component::kEmbedding},
      {"per_layer_proj_norm", Component::kEmbedding},
      {"rms_norm", Component::kNorms},
      {"head_norm", Component::kNorms},
      {"attn_norm", Component::kNorms},
      {"attn_norm_2", Component::kNorms},
      {"attn_q_norm", Component::kNorms},
      {"attn_k_norm", Component::kNorms},
      {"attn_q_a_norm", Component::kNorms},
      {"attn_kv_a_norm", Component::kNorms},
      {"attn_output_norm", Component::kNorms},
      {"post_attention_norm", Component::kNorms},
      {"ffn_norm", Component::kNorms},
      {"ffn_norm_exps", Component::kNorms},
      {"ffn_post_norm", Component::kNorms},
      {"post_ffw_norm", Component::kNorms},
      {"post_ffw_norm_1", Component::kNorms},
      {"post_ffw_norm_2", Component::kNorms},
      {"pre_ffw_norm_2", Component::kNorms},
      {"post_norm", Component::kNorms},
      {"layer_output_norm", Component::kNorms},
      {"output_norm", Component::kNorms},
      {"nextn.shared_head_norm", Component::kNorms},
      {"nextn.enorm", Component::kNorms},
      {"nextn.hnorm", Component::kNorms},
      {"ssm_norm", Component::kNorms},
      {"ssm_b_norm", Component::kNorms},
      {"ssm_c_norm", Component::kNorms},
      {"ssm_dt_norm", Component::kNorms},
      {"residual", Component::kNorms},
      {"scale", Component::kNorms},
      {"bias", Component::kNorms},
      {"qkv", Component::kQkv},
      {"attn_q", Component::kQkv},
      {"attn_k", Component::kQkv},
      {"attn_v", Component::kQkv},
      {"attn_qkv", Component::kQkv},
      {"attn_gate", Component::kQkv},
      {"attn_q_a", Component::kQkv},
      {"attn_q_b", Component::kQkv},
      {"attn_kv_a_mqa", Component::kQkv},
      {"attn_k_b", Component::kQkv},
      {"attn_kv_b", Component::kQkv},
      {"expand", Component::kQkv},
      {"gate", Component::kQkv},
      {"rope", Component::kRopeKv},
      {"rope_kv", Component::kRopeKv},
      {"split", Component::kRopeKv},
      {"concat", Component::kRopeKv},
      {"stack", Component::kRopeKv},
      {"attention", Component::kAttention},
      {"recurrence", Component::kRecurrence},
      {"ssm_conv1d", Component::kRecurrence},
      {"ssm_conv1d_q", Component::kRecurrence},
      {"ssm_conv1d_k", Component::kRecurrence},
      {"ssm_conv1d_v", Component::kRecurrence},
      {"shortconv.conv", Component::kRecurrence},
      {"attn_output", Component::kAttentionOutput},
      {"attn_v_b", Component::kAttentionOutput},
      {"ssm_out", Component::kAttentionOutput},
      {"shortconv.out_proj", Component::kAttentionOutput},
      {"router", Component::kRouter},
      {"ffn_gate_inp", Component::kRouter},
      {"ffn_gate_inp_shexp", Component::kRouter},
      {"gate_up", Component::kGateUp},
      {"ffn_up", Component::kGateUp},
      {"ffn_gate", Component::kGateUp},
      {"ffn_gate_up_exps", Component::kGateUp},
      {"ffn_gate_exps", Component::kGateUp},
      {"ffn_up_exps", Component::kGateUp},
      {"ffn_gate_shexp", Component::kGateUp},
      {"ffn_up_shexp", Component::kGateUp},
      {"ffn_latent_down", Component::kGateUp},
      {"ffn_latent_up", Component::kGateUp},
      {"inp_gate", Component::kGateUp},
      {"ssm_in", Component::kGateUp},
      {"ssm_x", Component::kGateUp},
      {"ssm_dt", Component::kGateUp},
      {"ssm_ba", Component::kGateUp},
      {"ssm_alpha", Component::kGateUp},
      {"ssm_beta", Component::kGateUp},
      {"ssm_f_a", Component::kGateUp},
      {"ssm_f_b", Component::kGateUp},
      {"ssm_g_a", Component::kGateUp},
      {"ssm_g_b", Component::kGateUp},
      {"shortconv.in_proj", Component::kGateUp},
      {"nextn.eh_proj", Component::kGateUp},
      {"activation", Component::kActivation},
      {"combine", Component::kActivation},
      {"ffn_down", Component::kDown},
      {"ffn_down_exps", Component::kDown},
      {"ffn_down_shexp", Component::kDown},
      {"proj", Component::kDown},
      {"output", Component::kOutput},
      {"nextn.shared_head_head", Component::kOutput},
  };
  const auto* const found =
      std::ranges::find(kParts, part, [](auto& entry) { return entry.first; });
  if (found == std::end(kParts)) return std::nullopt;
  return found->second;
}

namespace {

PhaseCost prefill(const ModelShape& shape, const ModelTest& test) {
  PhaseCost phase;
  std::vector<uint32_t> done(test.n_parallel, 0);
  for (size_t first = 0; test.n_prompt > 0 && first < done.size();) {
    std::vector<StepRows> batch;
    uint32_t budget = test.n_batch;
    uint32_t n_logit_rows = 0;
    for (size_t i = first; i < done.size() && budget > 0; ++i) {
      const uint32_t n = std::min({test.n_ubatch, budget, test.n_prompt - done[i]});
      if (n == 0) continue;
      batch.push_back({test.n_depth + done[i], n});
      budget -= n;
      done[i] += n;
      if (done[i] == test.n_prompt) ++n_logit_rows;
    }
    while (first < done.size() && done[first] == test.n_prompt) ++first;
    phase.cost += step_cost(shape, batch, n_logit_rows);
    phase.rows = std::max(phase.rows, test.n_batch - budget);
    phase.logit_rows = std::max(phase.logit_rows, n_logit_rows);
    ++phase.n_steps;
  }
  return phase;
}

PhaseCost decode(const ModelShape& shape, const ModelTest& test) {
  PhaseCost phase;
  if (test.n_gen > 0) phase.rows = phase.logit_rows = test.n_parallel;
  phase.n_steps = test.n_gen;
  std::vector<StepRows> batch(test.n_parallel);
  for (uint32_t i = 0; i < test.n_gen; ++i) {
    std::ranges::fill(batch, StepRows{test.n_depth + test.n_prompt + i, 1});
    phase.cost += step_cost(shape, batch, test.n_parallel);
  }
  return phase;
}

}  // namespace

Result<TestCost> test_cost(const ModelShape& shape, const ModelTest& test) {
  // Bounds of the counts, from above: all rows see all positions, all steps read all weights.
  const double rows = static_cast<double>(test.n_tokens());
  const double positions = static_cast<double>(test.n_depth) + test.n_prompt + test.n_gen;
  const StepRows row{0, 1};
  const Amount token = step_cost(shape, {&row, 1}, 1).total();
  const double attention = static_cast<double>(shape.flops_per_pair()) * positions;
  const double bytes = static_cast<double>(shape.file_bytes) + static_cast<double>(token.bytes()) +
                       positions * static_cast<double>(shape.kv_bytes_per_token());
  constexpr double kMost = 9e18;
  if (rows * std::max(static_cast<double>(token.flops) + attention, bytes) > kMost) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: too large to count; give fewer tokens (-p, -n, -d)", test.name());
  }
  return TestCost{.prefill = prefill(shape, test), .decode = decode(shape, test)};
}

vk::Arithmetic ArithmeticInUse::of(const PhaseCost& phase, Component component) const {
  const uint32_t rows = component == Component::kOutput ? phase.logit_rows : phase.rows;
  const auto& all = rows > ops::Gemv::kMaxRows ? many_rows : few_rows;
  return all.at(static_cast<size_t>(component));
}

uint32_t rows_of_a_prompt(const ModelShape& shape) {
  uint32_t rows = 24;
  while (shape.n_experts > 0 &&
         !ops::ExpertGemm::suits(rows, shape.n_experts_used, shape.n_experts)) {
    rows *= 2;
  }
  return rows;
}

Result<ArithmeticInUse> arithmetic_in_use(Engine& engine, uint32_t n_prompt) {
  ArithmeticInUse result;
  std::string unknown;
  std::array<std::array<uint64_t, kComponentCount>, 2> most_flops{};
  engine.set_hooks({.observer = [&](const StepTrace& step, const vk::RecordedWork& work) {
    const bool many = step.prefill_tokens > 1;
    for (const vk::CommandInfo& command : work.commands()) {
      if (command.cost.flops == 0 || command.scope.part == kSampling) continue;
      const std::optional<Component> component = component_of_part(command.scope.part);
      if (!component) {
        unknown = command.scope.part;
        continue;
      }
      // What most of its work is done in: biases and partial sums are added in fp32 whatever the
      // products are.
      const auto i = static_cast<size_t>(*component);
      if (command.cost.flops <= most_flops.at(many)[i]) continue;
      most_flops.at(many)[i] = command.cost.flops;
      (many ? result.many_rows : result.few_rows).at(i) = command.cost.arithmetic;
    }
  }});
  const auto run = [&]() -> Status {
    PUMICE_TRY_STATUS(engine.submit({.prompt = std::vector<TokenId>(n_prompt, 0),
                                     .max_new_tokens = 3,
                                     .sampling = {.temperature = 0}}));
    while (!engine.idle()) PUMICE_TRY_STATUS(engine.step());
    return {};
  };
  const Status status = run();
  engine.set_hooks({});
  // A prompt has one row of logits, however long it is; many are a matrix product like any other.
  result.many_rows.at(static_cast<size_t>(Component::kOutput)) =
      result.many_rows.at(static_cast<size_t>(Component::kDown));
  if (!status.ok()) return status.error();
  if (!unknown.empty()) {
    return make_error(ErrorCode::kInternal,
                      "this version does not know what the part \"{}\" of a step is, and so not "
                      "which peak to hold it "
                      "against: a fault of pumice (component_of_part in bench/explain.cpp)",
                      unknown);
  }
  return result;
}

Roofline reading_roofline(const Peaks& peaks) {
  Roofline roofline = peaks.roofline();
  for (const Peak& peak : peaks.peaks) {
    if (peak.name == "read bandwidth") roofline.bytes_per_ns = peak.value();
  }
  return roofline;
}

Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase, Component component) {
  const Amount& amount = phase.cost[component];
  return limit_of(speeds.roofline, vk::Cost{.bytes = amount.memory_bytes(),
                                            .flops = amount.flops,
                                            .arithmetic = speeds.arithmetic.of(phase, component)});
}

Limit floor_of(const DeviceSpeeds& speeds, const PhaseCost& phase) {
  Limit total;
  std::map<std::string, double> ns_by_bound;
  for (size_t i = 0; i < kComponentCount; ++i) {
    const Limit limit = floor_of(speeds, phase, static_cast<Component>(i));
    total.ns += limit.ns;
    ns_by_bound[limit.what] += limit.ns;
  }
  const auto most =
      std::ranges::max_element(ns_by_bound, [](auto& a, auto& b) { return a.second < b.second; });
  total.what = most->first;
  return total;
}

}  // namespace pumice::bench
