// Model families: how each architecture's metadata becomes a Program. Adding one: a file in
// families/, a line in the list in families.cpp, a golden test (docs/ADDING_A_MODEL.md).
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "base/result.hpp"
#include "models/metadata.hpp"
#include "models/model_source.hpp"
#include "models/program_builder.hpp"

namespace pumice {

using BuildLayers = Result<Program> (*)(const ModelSource& source);
/// Of a family whose files may have blocks that predict: the layers' program or theirs.
using BuildPart = Result<Program> (*)(const ModelSource& source, ModelPart part);

struct ModelFamily {
  std::string_view architecture;  ///< value of general.architecture
  std::variant<BuildLayers, BuildPart> build;
};

std::span<const ModelFamily> model_families();

/// What a model computes, checked: every dimension is in range, the file has every tensor in its
/// shape, and no other (program_tensors.hpp). Errors (kBadFile) name the key or tensor; an unknown
/// architecture is named together with the known ones.
Result<Program> build_program(const ModelSource& source);

/// The same of the block that predicts the token after the next (ModelPart::kPrediction), with its
/// own states: its tokens are those that follow the text's, its given rows (op::GivenRows) the
/// model's hidden rows at the text's tokens. Plain decoding needs none of it: its weights are
/// loaded when asked for, by Model::load. Errors (kBadFile): also, the file has no such block, or
/// what its architecture's compute is not known.
Result<Program> build_prediction(const ModelSource& source);

namespace families {
Result<Program> build_afmoe(const ModelSource& source);
Result<Program> build_apertus(const ModelSource& source);
Result<Program> build_bailingmoe2(const ModelSource& source, ModelPart part);
Result<Program> build_bert(const ModelSource& source);
Result<Program> build_cohere2(const ModelSource& source);
Result<Program> build_command_r(const ModelSource& source);
Result<Program> build_deepseek2(const ModelSource& source, ModelPart part);
Result<Program> build_ernie4_5(const ModelSource& source);
Result<Program> build_ernie4_5_moe(const ModelSource& source);
Result<Program> build_exaone4(const ModelSource& source);
Result<Program> build_falcon_h1(const ModelSource& source);
Result<Program> build_gemma(const ModelSource& source);
Result<Program> build_gemma_embedding(const ModelSource& source);
Result<Program> build_gemma2(const ModelSource& source);
Result<Program> build_gemma3(const ModelSource& source);
Result<Program> build_gemma4(const ModelSource& source);
Result<Program> build_glm4moe(const ModelSource& source, ModelPart part);
Result<Program> build_gpt2(const ModelSource& source);
Result<Program> build_gpt_oss(const ModelSource& source);
Result<Program> build_gptneo(const ModelSource& source);
Result<Program> build_gptneox(const ModelSource& source);
Result<Program> build_granite(const ModelSource& source);
Result<Program> build_granitehybrid(const ModelSource& source);
Result<Program> build_granitemoe(const ModelSource& source);
Result<Program> build_hunyuan_dense(const ModelSource& source);
Result<Program> build_jamba(const ModelSource& source);
Result<Program> build_kimi_linear(const ModelSource& source);
Result<Program> build_lfm2(const ModelSource& source);
Result<Program> build_lfm2moe(const ModelSource& source);
Result<Program> build_llama(const ModelSource& source);
Result<Program> build_mimo2(const ModelSource& source, ModelPart part);
Result<Program> build_minimax_m2(const ModelSource& source);
Result<Program> build_mistral3(const ModelSource& source);
Result<Program> build_mistral4(const ModelSource& source, ModelPart part);
Result<Program> build_modern_bert(const ModelSource& source);
Result<Program> build_nemotron_h(const ModelSource& source);
Result<Program> build_nemotron_h_moe(const ModelSource& source);
Result<Program> build_nomic_bert(const ModelSource& source);
Result<Program> build_olmo2(const ModelSource& source);
Result<Program> build_phi2(const ModelSource& source);
Result<Program> build_phi3(const ModelSource& source);
Result<Program> build_qwen2(const ModelSource& source);
Result<Program> build_qwen3(const ModelSource& source);
Result<Program> build_qwen3moe(const ModelSource& source);
Result<Program> build_qwen35(const ModelSource& source, ModelPart part);
Result<Program> build_qwen35moe(const ModelSource& source, ModelPart part);
Result<Program> build_qwen3next(const ModelSource& source, ModelPart part);
Result<Program> build_qwen3vl(const ModelSource& source);
Result<Program> build_qwen3vlmoe(const ModelSource& source);
Result<Program> build_seed_oss(const ModelSource& source);
Result<Program> build_smallthinker(const ModelSource& source);
Result<Program> build_smollm3(const ModelSource& source);
Result<Program> build_stablelm(const ModelSource& source);
Result<Program> build_starcoder2(const ModelSource& source);
Result<Program> build_step35(const ModelSource& source, ModelPart part);
}  // namespace families

}  // namespace pumice
