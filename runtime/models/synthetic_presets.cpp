// Shapes by name: of models that people run, and a small one of each architecture.
#include <algorithm>
#include <array>

#include "base/printable.hpp"
#include "models/families.hpp"
#include "models/synthetic.hpp"

namespace pumice {
namespace {

constexpr SyntheticShape kPresets[] = {
    {.name = "tiny", .stands_for = "tests"},
    {.name = "moe-tiny",
     .stands_for = "tests, 4 experts",
     .n_ff = 256,
     .n_experts = 4,
     .n_experts_used = 2},
    {.name = "hybrid-tiny",
     .stands_for = "tests, 3 of 4 layers gated delta nets",
     .n_layers = 4,
     .tied = true,
     .architecture = "qwen35",
     .rope_dims = 32,
     .eps = 1e-6f,
     .extras = "full_attention_interval=4 ssm.conv_kernel=4 ssm.inner_size=128 ssm.state_size=32 "
               "ssm.time_step_rank=4 ssm.group_count=2"},
    {.name = "reranker-tiny",
     .stands_for = "tests, a cross-encoder that ranks texts",
     .architecture = "bert",
     .extras = "layer_norm +token_types.weight:256x2 pooling_type=4 +cls.weight +cls.bias "
               "+cls.output.weight:256x1 +cls.output.bias"},
    {.name = "small-0.1b",
     .stands_for = "a small draft model",
     .n_layers = 12,
     .n_embd = 768,
     .n_heads = 12,
     .n_kv_heads = 4,
     .n_ff = 3072,
     .n_vocab = 32000,
     .context_length = 4096,
     .tied = true},
    {.name = "llama-1b",
     .stands_for = "Llama 3.2 1B",
     .n_layers = 16,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 32.0f,
     .tied = true},
    {.name = "lfm2-1.2b",
     .stands_for = "LFM2 1.2B, 10 of 16 layers short convolutions",
     .n_layers = 16,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 65536,
     .context_length = 128000,
     .rope_base = 1000000.0f,
     .tied = true,
     .architecture = "lfm2",
     .extras = "attention.head_count_kv=0,0,8,0,0,8,0,0,8,0,8,0,8,0,8,0 shortconv.l_cache=3"},
    {.name = "qwen3.5-like",
     .stands_for = "a hybrid as Qwen 3.5 2B, 18 of 24 layers gated delta nets",
     .n_layers = 24,
     .n_embd = 2048,
     .n_heads = 8,
     .n_kv_heads = 2,
     .n_ff = 6144,
     .n_vocab = 248320,
     .context_length = 262144,
     .rope_base = 10000000.0f,
     .tied = true,
     .architecture = "qwen35",
     .head_dim = 256,
     .rope_dims = 64,
     .eps = 1e-6f,
     .extras = "full_attention_interval=4 ssm.conv_kernel=4 ssm.inner_size=2048 "
               "ssm.state_size=128 ssm.time_step_rank=16 ssm.group_count=16"},
    {.name = "llama-3b",
     .stands_for = "Llama 3.2 3B",
     .n_layers = 28,
     .n_embd = 3072,
     .n_heads = 24,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 32.0f,
     .tied = true},
    {.name = "phi4-mini",
     .stands_for = "Phi-4 mini",
     .n_layers = 32,
     .n_embd = 3072,
     .n_heads = 24,
     .n_kv_heads = 8,
     .n_ff = 8192,
     .n_vocab = 200064,
     .context_length = 131072,
     .tied = true,
     .architecture = "phi3",
     .rope_dims = 96,
     .original_context = 4096},
    {.name = "gemma3-4b",
     .stands_for = "Gemma 3 4B",
     .n_layers = 34,
     .n_embd = 2560,
     .n_heads = 8,
     .n_kv_heads = 4,
     .n_ff = 10240,
     .n_vocab = 262208,
     .context_length = 131072,
     .rope_base = 1000000.0f,
     .tied = true,
     .architecture = "gemma3",
     .head_dim = 256,
     .window = 1024,
     .rope_linear = 8.0f,
     .eps = 1e-6f},
    {.name = "llama-8b",
     .stands_for = "Llama 3.1 8B",
     .n_layers = 32,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 14336,
     .n_vocab = 128256,
     .context_length = 131072,
     .rope_base = 500000.0f,
     .rope_factor = 8.0f},
    {.name = "qwen3-8b",
     .stands_for = "Qwen 3 8B",
     .n_layers = 36,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 12288,
     .n_vocab = 151936,
     .context_length = 40960,
     .rope_base = 1000000.0f,
     .architecture = "qwen3",
     .head_dim = 128,
     .eps = 1e-6f},
    {.name = "gpt-oss-20b",
     .stands_for = "gpt-oss 20B, 4 of 32 experts",
     .n_layers = 24,
     .n_embd = 2880,
     .n_heads = 64,
     .n_kv_heads = 8,
     .n_ff = 2880,
     .n_vocab = 201088,
     .context_length = 131072,
     .rope_base = 150000.0f,
     .n_experts = 32,
     .n_experts_used = 4,
     .architecture = "gpt-oss",
     .head_dim = 64,
     .window = 128,
     .rope_yarn = 32.0f},
    {.name = "qwen3-30b-a3b",
     .stands_for = "Qwen 3 30B, 8 of 128 experts",
     .n_layers = 48,
     .n_embd = 2048,
     .n_heads = 32,
     .n_kv_heads = 4,
     .n_ff = 768,
     .n_vocab = 151936,
     .context_length = 40960,
     .rope_base = 1000000.0f,
     .n_experts = 128,
     .n_experts_used = 8,
     .architecture = "qwen3moe",
     .head_dim = 128,
     .eps = 1e-6f},
    {.name = "moe-8x7b",
     .stands_for = "Mixtral 8x7B",
     .n_layers = 32,
     .n_embd = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .n_ff = 14336,
     .n_vocab = 32000,
     .context_length = 32768,
     .rope_base = 1000000.0f,
     .n_experts = 8,
     .n_experts_used = 2},
};

SyntheticShape small_model(const ModelFamily& family) {
  return {.name = family.architecture,
          .stands_for = "tests, a small model of the architecture",
          .n_layers = 3,
          .architecture = family.architecture,
          .extras = family.small};
}

}  // namespace

std::vector<SyntheticShape> synthetic_presets() {
  std::vector<SyntheticShape> presets(std::begin(kPresets), std::end(kPresets));
  for (const ModelFamily& family : model_families()) presets.push_back(small_model(family));
  return presets;
}

Result<SyntheticShape> find_synthetic_preset(std::string_view name) {
  const std::vector<SyntheticShape> presets = synthetic_presets();
  const auto found = std::ranges::find(presets, name, &SyntheticShape::name);
  if (found != presets.end()) return *found;
  std::string known;
  for (const SyntheticShape& preset : kPresets) known += std::string(preset.name) + ", ";
  return make_error(ErrorCode::kInvalidArgument,
                    "there is no preset '{}' (known: {}and the name of any architecture; pumice "
                    "synth --list shows all)",
                    printable(name), known);
}

Result<SyntheticModel> SyntheticModel::parse(std::string_view text) {
  std::array<std::string_view, 3> parts{"", "q4_k", ""};
  std::string_view rest = text;
  for (std::string_view& part : parts) {
    const size_t colon = rest.find(':');
    part = rest.substr(0, colon);
    if (colon == std::string_view::npos) {
      rest = {};
      break;
    }
    rest.remove_prefix(colon + 1);
  }
  PUMICE_TRY(const SyntheticShape shape, find_synthetic_preset(parts[0]));
  PUMICE_TRY(const WeightType* const type, parse_weight_type(parts[1]));
  if (!rest.empty() || (!parts[2].empty() && parts[2] != "pure")) {
    return make_error(ErrorCode::kInvalidArgument,
                      "'{}': expected preset:type or preset:type:pure, as in llama-8b:q4_k",
                      printable(text));
  }
  return create(shape, {.type = type, .pure = !parts[2].empty()});
}

}  // namespace pumice
