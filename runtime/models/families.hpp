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

using BuildLayers = Result<Program> (*)(const Metadata& metadata);
/// Of a family whose files may have blocks that predict: the layers' program or theirs.
using BuildPart = Result<Program> (*)(const Metadata& metadata, ModelPart part);

struct ModelFamily {
  std::string_view architecture;  ///< value of general.architecture
  std::variant<BuildLayers, BuildPart> build;
  /// What the metadata of a small model of it say beside what those of any do, and which tensors it
  /// has of those that files may leave out (SyntheticShape::extras).
  std::string_view small = {};
};

std::span<const ModelFamily> model_families();

/// What a model computes, checked: every dimension is in range, no key that shapes what is computed
/// was left unread (program_keys.hpp), and the file has every tensor in its shape and no other
/// (program_tensors.hpp). Errors (kBadFile) name the key or tensor; an unknown
/// architecture is named together with the known ones. With the source's adapters; errors: also
/// with_adapters'.
Result<Program> build_program(const ModelSource& source);

/// What build_program builds where a source has no tensors but those that the page asks about: with
/// it, which tensors a file would have follows from metadata. Errors: as of build_program, but for
/// what it says of tensors; of `part`, also those of build_prediction.
Result<Program> build_of_metadata(const ModelSource& source, ModelPart part = ModelPart::kLayers);

/// What build_program says, of the block that predicts the token after the next (ModelPart::kPrediction), with its
/// own states: its tokens are those that follow the text's, its given rows (op::GivenRows) the
/// model's hidden rows at the text's tokens. Plain decoding needs none of it: its weights are
/// loaded when asked for, by Model::load. Errors (kBadFile): also, the file has no such block, or
/// what its architecture's compute is not known.
Result<Program> build_prediction(const ModelSource& source);

namespace families {
Result<Program> build_afmoe(const Metadata& metadata);
Result<Program> build_apertus(const Metadata& metadata);
Result<Program> build_bailingmoe2(const Metadata& metadata, ModelPart part);
Result<Program> build_bert(const Metadata& metadata);
Result<Program> build_cohere2(const Metadata& metadata);
Result<Program> build_command_r(const Metadata& metadata);
Result<Program> build_deepseek2(const Metadata& metadata, ModelPart part);
Result<Program> build_ernie4_5(const Metadata& metadata);
Result<Program> build_ernie4_5_moe(const Metadata& metadata);
Result<Program> build_exaone4(const Metadata& metadata);
Result<Program> build_falcon_h1(const Metadata& metadata);
Result<Program> build_gemma(const Metadata& metadata);
Result<Program> build_gemma_embedding(const Metadata& metadata);
Result<Program> build_gemma2(const Metadata& metadata);
Result<Program> build_gemma3(const Metadata& metadata);
Result<Program> build_gemma4(const Metadata& metadata);
Result<Program> build_glm4moe(const Metadata& metadata, ModelPart part);
Result<Program> build_gpt2(const Metadata& metadata);
Result<Program> build_gpt_oss(const Metadata& metadata);
Result<Program> build_gptneo(const Metadata& metadata);
Result<Program> build_gptneox(const Metadata& metadata);
Result<Program> build_granite(const Metadata& metadata);
Result<Program> build_granitehybrid(const Metadata& metadata);
Result<Program> build_hunyuan_dense(const Metadata& metadata);
Result<Program> build_jamba(const Metadata& metadata);
Result<Program> build_kimi_linear(const Metadata& metadata);
Result<Program> build_lfm2(const Metadata& metadata);
Result<Program> build_llama(const Metadata& metadata);
Result<Program> build_mimo2(const Metadata& metadata, ModelPart part);
Result<Program> build_minimax_m2(const Metadata& metadata);
Result<Program> build_mistral3(const Metadata& metadata);
Result<Program> build_mistral4(const Metadata& metadata, ModelPart part);
Result<Program> build_modern_bert(const Metadata& metadata);
Result<Program> build_nemotron_h(const Metadata& metadata);
Result<Program> build_nomic_bert(const Metadata& metadata);
Result<Program> build_olmo2(const Metadata& metadata);
Result<Program> build_phi2(const Metadata& metadata);
Result<Program> build_phi3(const Metadata& metadata);
Result<Program> build_qwen2(const Metadata& metadata);
Result<Program> build_qwen3(const Metadata& metadata);
Result<Program> build_qwen3moe(const Metadata& metadata);
Result<Program> build_qwen35(const Metadata& metadata, ModelPart part);
Result<Program> build_qwen3next(const Metadata& metadata, ModelPart part);
Result<Program> build_smallthinker(const Metadata& metadata);
Result<Program> build_smollm3(const Metadata& metadata);
Result<Program> build_stablelm(const Metadata& metadata);
Result<Program> build_starcoder2(const Metadata& metadata);
Result<Program> build_step35(const Metadata& metadata, ModelPart part);
}  // namespace families

}  // namespace pumice
