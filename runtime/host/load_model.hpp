// A model for a program that embeds: from a file, whoever reads it, to what engines are made of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "format/gguf.hpp"
#include "format/input_file.hpp"
#include "host/device_owner.hpp"
#include "host/model_owner.hpp"
#include "models/model_source.hpp"
#include "models/program.hpp"

namespace pumice::host {

/// Of one request, where nobody named a context: models are made for up to a million tokens, hosts
/// rarely are.
uint32_t default_context_tokens(uint32_t trained_context_tokens);

/// An adapter that requests may have by its name.
struct AdapterRequest {
  std::string name;
  std::filesystem::path path;
  OpenFile open_file = InputFile::open;  ///< how that is opened, once: it stays open
  float scale = 1;
};

struct LoadOptions {
  /// A context of its engine that is 0 is the default one.
  ModelRequest request;
  std::optional<std::string> chat_template = {};  ///< ModelTexts::read
  std::string answer_format = {};                 ///< likewise
  bool embeds = false;                            ///< for a LastingEmbedder, and no engine
  std::optional<Pooling> pooling = {};            ///< of that, instead of the file's
  bool predicts = false;  ///< load_prediction may follow: the model gives hidden rows
  std::vector<AdapterRequest> adapters = {};
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
  /// What opens files, of a request's way; those of adapters are read by it later too.
  std::function<OpenFile(OpenFile)> opening = [](OpenFile open_file) { return open_file; };
};

/// The model of an opened file, of which it is a view, with the adapters of the options. Errors:
/// those of GgufFile::open and AdapterSource::of_file.
Result<ModelSource> source_of(const GgufFile& file, const LoadOptions& options,
                              const LoadWatch& watch = {});

/// Warns of a chat template that is not understood. Any thread. Errors: those of GgufFile::open,
/// ModelTexts::read, source_of and DeviceOwner::load.
Result<std::shared_ptr<ModelOwner>> load_model(std::shared_ptr<DeviceOwner> device,
                                               LoadOptions options, const LoadWatch& watch = {});

}  // namespace pumice::host
