#include "models/program_keys.hpp"

#include <algorithm>
#include <string>

namespace pumice {
namespace {

/// Families whose pages read Metadata::read_experts' keys.
constexpr std::array<std::string_view, 24> kWithExperts = {
    "afmoe",    "bailingmoe2",   "deepseek2",  "ernie4_5-moe", "gemma4",         "glm4moe",
    "gpt-oss",  "granitehybrid", "granitemoe", "jamba",        "kimi-linear",    "lfm2moe",
    "llama",    "mimo2",         "minimax-m2", "mistral4",     "nemotron_h_moe", "qwen35moe",
    "qwen3moe", "qwen3next",     "qwen3vlmoe", "smallthinker", "step35"};
/// Those of them that count shared experts; granitemoe has the width of all of them.
constexpr std::array<std::string_view, 24> kWithSharedExperts = {
    "afmoe",     "bailingmoe2", "deepseek2", "ernie4_5-moe", "glm4moe",      "gpt-oss",
    "jamba",     "kimi-linear", "llama",     "minimax-m2",   "mistral4",     "nemotron_h_moe",
    "qwen35moe", "qwen3moe",    "qwen3next", "qwen3vlmoe",   "smallthinker", "step35"};

constexpr TellingKey kKeys[] = {
    // clang-format off
    {"attention.causal", {"bert", "gemma-embedding", "modern-bert", "nomic-bert"}, {}, 1},
    {"attention.chunk_size"},
    {"attention.clamp_kqv"},
    {"attention.key_length_swa", {"gemma4"}, {}, 0, "attention.key_length"},
    {"attention.max_alibi_bias"},
    {"attention.output_scale", {}, {}, 1},
    {"attention.scale", {"granite", "granitehybrid", "granitemoe"}},
    {"attention.shared_kv_layers", {"gemma4"}},
    {"attention.sliding_window", {"afmoe", "cohere2", "exaone4", "gemma-embedding", "gemma2", "gemma3", "gemma4", "gpt-oss", "gptneo", "mimo2", "modern-bert", "smallthinker", "step35"}, {"llama", "phi3"}, 0, "context_length"},
    {"attention.sliding_window_pattern", {"afmoe", "cohere2", "exaone4", "gemma-embedding", "gemma2", "gemma3", "gemma4", "gpt-oss", "gptneo", "mimo2", "modern-bert", "step35"}, {"llama", "phi3"}, 1},
    {"attention.temperature_length", {"mistral3", "mistral4"}},
    {"attention.temperature_scale", {"mistral3", "mistral4"}},
    {"attention.value_length_swa", {"mimo2"}, {}, 0, "attention.key_length_swa"},
    {"attention.value_scale", {"mimo2"}, {}, 1},
    {"attn_logit_softcapping", {"gemma2"}},
    {"embedding_length_per_layer_input", {"gemma4"}},
    {"embedding_scale", {"granite", "granitehybrid", "granitemoe"}, {}, 1},
    {"expert_count", kWithExperts},
    {"expert_gating_func", kWithExperts, {}, 1},
    {"expert_group_count", kWithExperts, {}, 1},
    {"expert_shared_count", kWithSharedExperts},
    {"expert_weights_scale", kWithExperts, {}, 1},
    {"expert_shared_feed_forward_length", kWithExperts},
    {"final_logit_softcapping", {"gemma2", "gemma3", "gemma4"}},
    {"interleave_moe_layer_step", {"ernie4_5-moe"}, {}, 1},
    {"leading_dense_block_count", {"afmoe", "bailingmoe2", "deepseek2", "ernie4_5-moe", "glm4moe", "kimi-linear", "lfm2moe", "llama", "mimo2", "mistral4", "step35"}},
    {"logit_scale", {"cohere2", "command-r", "granite", "granitehybrid", "granitemoe"}, {}, 1},
    {"nextn_predict_layers", {"bailingmoe2", "deepseek2", "glm4moe", "mimo2", "mistral4", "qwen35", "qwen35moe", "qwen3next", "step35"}},
    {"residual_scale", {"granite", "granitehybrid", "granitemoe"}, {}, 1},
    {"rope.dimension_count_swa", {"gemma4"}, {}, 0, "rope.dimension_count"},
    {"rope.freq_base_swa", {"gemma-embedding", "gemma3", "gemma4", "mimo2", "modern-bert", "step35"}, {}, 0, "rope.freq_base"},
    {"rope.scaling.alpha", {"hunyuan-dense"}, {}, 1},
    {"rope.scaling.yarn_attn_factor", {}, {}, 1},
    {"rope.scaling.yarn_log_multiplier", {"deepseek2", "mistral3", "mistral4"}},
    {"router_logit_softcapping"},
    {"swiglu_clamp_exp", {"step35"}},
    {"swiglu_clamp_shexp", {"step35"}},
    // clang-format on
};

/// Whether it is a number, or a bool as one, that says what is so without it.
bool says_nothing(const GgufFile& file, const std::string& prefix, const TellingKey& key,
                  const GgufValue& value) {
  if (value.type == GgufValueType::kBool) {
    const Result<bool> flag = value.as<bool>();
    return flag.ok() && *flag == (key.neutral != 0);
  }
  const Result<double> number = value.as<double>();
  if (!number.ok()) return false;
  if (*number == 0 || *number == key.neutral) return true;
  if (key.same_as.empty()) return false;
  const GgufValue* const other = file.find(prefix + std::string(key.same_as));
  if (other == nullptr) return false;
  const Result<double> same = other->as<double>();
  return same.ok() && *same == *number;
}

}  // namespace

bool TellingKey::concerns(std::string_view architecture) const {
  return std::ranges::find(readers, architecture) == readers.end() &&
         std::ranges::find(left_out, architecture) == left_out.end();
}

std::span<const TellingKey> telling_keys() { return kKeys; }

Status check_keys(const GgufFile& file, std::string_view architecture) {
  const std::string prefix = std::string(architecture) + ".";
  for (const TellingKey& key : kKeys) {
    if (!key.concerns(architecture)) continue;
    const GgufValue* const value = file.find(prefix + std::string(key.key));
    if (value == nullptr || says_nothing(file, prefix, key, *value)) continue;
    return make_error(ErrorCode::kBadFile,
                      "{}: {} is not supported for this architecture; without it the model would "
                      "be another one",
                      value->key, value->describe());
  }
  return {};
}

}  // namespace pumice
