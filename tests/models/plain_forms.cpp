#include <cmath>
#include <utility>

#include "tests/models/plain_transformer.hpp"

namespace pumice::test {
namespace {

using Form = PlainForm;

/// Command R+: one norm without bias, side by side, the embedding's logits scaled.
Form command_r_plus() {
  return {.name = "command_r_plus",
          .architecture = "command-r",
          .norm = Form::Norm::kMeanWithoutBias,
          .feed_forward_norm = false,
          .parallel = true,
          .turn = Form::Turn::kNeighbours,
          .qk_norm = Form::QkNorm::kEachHead,
          .output = Form::Output::kTied,
          .logit_scale = 0.25};
}

Form cohere2() {
  Form form = command_r_plus();
  form.name = form.architecture = "cohere2";
  form.qk_norm = Form::QkNorm::kNone;
  form.n_layers = 5;
  form.windows = {20, 20, 20, 0, 20};
  form.full_layers_turn = false;
  return form;
}

/// EXAONE 4 as the 32B is, which its 64 layers tell.
Form exaone4_windows() {
  Form form{.name = "exaone4_windows",
            .architecture = "exaone4",
            .n_embd = 16,
            .head_dim = 8,
            .n_ff = 24,
            .n_layers = 64,
            .norms_before = false,
            .norms_after = true,
            .rope_dims = 8,
            .full_layers_turn = false,
            .qk_norm = Form::QkNorm::kHeads};
  for (uint32_t i = 0; i < form.n_layers; ++i) form.windows.push_back(i % 4 != 3 ? 20 : 0);
  return form;
}

/// Gemma 4 without embeddings a layer; its full layers have one matrix for keys and values.
Form gemma4_keys_as_values() {
  return {.name = "gemma4_keys_as_values",
          .architecture = "gemma4",
          .n_layers = 3,
          .embedding_scale = 8,  // the root of n_embd
          .norms_after = true,
          .windows = {20, 0, 20},
          .pattern = Form::Pattern::kBools,
          .scale = 1,
          .qk_norm = Form::QkNorm::kHeads,
          .value_norm = true,
          .keys_as_values = true,
          .gelu_gate = true,
          .output = Form::Output::kTied,
          .keys = {{"rope.freq_base_swa", kRopeBase}}};
}

/// Gemma 4 with experts, but in its first layer.
Form gemma4_experts() {
  Form form = gemma4_keys_as_values();
  form.name = "gemma4_experts";
  form.experts = {.n = 6, .n_used = 2, .n_dense_layers = 1, .beside_dense = true};
  return form;
}

/// DeepSeek V2 Lite as its older files are: no latent of queries, one matrix for keys and values,
/// YaRN whose frequencies all stay and whose magnitude is of the scores alone.
Form deepseek2_fused() {
  const double growth = 1 + 0.0707f * std::log(40);
  return {.name = "deepseek2_fused",
          .architecture = "deepseek2",
          .n_kv_heads = 4,
          .head_dim = 24,
          .turn = Form::Turn::kNeighbours,
          .rope_dims = 8,
          .scale = growth * growth / std::sqrt(24),
          .experts = {.n = 8, .n_ff_shared = 24, .n_dense_layers = 1, .renormalised = false},
          .latent = {.rank = 32, .value_dim = 8, .fused = true},
          .keys = {{"expert_shared_count", 1u},
                   {"leading_dense_block_count", 1u},
                   {"rope.scaling.type", "yarn"},
                   {"rope.scaling.factor", 40.0f},
                   {"rope.scaling.original_context_length", 1u << 20},
                   {"rope.scaling.yarn_log_multiplier", 0.0707f}}};
}

/// DeepSeek V3 with a block that predicts.
Form deepseek2_prediction() {
  Form form{.name = "deepseek2_prediction",
            .architecture = "deepseek2",
            .n_kv_heads = 4,
            .head_dim = 24,
            .turn = Form::Turn::kNeighbours,
            .rope_dims = 16,
            .experts = {.n = 8, .n_ff_shared = 24, .sigmoid = true, .biased = true, .scale = 2.5},
            .latent = {.rank = 40, .q_rank = 20, .value_dim = 16},
            .n_prediction_blocks = 1,
            .prediction_has_own = true};
  form.keys = {{"expert_shared_count", 1u},
               {"expert_gating_func", 2u},
               {"expert_weights_norm", true},
               {"expert_weights_scale", 2.5f}};
  return form;
}

/// Ling 2 with blocks that predict, of which the first is run.
Form bailingmoe2_prediction() {
  return {.name = "bailingmoe2_prediction",
          .architecture = "bailingmoe2",
          .rope_dims = 8,
          .qk_norm = Form::QkNorm::kHeads,
          .fused_qkv = true,
          .output = Form::Output::kTied,
          .experts = {.n = 8, .n_dense_layers = 1, .sigmoid = true, .biased = true},
          .n_prediction_blocks = 2,
          .keys = {{"leading_dense_block_count", 1u}, {"expert_weights_norm", true}}};
}

/// LFM2 with experts in all but its first layer.
Form lfm2moe() {
  return {.name = "lfm2moe",
          .architecture = "lfm2moe",
          .n_layers = 4,
          .qk_norm = Form::QkNorm::kHeads,
          .taps = {3, 3, 0, 3},
          .output = Form::Output::kTied,
          .experts = {.n = 8, .n_used = 3, .n_dense_layers = 1, .sigmoid = true, .biased = true},
          .output_norm = "token_embd_norm",
          .keys = {{"shortconv.l_cache", 3u}, {"leading_dense_block_count", 1u}}};
}

/// MiMo-V2 as its files with all blocks are: three of them predict.
Form mimo2() {
  return {.name = "mimo2",
          .architecture = "mimo2",
          .n_kv_heads = 1,
          .head_dim = 24,
          .value_dim = 16,
          .n_layers = 4,
          .rope_dims = 8,
          .windows = {0, 20, 20, 0, 20, 20, 20},
          .pattern = Form::Pattern::kNumbers,
          .n_window_kv_heads = 2,
          .window_rope_base = 900,
          .window_sinks = true,
          .attention_scale = 0.707f,
          .experts = {.n = 8, .n_dense_layers = 1, .sigmoid = true, .biased = true},
          .n_prediction_blocks = 3,
          .prediction_is_dense = true};
}

/// The same with the sizes of its heads, one matrix for q, k and v, and nothing scaled.
Form mimo2_fused() {
  Form form = mimo2();
  form.name = "mimo2_fused";
  form.head_dim = 192;
  form.value_dim = 128;
  form.n_layers = 2;
  form.rope_dims = 64;
  form.windows = {0, 20};
  form.pattern = Form::Pattern::kBools;
  form.attention_scale = 1;
  form.fused_qkv = true;
  form.n_prediction_blocks = 0;
  return form;
}

/// Whose layers all have a window, which nothing forbids.
Form mimo2_windows_alone() {
  Form form = mimo2();
  form.name = "mimo2_windows_alone";
  form.n_layers = 1;
  form.windows = {20};
  form.n_prediction_blocks = 0;
  return form;
}

/// Mistral 4 whose YaRN is of what turns too.
Form mistral4() {
  const double growth = 1 + 0.05f * std::log(8);
  return {.name = "mistral4",
          .architecture = "mistral4",
          .n_kv_heads = 4,
          .head_dim = 24,
          .turn = Form::Turn::kNeighbours,
          .rope_dims = 8,
          .scale = growth * growth / std::sqrt(24),
          .experts = {.n = 8, .n_ff_shared = 24},
          .latent = {.rank = 32,
                     .q_rank = 20,
                     .value_dim = 8,
                     .rope_magnitude = (1 + 0.1 * std::log(8)) / growth,
                     .temperature = 0.25},
          .keys = {{"expert_shared_count", 1u},
                   {"rope.scaling.type", "yarn"},
                   {"rope.scaling.factor", 8.0f},
                   {"rope.scaling.original_context_length", 1u << 20},
                   {"rope.scaling.yarn_log_multiplier", 0.05f},
                   {"attention.temperature_scale", 0.25f},
                   {"attention.temperature_length", kTemperatureTokens}}};
}

Form phi2(std::string name, bool fused) {
  return {.name = std::move(name),
          .architecture = "phi2",
          .norm = Form::Norm::kMean,
          .feed_forward_norm = false,
          .parallel = true,
          .rope_dims = 8,
          .fused_qkv = fused,
          .qkv_bias = true,
          .output_bias = true,
          .gated = false,
          .output = Form::Output::kOwnWithBias};
}

}  // namespace

std::vector<PlainForm> forms_without_a_file() {
  return {
      {.name = "gptneox_in_turn",
       .architecture = "gptneox",
       .norm = Form::Norm::kMean,
       .rope_dims = 8,
       .fused_qkv = true,
       .qkv_bias = true,
       .output_bias = true,
       .gated = false,
       .output = Form::Output::kTied,
       .keys = {{"use_parallel_residual", false}}},
      {.name = "stablelm_12b",
       .architecture = "stablelm",
       .norm = Form::Norm::kMean,
       .feed_forward_norm = false,
       .parallel = true,
       .rope_dims = 8,
       .qk_norm = Form::QkNorm::kEachHead,
       .qkv_bias = true,
       .output = Form::Output::kTied},
      phi2("phi2", true),
      phi2("phi2_before_fusion", false),
      {.name = "starcoder2",
       .architecture = "starcoder2",
       .norm = Form::Norm::kMean,
       .qkv_bias = true,
       .output_bias = true,
       .gated = false,
       .output = Form::Output::kTied},
      command_r_plus(),
      cohere2(),
      {.name = "gptneo",
       .architecture = "gptneo",
       .n_kv_heads = 4,
       .n_layers = 3,
       .norm = Form::Norm::kMean,
       .turn = Form::Turn::kNone,
       .learned_positions = true,
       .windows = {0, 20, 0},
       .pattern = Form::Pattern::kBools,
       .scale = 1,
       .output_bias = true,
       .gated = false,
       .output = Form::Output::kTied},
      {.name = "olmo2",
       .architecture = "olmo2",
       .head_dim = 8,
       .norms_before = false,
       .norms_after = true,
       .rope_dims = 8,
       .qk_norm = Form::QkNorm::kRow},
      {.name = "llama_wide_heads",
       .architecture = "llama",
       .n_kv_heads = 1,
       .head_dim = 512,
       .turn = Form::Turn::kNeighbours,
       .rope_dims = 512},
      {.name = "ernie4_5",
       .architecture = "ernie4_5",
       .head_dim = 8,
       .turn = Form::Turn::kNeighbours,
       .rope_dims = 8,
       .output = Form::Output::kTied},
      {.name = "ernie4_5_biases",
       .architecture = "ernie4_5",
       .head_dim = 8,
       .turn = Form::Turn::kNeighbours,
       .rope_dims = 8,
       .qkv_bias = true,
       .output_bias = true},
      exaone4_windows(),
      gemma4_keys_as_values(),
      gemma4_experts(),
      {.name = "qwen3moe",
       .architecture = "qwen3moe",
       .qk_norm = Form::QkNorm::kHeads,
       .experts = {.n = 6, .n_used = 3}},
      {.name = "qwen3vlmoe",
       .architecture = "qwen3vlmoe",
       .qk_norm = Form::QkNorm::kHeads,
       .output = Form::Output::kTied,
       .experts = {.n = 5}},
      {.name = "granitemoe",
       .architecture = "granitemoe",
       .embedding_scale = 3,
       .turn = Form::Turn::kNeighbours,
       .scale = 0.125,
       .output = Form::Output::kTied,
       .experts = {.n = 8, .n_used = 3, .n_ff_shared = 32},
       .residual_scale = 0.5,
       .keys = {{"embedding_scale", 3.0f},
                {"attention.scale", 0.125f},
                {"residual_scale", 0.5f},
                {"expert_shared_feed_forward_length", 32u}}},
      {.name = "glm4moe_prediction",  // and no norms of heads
       .architecture = "glm4moe",
       .rope_dims = 8,
       .qkv_bias = true,
       .experts = {.n = 8,
                   .n_ff_shared = 24,
                   .n_dense_layers = 1,
                   .sigmoid = true,
                   .biased = true,
                   .scale = 1.5},
       .ffn_norm = "post_attention_norm",
       .n_prediction_blocks = 1,
       .keys = {{"expert_shared_count", 1u},
                {"leading_dense_block_count", 1u},
                {"expert_weights_norm", true},
                {"expert_weights_scale", 1.5f}}},
      {.name = "ernie4_5_moe_every_other",
       .architecture = "ernie4_5-moe",
       .n_layers = 3,
       .turn = Form::Turn::kNeighbours,
       .experts = {.n = 4, .period = 2, .biased = true},
       .keys = {{"interleave_moe_layer_step", 2u}}},
      deepseek2_fused(),
      deepseek2_prediction(),
      mistral4(),
      bailingmoe2_prediction(),
      lfm2moe(),
      mimo2(),
      mimo2_fused(),
      mimo2_windows_alone(),
  };
}

PlainForm form_with_small_values() {
  Form form = mimo2();
  form.head_dim = 64;
  form.value_dim = 32;
  form.rope_dims = 16;
  return form;
}

std::vector<PlainForm> forms_that_predict() {
  std::vector<PlainForm> forms = forms_without_a_file();
  std::erase_if(forms, [](const PlainForm& form) { return form.n_prediction_blocks == 0; });
  return forms;
}

}  // namespace pumice::test
