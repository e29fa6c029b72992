#include "models/families.hpp"

#include "base/printable.hpp"
#include "models/program_keys.hpp"
#include "models/program_tensors.hpp"

namespace pumice {
namespace {

constexpr ModelFamily kFamilies[] = {
    // clang-format off
    {"afmoe", families::build_afmoe},
    {"apertus", families::build_apertus},
    {"bailingmoe2", families::build_bailingmoe2},
    {"bert", families::build_bert},
    {"cohere2", families::build_cohere2},
    {"command-r", families::build_command_r},
    {"deepseek2", families::build_deepseek2},
    {"ernie4_5", families::build_ernie4_5},
    {"ernie4_5-moe", families::build_ernie4_5_moe},
    {"exaone4", families::build_exaone4},
    {"falcon-h1", families::build_falcon_h1},
    {"gemma", families::build_gemma},
    {"gemma-embedding", families::build_gemma_embedding},
    {"gemma2", families::build_gemma2},
    {"gemma3", families::build_gemma3},
    {"gemma4", families::build_gemma4},
    {"glm4moe", families::build_glm4moe},
    {"gpt2", families::build_gpt2},
    {"gpt-oss", families::build_gpt_oss},
    {"gptneo", families::build_gptneo},
    {"gptneox", families::build_gptneox},
    {"granite", families::build_granite},
    {"granitehybrid", families::build_granitehybrid},
    {"granitemoe", families::build_granite},
    {"hunyuan-dense", families::build_hunyuan_dense},
    {"jamba", families::build_jamba},
    {"kimi-linear", families::build_kimi_linear},
    {"lfm2", families::build_lfm2},
    {"lfm2moe", families::build_lfm2},
    {"llama", families::build_llama},
    {"mimo2", families::build_mimo2},
    {"minimax-m2", families::build_minimax_m2},
    {"mistral3", families::build_mistral3},
    {"mistral4", families::build_mistral4},
    {"modern-bert", families::build_modern_bert},
    {"nemotron_h", families::build_nemotron_h},
    {"nemotron_h_moe", families::build_nemotron_h},
    {"nomic-bert", families::build_nomic_bert},
    {"olmo2", families::build_olmo2},
    {"phi2", families::build_phi2},
    {"phi3", families::build_phi3},
    {"qwen2", families::build_qwen2},
    {"qwen3", families::build_qwen3},
    {"qwen3moe", families::build_qwen3moe},
    {"qwen35", families::build_qwen35},
    {"qwen35moe", families::build_qwen35},
    {"qwen3next", families::build_qwen3next},
    {"qwen3vl", families::build_qwen3},
    {"qwen3vlmoe", families::build_qwen3moe},
    {"seed_oss", families::build_seed_oss},
    {"smallthinker", families::build_smallthinker},
    {"smollm3", families::build_smollm3},
    {"stablelm", families::build_stablelm},
    {"starcoder2", families::build_starcoder2},
    {"step35", families::build_step35},
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

/// The page's program, of a file in which nothing that it did not ask for says otherwise.
Result<Program> build(const ModelFamily& family, const ModelSource& source, ModelPart part) {
  const Metadata metadata(source, family.architecture);
  const BuildPart* const with_part = std::get_if<BuildPart>(&family.build);
  PUMICE_TRY(Program program, with_part != nullptr ? (*with_part)(metadata, part)
                                                   : std::get<BuildLayers>(family.build)(metadata));
  PUMICE_TRY_STATUS(check_keys(metadata));
  PUMICE_TRY_STATUS(check_tensors(source, program));
  return program;
}

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

Result<Program> build_program(const ModelSource& source) {
  PUMICE_TRY(const ModelFamily* const family, family_of(source));
  return build(*family, source, ModelPart::kLayers);
}

Result<Program> build_prediction(const ModelSource& source) {
  PUMICE_TRY(const ModelFamily* const family, family_of(source));
  if (!std::holds_alternative<BuildPart>(family->build)) {
    return make_error(ErrorCode::kBadFile,
                      "architecture {}: blocks that predict further tokens are not supported",
                      family->architecture);
  }
  return build(*family, source, ModelPart::kPrediction);
}

}  // namespace pumice
