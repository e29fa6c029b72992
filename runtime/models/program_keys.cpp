#include "models/program_keys.hpp"

#include <string>

namespace pumice {
namespace {

constexpr TellingKey kKeys[] = {
    // clang-format off
    {"attention.causal", 1},
    {"attention.chunk_size"},
    {"attention.clamp_kqv"},
    {"attention.key_length_swa", 0, "attention.key_length"},
    {"attention.max_alibi_bias"},
    {"attention.output_scale", 1},
    {"attention.scale"},
    {"attention.shared_kv_layers"},
    {"attention.sliding_window", 0, "context_length"},
    {"attention.sliding_window_pattern", 1},
    {"attention.temperature_length"},
    {"attention.temperature_scale"},
    {"attention.value_length_swa", 0, "attention.key_length_swa"},
    {"attention.value_scale", 1},
    {"attn_logit_softcapping"},
    {"embedding_length_per_layer_input"},
    {"embedding_scale", 1},
    {"expert_count"},
    {"expert_gating_func", 1},
    {"expert_group_count", 1},
    {"expert_shared_count"},
    {"expert_shared_feed_forward_length"},
    {"expert_weights_scale", 1},
    {"final_logit_softcapping"},
    {"interleave_moe_layer_step", 1},
    {"leading_dense_block_count"},
    {"logit_scale", 1},
    {"nextn_predict_layers"},
    {"residual_scale", 1},
    {"rope.dimension_count_swa", 0, "rope.dimension_count"},
    {"rope.freq_base_swa", 0, "rope.freq_base"},
    {"rope.scaling.alpha", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_log_multiplier"},
    {"router_logit_softcapping"},
    {"swiglu_clamp_exp"},
    {"swiglu_clamp_shexp"},
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

std::span<const TellingKey> telling_keys() { return kKeys; }

Status check_keys(const Metadata& metadata) {
  const std::string prefix = metadata.architecture() + ".";
  for (const TellingKey& key : kKeys) {
    if (metadata.asked_for(key.key)) continue;
    const GgufValue* const value = metadata.file().find(prefix + std::string(key.key));
    if (value == nullptr || says_nothing(metadata.file(), prefix, key, *value)) continue;
    return make_error(ErrorCode::kBadFile,
                      "{}: {} is not supported for this architecture; without it the model would "
                      "be another one",
                      value->key, value->describe());
  }
  return {};
}

}  // namespace pumice
