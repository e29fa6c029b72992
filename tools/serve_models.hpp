// The models that `pumice serve` has: their files, and how each is opened for a server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "engine/engine_options.hpp"
#include "host/device_owner.hpp"
#include "tools/adapter_options.hpp"
#include "tools/model_options.hpp"
#include "tools/sampling_options.hpp"
#include "tools/serve/service/running_model.hpp"
#include "tools/serving_options.hpp"
#include "tools/tool_options.hpp"

namespace pumice::tools {

struct ServedModelOptions {
  ModelOptions model;                ///< with -hf; its `model` is the first file's
  std::vector<std::string> files;    ///< -m
  std::string folder;                ///< --models-dir
  uint32_t most_models = 4;          ///< --models-max
  std::vector<std::string> aliases;  ///< NAME, or NAME=ID
  AdapterOptions adapters;
  TextOptions texts;
  SamplingOptions generation;
  ServingOptions serving;
  uint32_t parallel = 16;
  double aging_s = EngineOptions().aging_s;
  std::vector<std::string> reserved;  ///< "CLASS=N"
  bool yields_memory = false;
  std::string pooling;
  bool has_kv_type = false;  ///< it was chosen

  /// What can be told before there is a model. Errors: kInvalidArgument.
  Status validate();
};

struct ServedFile {
  std::filesystem::path path;
  serve::ModelCard card;
};
/// Those of -m and -hf, then those of the folder and the folders in it, by name; of the latter what
/// is no model that can be served is left out, with a warning. Errors: kBadFile; kInvalidArgument:
/// two files of one name, an alias of what is not there, an adapter of a
/// model's name or of several models, nothing at all.
Result<std::vector<ServedFile>> find_served(ServedModelOptions& options, const Logger& logger);

/// Opens models for a server, all on one device. One thread at a time.
class ServedModelOpener {
 public:
  ServedModelOpener(ServedModelOptions options, std::vector<ServedFile> files, Logger logger)
      : options_(std::move(options)), files_(std::move(files)), logger_(std::move(logger)) {}

  const ServedModelOptions& options() const { return options_; }
  /// The device, without any model. Errors: DeviceOwner::open's.
  Status open_device();
  /// ModelPool::Open.
  Result<serve::OpenedParts> open(size_t model, bool alone);

 private:
  bool has_several() const { return files_.size() > 1; }
  Result<std::unique_ptr<host::Host>> open_writer(const ModelOptions& model,
                                                  const ModelSource& source,
                                                  const host::ModelTexts& texts,
                                                  const DeviceShare& share) const;
  Result<std::unique_ptr<host::LastingEmbedder>> open_embedder_of(
      const ModelOptions& model, const GgufFile& file, const host::ModelTexts& texts,
      std::shared_ptr<const ModelPlan> plan, const DeviceShare& share) const;

  const ServedModelOptions options_;
  const std::vector<ServedFile> files_;
  const Logger logger_;
  std::shared_ptr<host::DeviceOwner> device_;
  uint64_t share_bytes_ = UINT64_MAX;  // of the device, of each model
};

}  // namespace pumice::tools
