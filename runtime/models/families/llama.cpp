// Llama 1, 2 and 3, Mistral 7B and Nemo, TinyLlama and everything else that calls itself "llama".
#include "models/families.hpp"
#include "models/metadata.hpp"

namespace pumice::families {

Result<ModelDescription> describe_llama(const ModelSource& source) {
  ModelDescription model;
  const Metadata metadata(source, "llama");
  PUMICE_TRY(const uint64_t n_experts, metadata.get_or<uint64_t>("expert_count", 0));
  if (n_experts != 0) {
    return make_error(
        ErrorCode::kBadFile,
        "llama.expert_count: mixture-of-experts models ({} experts) are not supported "
        "yet",
        n_experts);
  }
  PUMICE_TRY_STATUS(metadata.read_dimensions(model.config));
  PUMICE_TRY_STATUS(metadata.read_rope(model.config));
  PUMICE_TRY(model.config.norm_eps, metadata.get<float>("attention.layer_norm_rms_epsilon"));
  // attention.sliding_window is ignored, as llama.cpp does for this architecture.
  return model;
}

}  // namespace pumice::families
