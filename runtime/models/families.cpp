#include "models/families.hpp"

#include "base/printable.hpp"
#include "models/program_keys.hpp"
#include "models/program_tensors.hpp"

namespace pumice {
namespace {

constexpr ModelFamily kFamilies[] = {
    // clang-format off
    {"apertus", families::build_apertus},
    {"cohere2", families::build_cohere2},
    {"command-r", families::build_command_r},
    {"ernie4_5", families::build_ernie4_5},
    {"exaone4", families::build_exaone4},
    {"gemma", families::build_gemma},
    {"gemma2", families::build_gemma2},
    {"gemma3", families::build_gemma3},
    {"gemma4", families::build_gemma4},
    {"gpt2", families::build_gpt2},
    {"gptneo", families::build_gptneo},
    {"gptneox", families::build_gptneox},
    {"granite", families::build_granite},
    {"hunyuan-dense", families::build_hunyuan_dense},
    {"llama", families::build_llama},
    {"mistral3", families::build_mistral3},
    {"olmo2", families::build_olmo2},
    {"phi2", families::build_phi2},
    {"phi3", families::build_phi3},
    {"qwen2", families::build_qwen2},
    {"qwen3", families::build_qwen3},
    {"qwen3vl", families::build_qwen3vl},
    {"seed_oss", families::build_seed_oss},
    {"smollm3", families::build_smollm3},
    {"stablelm", families::build_stablelm},
    {"starcoder2", families::build_starcoder2},
    // clang-format on
};

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

Result<Program> build_program(const ModelSource& source) {
  PUMICE_TRY(const std::string_view architecture,
             source.file().get<std::string_view>("general.architecture"));
  std::string known;
  for (const ModelFamily& family : kFamilies) {
    if (family.architecture == architecture) {
      PUMICE_TRY_STATUS(check_keys(source.file(), architecture));
      PUMICE_TRY(Program program, family.build(source));
      PUMICE_TRY_STATUS(check_tensors(source, program));
      return program;
    }
    known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  }
  return make_error(ErrorCode::kBadFile, "architecture '{}' is not supported yet (known: {})",
                    printable(architecture), known);
}

}  // namespace pumice
