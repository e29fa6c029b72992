#include "models/families.hpp"

#include "base/printable.hpp"
#include "models/program_keys.hpp"
#include "models/program_tensors.hpp"
#include "models/ranking.hpp"

namespace pumice {
namespace {

constexpr ModelFamily kFamilies[] = {
    // clang-format off
    {"afmoe", families::build_afmoe, "experts one_dense window attention.sliding_window_pattern=2"},
    {"apertus", families::build_apertus,
     "@xielu.alpha_p=0.8 @xielu.alpha_n=0.8 @xielu.beta=0.5 @xielu.eps=-1e-6"},
    {"bailingmoe2", families::build_bailingmoe2, "experts one_dense"},
    {"bert", families::build_bert, "layer_norm +token_types.weight:256x2"},
    {"cohere2", families::build_cohere2,
     "layer_norm logit_scale=0.25 window attention.sliding_window_pattern=2"},
    {"command-r", families::build_command_r, "layer_norm logit_scale=0.25"},
    {"deepseek2", families::build_deepseek2,
     "latents attention.q_lora_rank=96 experts one_dense temperature +blk.{}.attn_k_b.weight "
     "+blk.1.exp_probs_b.bias"},
    {"ernie4_5", families::build_ernie4_5},
    {"ernie4_5-moe", families::build_ernie4_5_moe, "experts one_dense"},
    {"exaone4", families::build_exaone4},
    {"falcon-h1", families::build_falcon_h1, "mamba2"},
    {"gemma", families::build_gemma},
    {"gemma-embedding", families::build_gemma_embedding,
     "window attention.sliding_window_pattern=2 +dense_2.weight:256x512 +dense_3.weight:512x256"},
    {"gemma2", families::build_gemma2, "window"},
    {"gemma3", families::build_gemma3,
     "window attention.sliding_window_pattern=2 final_logit_softcapping=30.0"},
    {"gemma4", families::build_gemma4,
     "experts window attention.sliding_window_pattern=1,0 attention.key_length_swa=32 "
     "rope.dimension_count_swa=32 embedding_length_per_layer_input=32 final_logit_softcapping=30.0 "
     "+blk.{}.attn_v.weight +blk.{}.layer_output_scale.weight +blk.1.ffn_gate_inp.weight"},
    {"glm4moe", families::build_glm4moe, "experts one_dense +blk.0.attn_q_norm.weight"},
    {"gpt2", families::build_gpt2, "layer_norm"},
    {"gpt-oss", families::build_gpt_oss, "experts window"},
    {"gptneo", families::build_gptneo, "layer_norm window attention.sliding_window_pattern=0,1"},
    {"gptneox", families::build_gptneox,
     "layer_norm use_parallel_residual=true rope.dimension_count=16"},
    {"granite", families::build_granite, "scales"},
    {"granitehybrid", families::build_granitehybrid,
     "scales experts expert_shared_feed_forward_length=128 attention.head_count_kv=0,2 mamba2"},
    {"granitemoe", families::build_granite, "scales experts"},
    {"hunyuan-dense", families::build_hunyuan_dense, "rope.scaling.alpha=1000.0"},
    {"jamba", families::build_jamba,
     "experts attention.head_count_kv=0,2 ssm.inner_size=256 ssm.time_step_rank=16 "
     "ssm.state_size=16 ssm.conv_kernel=4 +blk.1.ffn_gate_inp.weight"},
    {"kimi-linear", families::build_kimi_linear,
     "latents experts one_dense attention.head_count_kv=0,4 kda.head_dim=32 ssm.conv_kernel=4"},
    {"lfm2", families::build_lfm2, "attention.head_count_kv=0,2 shortconv.l_cache=3"},
    {"lfm2moe", families::build_lfm2,
     "experts leading_dense_block_count=1 attention.head_count_kv=0,2 shortconv.l_cache=3"},
    {"llama", families::build_llama},
    {"mimo2", families::build_mimo2,
     "experts leading_dense_block_count=1 window attention.sliding_window_pattern=0,1 "
     "attention.head_count_kv=1,2 attention.value_length=32 attention.value_length_swa=32 "
     "attention.value_scale=0.5 +blk.1.ffn_gate_inp.weight +blk.1.attn_sinks.weight"},
    {"minimax-m2", families::build_minimax_m2, "experts"},
    {"mistral3", families::build_mistral3, "yarn rope.scaling.yarn_log_multiplier=1.0 temperature"},
    {"mistral4", families::build_mistral4,
     "latents attention.q_lora_rank=96 experts expert_shared_count=1 yarn "
     "rope.scaling.yarn_log_multiplier=0.1 temperature"},
    {"modern-bert", families::build_modern_bert,
     "layer_norm attention.sliding_window=16 rope.freq_base_swa=5000.0"},
    {"nemotron_h", families::build_nemotron_h,
     "attention.head_count_kv=0,2,0 feed_forward_length=0,0,512 mamba2"},
    {"nemotron_h_moe", families::build_nemotron_h,
     "attention.head_count_kv=0,2,0 feed_forward_length=0,0,512 experts expert_shared_count=1 "
     "moe_latent_size=64 mamba2 +blk.2.ffn_gate_inp.weight"},
    {"nomic-bert", families::build_nomic_bert, "layer_norm"},
    {"olmo2", families::build_olmo2},
    {"phi2", families::build_phi2, "layer_norm rope.dimension_count=32"},
    {"phi3", families::build_phi3},
    {"qwen2", families::build_qwen2},
    {"qwen3", families::build_qwen3},
    {"qwen3moe", families::build_qwen3moe, "experts"},
    {"qwen35", families::build_qwen35, "full_attention_interval=2 delta_net"},
    {"qwen35moe", families::build_qwen35,
     "experts expert_shared_feed_forward_length=128 full_attention_interval=2 delta_net"},
    {"qwen3next", families::build_qwen3next,
     "experts expert_shared_feed_forward_length=128 full_attention_interval=2 delta_net"},
    {"qwen3vl", families::build_qwen3},
    {"qwen3vlmoe", families::build_qwen3moe, "experts"},
    {"seed_oss", families::build_qwen2},
    {"smallthinker", families::build_smallthinker, "experts window"},
    {"smollm3", families::build_smollm3},
    {"stablelm", families::build_stablelm,
     "layer_norm rope.dimension_count=16 +blk.0.ffn_norm.weight"},
    {"starcoder2", families::build_starcoder2, "layer_norm"},
    {"step35", families::build_step35,
     "experts one_dense window attention.sliding_window_pattern=0,1 attention.head_count=4,8 "
     "swiglu_clamp_exp=0.0,7.0 swiglu_clamp_shexp=0.0,16.0"},
    // clang-format on
};

Result<const ModelFamily*> family_of(const ModelSource& source) {
  PUMICE_TRY(const std::string_view architecture,
             source.file().get<std::string_view>("general.architecture"));
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  return make_error(ErrorCode::kBadFile, "architecture '{}' is not supported yet (known: {})",
                    printable(architecture), known);
}

Status check_part(const ModelFamily& family, ModelPart part) {
  const bool is_built =
      part == ModelPart::kLayers || std::holds_alternative<BuildPart>(family.build);
  if (is_built) return {};
  return make_error(ErrorCode::kBadFile,
                    "architecture {}: blocks that predict further tokens are not supported",
                    family.architecture);
}

/// The page's program, of a file in which nothing that it did not ask for says otherwise.
Result<Program> build(const ModelFamily& family, const ModelSource& source, ModelPart part) {
  source.count_program();
  const Metadata metadata(source, family.architecture);
  const BuildPart* const with_part = std::get_if<BuildPart>(&family.build);
  PUMICE_TRY(Program program, with_part != nullptr ? (*with_part)(metadata, part)
                                                   : std::get<BuildLayers>(family.build)(metadata));
  if (part == ModelPart::kLayers && !program.pooling) {
    PUMICE_TRY(program, with_ranking_head(std::move(program), metadata));
  }
  if (program.pooling && metadata.ranks() && !program.relevant_label) {
    return make_error(ErrorCode::kBadFile, "architecture {}: its rerankers are not supported",
                      family.architecture);
  }
  PUMICE_TRY_STATUS(check_keys(metadata));
  return program;
}

/// The same, of a file that has the program's tensors and no others.
Result<Program> build_checked(const ModelFamily& family, const ModelSource& source,
                              ModelPart part) {
  PUMICE_TRY(Program program, build(family, source, part));
  PUMICE_TRY_STATUS(check_tensors(source, program));
  return program;
}

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

Result<Program> build_program(const ModelSource& source) {
  PUMICE_TRY(const ModelFamily* const family, family_of(source));
  PUMICE_TRY(Program program, build_checked(*family, source, ModelPart::kLayers));
  return with_adapters(std::move(program), source.adapters());
}

Result<Program> build_of_metadata(const ModelSource& source, ModelPart part) {
  PUMICE_TRY(const ModelFamily* const family, family_of(source));
  PUMICE_TRY_STATUS(check_part(*family, part));
  return build(*family, source, part);
}

Result<Program> build_prediction(const ModelSource& source) {
  PUMICE_TRY(const ModelFamily* const family, family_of(source));
  PUMICE_TRY_STATUS(check_part(*family, ModelPart::kPrediction));
  return build_checked(*family, source, ModelPart::kPrediction);
}

}  // namespace pumice
