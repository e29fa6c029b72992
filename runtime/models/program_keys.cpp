#include "models/program_keys.hpp"

#include <algorithm>
#include <string>

namespace pumice {
namespace {

constexpr TellingKey kKeys[] = {
    // clang-format off
    {"attention.causal", {}, {}, 1},
    {"attention.chunk_size"},
    {"attention.clamp_kqv"},
    {"attention.key_length_swa", {"gemma4"}, {}, 0, "attention.key_length"},
    {"attention.max_alibi_bias"},
    {"attention.output_scale", {}, {}, 1},
    {"attention.scale", {"granite"}},
    {"attention.shared_kv_layers", {"gemma4"}},
    {"attention.sliding_window", {"cohere2", "exaone4", "gemma2", "gemma3", "gemma4", "gptneo"}, {"llama", "phi3"}, 0, "context_length"},
    {"attention.sliding_window_pattern", {"cohere2", "exaone4", "gemma2", "gemma3", "gemma4", "gptneo"}, {"llama", "phi3"}, 1},
    {"attention.temperature_length", {"mistral3"}},
    {"attention.temperature_scale", {"mistral3"}},
    {"attention.value_length_swa", {}, {}, 0, "attention.key_length_swa"},
    {"attention.value_scale", {}, {}, 1},
    {"attn_logit_softcapping", {"gemma2"}},
    {"embedding_length_per_layer_input", {"gemma4"}},
    {"embedding_scale", {"granite"}, {}, 1},
    {"expert_count", {"llama"}},
    {"expert_gating_func", {}, {}, 1},
    {"expert_group_count", {}, {}, 1},
    {"expert_shared_count"},
    {"expert_weights_scale", {}, {}, 1},
    {"final_logit_softcapping", {"gemma2", "gemma3", "gemma4"}},
    {"logit_scale", {"cohere2", "command-r", "granite"}, {}, 1},
    {"nextn_predict_layers"},
    {"residual_scale", {"granite"}, {}, 1},
    {"rope.dimension_count_swa", {"gemma4"}, {}, 0, "rope.dimension_count"},
    {"rope.freq_base_swa", {"gemma3", "gemma4"}, {}, 0, "rope.freq_base"},
    {"rope.scaling.alpha", {"hunyuan-dense"}, {}, 1},
    {"rope.scaling.yarn_attn_factor", {}, {}, 1},
    {"rope.scaling.yarn_log_multiplier", {"mistral3"}},
    {"router_logit_softcapping"},
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
