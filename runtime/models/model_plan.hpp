// A model as planned: what it computes, the dispatches of its steps, how its weights and its states
// lie. All of that follows from a source's metadata and its tensors' shapes, before any of it is on
// a device. It is made once, and taken by whoever says what it takes (engine/memory_plan.hpp), loads
// it (model.hpp) and records it (decoder.hpp).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"
#include "models/state_layout.hpp"
#include "models/weight_layout.hpp"

namespace pumice {

/// Needs its source no more. Any number of threads may ask.
class ModelPlan {
 public:
  /// Of a model that writes text; `gives_hidden`: Program::gives_hidden. Errors: those of
  /// build_program, check_writes_text, with_hidden_rows and `lower`.
  static Result<std::shared_ptr<const ModelPlan>> of_source(const ModelSource& source,
                                                            bool gives_hidden = false);
  /// Of a program that was built of the source and checked, one that embeds or predicts too.
  /// Errors: those of `lower`.
  static Result<std::shared_ptr<const ModelPlan>> of_program(const ModelSource& source,
                                                             Program program);

  const Program& program() const { return program_; }
  /// The dispatches by these rules, made when they are first asked for. Errors: those of `lower`,
  /// which no plan has of rules that leave something out.
  Result<std::shared_ptr<const Lowered>> lowered(const FusionRules& rules = {}) const;
  /// Those for which weights are loaded; by whatever rules a step is recorded, they serve it.
  const Lowered& loaded() const { return *loaded_->lowered; }
  const WeightLayout& weights() const { return loaded_->layout; }
  /// How sequences' states lie in pages, keys and values in these types.
  StateLayout state(KvTypes type) const { return state_layout(program_, type); }

  /// That of the first layers and what follows the last one, for the same weights.
  std::shared_ptr<const ModelPlan> first_layers(uint32_t n_layers) const;

  /// How often `lower` has been called for this plan: once for all that a run does, and once for
  /// any rules of its own.
  uint32_t n_lowerings() const { return n_lowerings_; }

 private:
  struct Loaded {
    std::shared_ptr<const Lowered> lowered;
    WeightLayout layout;  // refers to it
  };
  explicit ModelPlan(Program program) : program_(std::move(program)) {}

  const Program program_;
  std::shared_ptr<const Loaded> loaded_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const Lowered>> lowered_;  // guarded; by rules
  mutable std::atomic<uint32_t> n_lowerings_ = 0;
};

}  // namespace pumice
