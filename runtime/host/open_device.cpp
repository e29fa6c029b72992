#include "host/open_device.hpp"

#include <utility>
#include <vector>

#include "vk/device_choice.hpp"
#include "vk/queue_priority.hpp"

namespace pumice::host {

Result<std::shared_ptr<vk::Instance>> open_instance(const DeviceRequest& request,
                                                    const Logger& logger) {
  PUMICE_TRY(vk::Instance instance, vk::Instance::create({.validation = request.validation,
                                                          .sync_validation = request.validation,
                                                          .logger = logger}));
  return std::make_shared<vk::Instance>(std::move(instance));
}

Result<ChosenDevice> choose_device(const DeviceRequest& request, const Logger& logger) {
  ChosenDevice chosen;
  PUMICE_TRY(chosen.instance, open_instance(request, logger));
  PUMICE_TRY(const std::vector<vk::DeviceSnapshot> snapshots, chosen.instance->snapshots());
  PUMICE_TRY(chosen.index, vk::choose_device(snapshots, request.selector));
  chosen.snapshot = snapshots[chosen.index];
  PUMICE_TRY(chosen.plan, vk::plan_device(chosen.snapshot, request.limits));
  return chosen;
}

Result<std::shared_ptr<vk::Device>> open_device(const DeviceRequest& request,
                                                const Logger& logger) {
  if (!(request.hang_timeout_s > 0)) {
    return make_error(ErrorCode::kInvalidArgument, "the hang timeout must be positive");
  }
  PUMICE_TRY(ChosenDevice chosen, choose_device(request, logger));
  if (request.low_priority && !vk::ask_for_low_priority(chosen.snapshot, chosen.plan)) {
    logger.info("{}: the driver does not support a low priority", chosen.snapshot.name);
  }
  vk::log_plan(chosen.snapshot, chosen.plan, logger);
  PUMICE_TRY(std::shared_ptr<vk::Device> device,
             vk::Device::create(chosen.instance, chosen.index, chosen.snapshot,
                                std::move(chosen.plan), logger));
  device->set_hang_timeout(request.hang_timeout_s);
  return device;
}

}  // namespace pumice::host
