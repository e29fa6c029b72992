// A model for a program that embeds: from a file, whoever reads it, to what engines are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "host/device_owner.hpp"
#include "host/model_owner.hpp"
#include "models/program.hpp"

namespace pumice::host {

/// Of one request, where nobody named a context: models are made for up to a million tokens, hosts
/// rarely are.
uint32_t default_context_tokens(uint32_t trained_context_tokens);

struct LoadOptions {
  /// A context of its engine that is 0 is the default one.
  ModelRequest request;
  std::optional<std::string> chat_template = {};  ///< ModelTexts::read
  std::string answer_format = {};                 ///< likewise
  bool embeds = false;                            ///< for a LastingEmbedder, and no engine
  std::optional<Pooling> pooling = {};            ///< of that, instead of the file's
  bool predicts = false;  ///< load_prediction may follow: the model gives hidden rows
};

/// How far loading is.
struct LoadProgress {
  enum class Phase {
    kReading,  ///< the file's description and its vocabulary
    kWeights,  ///< bytes of the file count
    kEnded,
  };
  Phase phase = Phase::kReading;
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
};

struct LoadWatch {
  std::function<void(const LoadProgress&)> on_progress = {};
  /// Opens files this time only, instead of the request's way.
  OpenFile open_file = {};
};

/// Warns of a chat template that is not understood. Any thread. Errors: those of GgufFile::open,
/// ModelTexts::read and DeviceOwner::load.
Result<std::shared_ptr<ModelOwner>> load_model(std::shared_ptr<DeviceOwner> device,
                                               LoadOptions options, const LoadWatch& watch = {});

}  // namespace pumice::host
