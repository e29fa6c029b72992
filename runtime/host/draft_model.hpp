// A small model that guesses what a larger one of the same vocabulary says, on the same device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.hpp"
#include "engine/drafting_engine.hpp"
#include "engine/prediction_drafter.hpp"
#include "host/opened_model.hpp"
#include "text/vocabulary.hpp"

namespace pumice::host {

/// Whether the tokens of two models are the same, but for unused ones that one has more of. Errors:
/// kInvalidArgument with the first difference.
Status check_same_vocabulary(const Vocabulary& model, const Vocabulary& draft,
                             std::string_view draft_name);

/// Has an engine of its own, whose prefix cache keeps what was guessed from: a guess computes what
/// came since, and of a refused one nothing is found. Waits for the device, so not for hosts with
/// frames to draw. Not thread-safe.
class DraftModel {
 public:
  /// Longer texts get no guess.
  static constexpr uint32_t kMostContext = 8192;

  /// `beside`: the model whose text is guessed, with the device and what is compiled for it. A
  /// `context_tokens` of 0 is kMostContext, or what both were trained for. Errors: those of
  /// GgufFile::open, load_tokenizer, check_same_vocabulary, OpenedModel::load and Engine::create.
  static Result<std::shared_ptr<DraftModel>> load(const OpenedModel& beside,
                                                  const Vocabulary& vocabulary,
                                                  const std::filesystem::path& file,
                                                  uint32_t context_tokens,
                                                  const OpenFile& open_file = InputFile::open);

  /// What it would say. Nothing more once its device was lost or a step failed, with a warning.
  Guess guess(std::span<const TokenId> tokens, uint32_t most);

 private:
  DraftModel(std::unique_ptr<Engine> engine, const Logger& logger)
      : engine_(std::move(engine), "the draft model", logger) {}

  DraftingEngine engine_;
};

/// The block of the model's file that predicts. `beside` gives hidden rows (ModelPlan::of_source);
/// `source`: its file. A `context_tokens` of 0 is that of DraftModel::load. Errors: those of
/// build_prediction, OpenedModel::load and Engine::create.
Result<std::shared_ptr<PredictionDrafter>> load_prediction(const OpenedModel& beside,
                                                           const ModelSource& source,
                                                           uint32_t context_tokens);

}  // namespace pumice::host
