// A device that may be lost, and what opens another in its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "format/input_file.hpp"
#include "host/opened_model.hpp"
#include "host/recovery.hpp"
#include "shaders/self_test.hpp"
#include "vk/device.hpp"
#include "vk/snapshot.hpp"

namespace pumice::host {

/// A model's file, and what engines of it will be made with.
struct ModelRequest {
  std::filesystem::path path;
  OpenFile open_file = InputFile::open;  ///< how that is opened, now and again after a loss
  EngineOptions engine = {};
  bool engine_may_differ = true;  ///< see OpenOptions
  /// What is loaded again of the file; none: ModelPlan::of_source. Of a program that embeds, `engine`
  /// means nothing.
  std::shared_ptr<const ModelPlan> plan = {};
  std::vector<AdapterSource> adapters = {};  ///< ModelSource::adapters
};

/// Any thread. Opening holds a lock, which other threads that want the device wait for.
class DeviceOwner {
 public:
  using Open = std::function<Result<std::shared_ptr<vk::Device>>()>;

  /// `reopen`: how a lost device is reopened; none: only `replace` brings another.
  DeviceOwner(std::shared_ptr<vk::Device> device, OpenOptions options, Open reopen);
  /// The device of `options`, and that again when it was lost. Errors: those of open_device.
  static Result<std::shared_ptr<DeviceOwner>> open(OpenOptions options);

  /// The device now, with its pipelines and without a model. One that was lost is let go of and
  /// opened again. Errors: kDeviceLost where there is no way to, or those of it.
  Result<OpenedModel> opened();
  /// A model on it. `plan`: the source's, if it has been made. Errors: those of `opened` and of
  /// OpenedModel::load.
  Result<OpenedModel> load(const ModelRequest& request, const ModelSource& source,
                           const ModelWeights::Progress& loading = {},
                           std::shared_ptr<const ModelPlan> plan = {});
  /// The same of the request's file. Errors: GgufFile::open's too.
  Result<OpenedModel> load(const ModelRequest& request);
  /// Tests its kernels; the verdict is kept in the cache directory, and holds for engines made from
  /// now on, of models that are loaded too. Errors: those of `opened`, self_test_cases and
  /// self_test_status; `result` has what was found out until then.
  Status test(std::string_view ops, const SelfTestOptions& watch, SelfTestResult& result);
  /// The device without opening anything. Null: it was lost and let go of.
  std::shared_ptr<vk::Device> device() const;
  /// Also of one that was lost.
  vk::DeviceSnapshot snapshot() const;
  const OpenOptions& options() const { return options_; }
  bool is_lent() const { return reopen_ == nullptr; }
  /// Counts the devices there have been.
  uint64_t generation() const { return generation_; }
  /// Whether that device, which the caller keeps, is the latest, lost or not. Waits for nobody.
  bool is_latest(const std::shared_ptr<vk::Device>& device) const {
    return device.get() == latest_;
  }
  /// `use` with the device, which stays the owner's meanwhile: no caller's copy is ever the last,
  /// whose end would destroy what a host was told is gone. Errors: kDeviceLost where there is none.
  Status with_device(const std::function<void(vk::Device&)>& use) const;

  /// Another device for this one, lost or not, and all models on it. Errors: those of loading one,
  /// which its engines then try again.
  Status replace(std::shared_ptr<vk::Device> device);
  /// A model that was loaded here.
  void add(const std::shared_ptr<Recovery>& model);

 private:
  void set(std::shared_ptr<vk::Device> device);

  const OpenOptions options_;
  const Open reopen_;
  std::atomic<uint64_t> generation_ = 0;
  std::atomic<const vk::Device*> latest_ = nullptr;  // to be compared only
  mutable std::mutex mutex_;  // taken behind a Recovery's, never before; of all below
  OpenedModel opened_;
  vk::DeviceSnapshot snapshot_;
  std::vector<std::weak_ptr<Recovery>> models_;
};

}  // namespace pumice::host
