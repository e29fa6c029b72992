#include "models/model_plan.hpp"

#include <utility>

#include "models/families.hpp"

namespace pumice {

Result<std::shared_ptr<const ModelPlan>> ModelPlan::of_source(const ModelSource& source,
                                                              bool gives_hidden) {
  PUMICE_TRY(Program program, build_program(source));
  if (gives_hidden) {
    PUMICE_TRY(program, with_hidden_rows(std::move(program)));
  }
  PUMICE_TRY_STATUS(check_writes_text(program));
  return of_program(source, std::move(program));
}

Result<std::shared_ptr<const ModelPlan>> ModelPlan::of_program(const ModelSource& source,
                                                               Program program) {
  const std::shared_ptr<ModelPlan> plan(new ModelPlan(std::move(program)));
  PUMICE_TRY(const std::shared_ptr<const Lowered> lowered, plan->lowered());
  WeightLayout layout = weight_layout(source, plan->program_, *lowered);
  plan->loaded_ = std::make_shared<const Loaded>(Loaded{lowered, std::move(layout)});
  return std::shared_ptr<const ModelPlan>(plan);
}

Result<std::shared_ptr<const Lowered>> ModelPlan::lowered(const FusionRules& rules) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Lowered>& made = lowered_[rules.text()];
  if (made == nullptr) {
    ++n_lowerings_;
    PUMICE_TRY(Lowered lowered, lower(program_, rules));
    made = std::make_shared<const Lowered>(std::move(lowered));
  }
  return made;
}

std::shared_ptr<const ModelPlan> ModelPlan::first_layers(uint32_t n_layers) const {
  const std::shared_ptr<ModelPlan> plan(new ModelPlan(pumice::first_layers(program_, n_layers)));
  plan->loaded_ = loaded_;
  return plan;
}

}  // namespace pumice
