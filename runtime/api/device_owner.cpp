#include "api/device_owner.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "format/gguf.hpp"

namespace pumice::api {

DeviceOwner::DeviceOwner(std::shared_ptr<vk::Device> device, SessionOptions options, Open reopen)
    : options_(std::move(options)), reopen_(std::move(reopen)) {
  set(std::move(device));
}

void DeviceOwner::set(std::shared_ptr<vk::Device> device) {
  session_ = Session{.options = options_, .device = std::move(device)};
  std::tie(session_.pipelines, session_.verdict) =
      open_pipelines(session_.device, options_.cache_directory, options_.logger);
  snapshot_ = session_.device->snapshot();
  latest_ = session_.device.get();
  ++generation_;
}

Result<Session> DeviceOwner::session() {
  const std::lock_guard lock(mutex_);
  if (session_.device != nullptr && !session_.device->is_lost()) return session_;
  session_ = {};
  if (reopen_ == nullptr) {
    return make_error(ErrorCode::kDeviceLost,
                      "the host's device was lost, and pumice_vulkan_replace brought no other yet");
  }
  PUMICE_TRY(std::shared_ptr<vk::Device> device, reopen_());
  set(std::move(device));
  return session_;
}

Result<Session> DeviceOwner::load(const ModelRequest& request,
                                  std::shared_ptr<const ModelPlan> plan) {
  PUMICE_TRY(Session session, this->session());
  PUMICE_TRY(const GgufFile file, GgufFile::open(request.path));
  session.options.plan = std::move(plan);
  session.options.engine = request.engine;
  session.options.engine_may_differ = request.engine_may_differ;
  PUMICE_TRY_STATUS(session.load(file));
  session.options.plan = nullptr;  // of this content of the file
  return session;
}

std::shared_ptr<vk::Device> DeviceOwner::device() const {
  const std::lock_guard lock(mutex_);
  return session_.device;
}

Status DeviceOwner::with_device(const std::function<void(vk::Device&)>& use) const {
  const std::lock_guard lock(mutex_);
  if (session_.device == nullptr) {
    return make_error(ErrorCode::kDeviceLost, "the device was lost");
  }
  use(*session_.device);
  return {};
}

vk::DeviceSnapshot DeviceOwner::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

Status DeviceOwner::replace(std::shared_ptr<vk::Device> device) {
  std::vector<std::pair<std::weak_ptr<Recovery>, ModelRequest>> models;
  {
    const std::lock_guard lock(mutex_);
    set(std::move(device));
    models = models_;
  }
  Status first;
  for (const auto& model : models) {
    const std::shared_ptr<Recovery> recovery = model.first.lock();
    // None that is gone, nor one that an engine has brought here meanwhile.
    if (recovery == nullptr || recovery->session().device == this->device()) continue;
    const Status replaced = recovery->replace([&] { return load(model.second); }, {});
    if (!replaced.ok() && first.ok()) first = replaced;
  }
  return first;
}

void DeviceOwner::add(const std::shared_ptr<Recovery>& model, ModelRequest request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [](const auto& known) { return known.first.expired(); });
  models_.emplace_back(model, std::move(request));
}

}  // namespace pumice::api
