#include "host/device_owner.hpp"

#include <algorithm>
#include <tuple>

#include "format/gguf.hpp"
#include "host/self_test.hpp"

namespace pumice::host {

DeviceOwner::DeviceOwner(std::shared_ptr<vk::Device> device, OpenOptions options, Open reopen)
    : options_(std::move(options)), reopen_(std::move(reopen)) {
  set(std::move(device));
}

Result<std::shared_ptr<DeviceOwner>> DeviceOwner::open(OpenOptions options) {
  const auto open_it = [request = options.device, logger = options.logger] {
    return open_device(request, logger);
  };
  PUMICE_TRY(std::shared_ptr<vk::Device> device, open_it());
  return std::make_shared<DeviceOwner>(std::move(device), std::move(options), open_it);
}

void DeviceOwner::set(std::shared_ptr<vk::Device> device) {
  opened_ = OpenedModel{.options = options_, .device = std::move(device)};
  std::tie(opened_.pipelines, opened_.verdict) =
      open_pipelines(opened_.device, options_.cache_directory, options_.logger);
  snapshot_ = opened_.device->snapshot();
  latest_ = opened_.device.get();
  ++generation_;
}

Result<OpenedModel> DeviceOwner::opened() {
  const std::lock_guard lock(mutex_);
  if (opened_.device != nullptr && !opened_.device->is_lost()) return opened_;
  opened_ = {};
  if (reopen_ == nullptr) {
    return make_error(
        ErrorCode::kDeviceLost,
        "the host's device was lost and has not been replaced yet (pumice_vulkan_replace)");
  }
  PUMICE_TRY(std::shared_ptr<vk::Device> device, reopen_());
  set(std::move(device));
  return opened_;
}

Result<OpenedModel> DeviceOwner::load(const ModelRequest& request) {
  PUMICE_TRY(const GgufFile file, GgufFile::open(request.path, request.open_file));
  return load(request, ModelSource(file).with_adapters(request.adapters), {}, request.plan);
}

Result<OpenedModel> DeviceOwner::load(const ModelRequest& request, const ModelSource& source,
                                      const ModelWeights::Progress& loading,
                                      std::shared_ptr<const ModelPlan> plan) {
  PUMICE_TRY(OpenedModel opened, this->opened());
  opened.options.plan = std::move(plan);
  opened.options.engine = request.engine;
  opened.options.engine_may_differ = request.engine_may_differ;
  PUMICE_TRY_STATUS(opened.load(source, loading));
  opened.options.plan = nullptr;  // of this source alone
  return opened;
}

Status DeviceOwner::test(std::string_view ops, const SelfTestOptions& watch,
                         SelfTestResult& result) {
  PUMICE_TRY(std::vector<ops::OpCase> cases, self_test_cases(ops));
  PUMICE_TRY(const OpenedModel opened, this->opened());
  VerdictKeeper keeper(options_.cache_directory, *opened.device, options_.logger);
  result = test_device(opened.device, options_.cache_directory, keeper, std::move(cases), watch,
                       options_.logger);
  opened.pipelines->reject(result.verdict.rejected());
  opened.pipelines->accept(result.verdict.passed());
  const std::lock_guard lock(mutex_);
  if (opened_.device == opened.device) opened_.verdict = result.verdict;
  return self_test_status(opened.device->snapshot(), result);
}

std::shared_ptr<vk::Device> DeviceOwner::device() const {
  const std::lock_guard lock(mutex_);
  return opened_.device;
}

Status DeviceOwner::with_device(const std::function<void(vk::Device&)>& use) const {
  const std::lock_guard lock(mutex_);
  if (opened_.device == nullptr) {
    return make_error(ErrorCode::kDeviceLost, "the device was lost");
  }
  use(*opened_.device);
  return {};
}

vk::DeviceSnapshot DeviceOwner::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

Status DeviceOwner::replace(std::shared_ptr<vk::Device> device) {
  std::vector<std::weak_ptr<Recovery>> models;
  {
    const std::lock_guard lock(mutex_);
    set(std::move(device));
    models = models_;
  }
  Status first;
  for (const std::weak_ptr<Recovery>& model : models) {
    const std::shared_ptr<Recovery> recovery = model.lock();
    // None that is gone, nor one that an engine has brought here meanwhile.
    if (recovery == nullptr || recovery->opened().device == this->device()) continue;
    const Status replaced = recovery->replace();
    if (!replaced.ok() && first.ok()) first = replaced;
  }
  return first;
}

void DeviceOwner::add(const std::shared_ptr<Recovery>& model) {
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [](const auto& known) { return known.expired(); });
  models_.emplace_back(model);
}

}  // namespace pumice::host
