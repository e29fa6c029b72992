#include "vk/device.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "vk/device_fault.hpp"
#include "vk/feature_chain.hpp"
#include "vk/queue_priority.hpp"
#include "vk/requirements.hpp"

namespace pumice::vk {
namespace {

// Every slab is one such buffer, so all of them may have the same memory types.
VkBufferCreateInfo slab_buffer(uint64_t size_bytes) {
  return {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
          .size = size_bytes,
          .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                   VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
                   VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
}

// What a driver keeps on the device when programs want more than it has: activations and KV, which
// steps write, and weights, of which there is most to move, rather than staging.
float priority_of(MemoryDomain domain, std::string_view purpose) {
  if (domain != MemoryDomain::kDevice) return 0.25f;
  return purpose == "weights" ? 0.75f : 1.0f;
}

// How long to leave a host's queue to the host before asking for it again.
constexpr std::chrono::microseconds kQueueRetry{50};
constexpr std::chrono::milliseconds kIdleRetry{1};

VkSemaphoreSubmitInfo submit_info(const TimelinePoint& point) {
  return {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
          .semaphore = point.semaphore,
          .value = point.value,
          .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
}

Status check_host(const HostDevice& host) {
  if (host.device == VK_NULL_HANDLE || host.queue == VK_NULL_HANDLE) {
    return make_error(ErrorCode::kInvalidArgument, "the host's {} is null",
                      host.device == VK_NULL_HANDLE ? "device" : "queue");
  }
  if ((host.queue_lock.try_lock == nullptr) != (host.queue_lock.unlock == nullptr)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the host's queue lock needs both try_lock and unlock, or neither");
  }
  if ((host.allocator.allocate == nullptr) != (host.allocator.free == nullptr)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the host's allocator needs both allocate and free, or neither");
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Device>> Device::create(std::shared_ptr<Instance> instance, size_t index,
                                               const DeviceSnapshot& snapshot, DevicePlan plan,
                                               Logger logger, const Intercept& intercept) {
  PUMICE_CHECK(index < instance->physical_devices().size(), "device index out of range");
  std::shared_ptr<Device> device(new Device);
  device->instance_ = std::move(instance);
  device->snapshot_ = snapshot;
  device->plan_ = std::move(plan);
  device->logger_ = std::move(logger);

  const auto& extensions = device->plan_.extensions;
  FeatureChain features(snapshot.api_version, [&](std::string_view name) {
    return std::ranges::find(extensions, name) != extensions.end();
  });
  features.write(device->plan_.features);
  std::vector<const char*> extension_names;
  for (const std::string& name : extensions) extension_names.push_back(name.c_str());

  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue_info{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = device->plan_.queue_family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
  VkDeviceQueueGlobalPriorityCreateInfoKHR low{
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_GLOBAL_PRIORITY_CREATE_INFO_KHR,
      .globalPriority = VK_QUEUE_GLOBAL_PRIORITY_LOW_KHR};
  if (has_low_priority(device->plan_)) queue_info.pNext = &low;
  VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                          .pNext = features.head(),
                          .queueCreateInfoCount = 1,
                          .pQueueCreateInfos = &queue_info,
                          .enabledExtensionCount = static_cast<uint32_t>(extension_names.size()),
                          .ppEnabledExtensionNames = extension_names.data()};
  const InstanceFunctions& instance_fn = device->instance_->functions();
  const VkPhysicalDevice physical_device = device->instance_->physical_devices()[index];
  VkResult result = instance_fn.vkCreateDevice(physical_device, &info, nullptr, &device->device_);
  if (result == VK_ERROR_NOT_PERMITTED_KHR && queue_info.pNext != nullptr) {
    device->logger_.info("{}: a low priority was not granted", snapshot.name);
    queue_info.pNext = nullptr;
    result = instance_fn.vkCreateDevice(physical_device, &info, nullptr, &device->device_);
  }
  if (result != VK_SUCCESS) {
    return make_error(ErrorCode::kNoDevice,
                      "{}: the driver could not create a device (VkResult {})", snapshot.name,
                      static_cast<int>(result));
  }
  PUMICE_TRY_STATUS(device->start(intercept));
  return device;
}

Result<std::shared_ptr<Device>> Device::adopt(const HostDevice& host, const PlanOptions& limits,
                                              Logger logger, const Intercept& intercept) {
  PUMICE_TRY_STATUS(check_host(host));
  PUMICE_TRY(Instance instance,
             Instance::adopt(host.get_instance_proc_addr, host.instance, host.physical_device));
  std::shared_ptr<Device> device(new Device);
  device->instance_ = std::make_shared<Instance>(std::move(instance));
  PUMICE_TRY(const std::vector<DeviceSnapshot> snapshots, device->instance_->snapshots());
  PUMICE_TRY(device->snapshot_, restrict_to(snapshots[0], {.api_version = host.api_version,
                                                           .queue_family = host.queue_family,
                                                           .extensions = host.extensions,
                                                           .features = host.features}));
  PUMICE_TRY(device->plan_, plan_device(device->snapshot_, limits));
  device->logger_ = std::move(logger);
  log_plan(device->snapshot_, device->plan_, device->logger_);
  device->device_ = host.device;
  device->is_guest_ = true;
  device->queue_ = host.queue;
  device->queue_lock_ = host.queue_lock;
  device->allocator_ = host.allocator;
  PUMICE_TRY_STATUS(device->start(intercept));
  return device;
}

Status Device::start(const Intercept& intercept) {
  PUMICE_TRY(fn_, load_device_functions(instance_->functions(), device_));
  if (intercept) intercept(fn_);
  if (!is_guest_) fn_.vkGetDeviceQueue(device_, plan_.queue_family, 0, &queue_);

  if (plan_.compile_only) return {};
  PUMICE_TRY_STATUS(choose_memory());

  VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                 .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  VkSemaphoreCreateInfo semaphore_info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                       .pNext = &type};
  const VkResult result = fn_.vkCreateSemaphore(device_, &semaphore_info, nullptr, &timeline_);
  if (result != VK_SUCCESS) return error_of(result, "creating the timeline semaphore");
  return landing_marks_.create(*this);
}

Device::~Device() {
  if (device_ == VK_NULL_HANDLE || fn_.vkDestroyDevice == nullptr) return;
  wait_idle();
  if (hangs()) {
    instance_->leave_to_driver();
    logger_.warning("{} hangs: its memory is left to the driver", snapshot_.name);
    return;
  }
  if (!is_guest_ && timeline_) fn_.vkDeviceWaitIdle(device_);  // returns at once
  for (Retired& retired : retired_) retired.destroy();
  landing_marks_.destroy(*this);
  if (timeline_) fn_.vkDestroySemaphore(device_, timeline_, nullptr);
  if (!is_guest_) fn_.vkDestroyDevice(device_, nullptr);
  if (const uint64_t leaked = ledger_.total_bytes(); leaked > 0) {
    logger_.warning("{} bytes of device memory were never freed", leaked);
  }
  if (const Status whole = ledger_.check_integrity(); !whole.ok()) {
    logger_.warning("{}: {}", snapshot_.name, whole.error().message);
  }
}

Status Device::choose_memory() {
  const VkBufferCreateInfo buffer = slab_buffer(plan_.slab_bytes);
  VkDeviceBufferMemoryRequirements info{
      .sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS, .pCreateInfo = &buffer};
  VkMemoryRequirements2 requirements{.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
  fn_.vkGetDeviceBufferMemoryRequirements(device_, &info, &requirements);
  const uint32_t allowed = requirements.memoryRequirements.memoryTypeBits;
  const auto is_allowed = [&](const MemoryChoice& choice) {
    return (allowed >> choice.type & 1) != 0;
  };
  if (std::ranges::all_of(plan_.memory, is_allowed)) return {};
  PUMICE_TRY_STATUS(plan_memory(snapshot_, allowed, plan_));
  logger_.info("{}: buffers may have the memory types {:#x} only; using {} on the device",
               snapshot_.name, allowed, plan_.domain(MemoryDomain::kDevice).type);
  return {};
}

Result<uint64_t> Device::submit(std::span<const VkCommandBuffer> command_buffers) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (true) {
    PUMICE_TRY(const std::optional<uint64_t> value, try_submit(command_buffers));
    if (value) return *value;
    if (std::chrono::duration<double>(Clock::now() - start).count() > hang_timeout_s_.load()) {
      return make_error(ErrorCode::kInternal, "{}: the host held its queue for {} seconds",
                        snapshot_.name, hang_timeout_s_.load());
    }
    std::this_thread::sleep_for(kQueueRetry);
  }
}

Result<std::optional<uint64_t>> Device::try_submit(
    std::span<const VkCommandBuffer> command_buffers) {
  PUMICE_CHECK(!plan_.compile_only, "a device without hardware only compiles");
  if (is_lost()) return lost_error();
  const std::lock_guard lock(queue_mutex_);
  PUMICE_TRY(const VkCommandBuffer mark, landing_marks_.commands(*this, last_submitted_ + 1));
  if (mark == VK_NULL_HANDLE) return std::optional<uint64_t>();
  std::vector<VkCommandBufferSubmitInfo> buffers;
  const auto add = [&](VkCommandBuffer commands) {
    VkCommandBufferSubmitInfo& buffer = buffers.emplace_back();
    buffer.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    buffer.commandBuffer = commands;
  };
  for (VkCommandBuffer commands : command_buffers) add(commands);
  add(mark);
  std::vector<VkSemaphoreSubmitInfo> waits;
  for (const TimelinePoint& point : begin_after_) waits.push_back(submit_info(point));
  const VkSemaphoreSubmitInfo signal = submit_info({timeline_, last_submitted_ + 1});
  VkSubmitInfo2 info{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                     .waitSemaphoreInfoCount = static_cast<uint32_t>(waits.size()),
                     .pWaitSemaphoreInfos = waits.data(),
                     .commandBufferInfoCount = static_cast<uint32_t>(buffers.size()),
                     .pCommandBufferInfos = buffers.data(),
                     .signalSemaphoreInfoCount = 1,
                     .pSignalSemaphoreInfos = &signal};
  if (queue_lock_.try_lock != nullptr && !queue_lock_.try_lock(queue_lock_.user)) {
    return std::optional<uint64_t>();
  }
  const VkResult result = fn_.vkQueueSubmit2(queue_, 1, &info, VK_NULL_HANDLE);
  if (queue_lock_.try_lock != nullptr) queue_lock_.unlock(queue_lock_.user);
  if (result != VK_SUCCESS) return error_of(result, "submitting work");
  begin_after_.clear();
  hang_watch_.submitted(++last_submitted_, HangWatch::Clock::now());
  return std::optional(last_submitted_);
}

void Device::begin_after(const TimelinePoint& point) {
  const std::lock_guard lock(queue_mutex_);
  begin_after_.push_back(point);
}

TimelinePoint Device::submitted() {
  const std::lock_guard lock(queue_mutex_);
  return {timeline_, last_submitted_};
}

Error Device::lost_error() const {
  return make_error(ErrorCode::kDeviceLost, "{}: the device was lost", snapshot_.name);
}

Error Device::faulty(std::string_view what) {
  note(Loss::kFaulty);
  return make_error(ErrorCode::kDeviceLost, "{} {}: it or its driver is faulty", snapshot_.name,
                    what);
}

/// Once it is known to hang, it hangs.
void Device::note(Loss loss) const {
  Loss known = loss_;
  while (known < loss && !loss_.compare_exchange_weak(known, loss)) {
  }
}

Error Device::hang_error() {
  note(Loss::kHangs);
  return make_error(ErrorCode::kDeviceLost,
                    "{} made no progress for {} seconds: it hangs, or is so slow that the hang "
                    "timeout should be longer",
                    snapshot_.name, hang_timeout_s_.load());
}

Status Device::wait(uint64_t value) {
  while (true) {
    PUMICE_TRY(const bool reached, wait_for(value, std::chrono::hours(1)));
    if (reached) return {};
  }
}

Result<bool> Device::wait_for(uint64_t value, std::chrono::nanoseconds most) {
  if (is_lost()) return lost_error();
  return await(value, most);
}

Result<bool> Device::await(uint64_t value, std::chrono::nanoseconds most) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  VkSemaphoreWaitInfo info{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                           .semaphoreCount = 1,
                           .pSemaphores = &timeline_,
                           .pValues = &value};
  while (true) {
    PUMICE_TRY(const Progress now, progress());
    if (now.value >= value) return true;
    const std::chrono::duration<double> left = most - (Clock::now() - start);
    if (left.count() <= 0) return false;
    // Other work before it may end meanwhile: whether the device hangs is asked again then.
    const auto timeout_ns = static_cast<uint64_t>(1e9 * std::min(left, now.patience).count());
    const VkResult result = fn_.vkWaitSemaphores(device_, &info, timeout_ns);
    if (result != VK_SUCCESS && result != VK_TIMEOUT) {
      return error_of(result, "waiting for the device");
    }
  }
}

Result<Device::Progress> Device::progress() {
  Progress progress;
  const VkResult result = fn_.vkGetSemaphoreCounterValue(device_, timeline_, &progress.value);
  if (result != VK_SUCCESS) return error_of(result, "asking for progress");
  if (!landing_marks_.all_written(progress.value)) {
    return faulty("ended work that it did not do, as a watchdog that cancels long work lets it");
  }
  const auto stuck = hang_watch_.reached(progress.value, HangWatch::Clock::now());
  progress.patience = std::chrono::duration<double>(hang_timeout_s_.load()) - stuck;
  if (progress.patience.count() <= 0) return hang_error();
  return progress;
}

Result<uint64_t> Device::completed() {
  if (is_lost()) return lost_error();
  PUMICE_TRY(const Progress now, progress());
  return now.value;
}

void Device::add_retired(std::function<void()> destroy) {
  const std::lock_guard lock(queue_mutex_);
  retired_.push_back({last_submitted_, std::move(destroy)});
}

void Device::destroy_retired() {
  if (hangs()) return;
  const std::lock_guard lock(queue_mutex_);
  uint64_t reached = 0;
  if (fn_.vkGetSemaphoreCounterValue(device_, timeline_, &reached) != VK_SUCCESS) return;
  while (!retired_.empty() && retired_.front().value <= reached) {
    retired_.front().destroy();
    retired_.pop_front();
  }
}

void Device::wait_idle() {
  if (timeline_ == VK_NULL_HANDLE) return;  // it only compiles
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const uint64_t value = submitted().value;
  while (!hangs() && loss_ != Loss::kLost) {
    const Result<bool> reached = await(value, std::chrono::hours(1));
    if (reached.ok() && *reached) return;
    if (reached.ok() || is_lost()) continue;
    // The driver has no memory to wait with, say.
    std::this_thread::sleep_for(kIdleRetry);
    if (std::chrono::duration<double>(Clock::now() - start).count() > hang_timeout_s_.load()) {
      (void)hang_error();
    }
  }
  // Of one that the driver calls lost this returns soon, and a guest's is idle to us.
  if (hangs() || is_guest_) return;
  const std::lock_guard lock(queue_mutex_);
  fn_.vkDeviceWaitIdle(device_);
}

Status Device::check_fits(uint64_t bytes, std::string_view what) const {
  const auto mebibytes = [](uint64_t n) { return static_cast<double>(n) / (1 << 20); };
  const uint64_t used = ledger_.budgeted_bytes();
  const uint64_t budget = plan_.device_budget_bytes;
  const uint64_t available = budget > used ? budget - used : 0;
  if (bytes <= available) return {};
  return make_error(ErrorCode::kDoesNotFit,
                    "{} need {:.1f} MiB, {:.1f} MiB more than {} has free ({:.1f} of {:.1f} MiB)",
                    what, mebibytes(bytes), mebibytes(bytes - available), snapshot_.name,
                    mebibytes(available), mebibytes(budget));
}

Result<Slab> Device::allocate_slab(MemoryDomain domain, uint64_t size_bytes,
                                   const std::string& purpose) {
  const MemoryChoice& choice = plan_.domain(domain);
  Slab slab;
  slab.size_bytes = size_bytes;

  if (n_allocations_.fetch_add(1) >= plan_.max_allocation_count) {
    --n_allocations_;
    return make_error(ErrorCode::kDoesNotFit,
                      "{}: {} needs one more allocation, but all {} that this driver allows "
                      "(maxMemoryAllocationCount) are in use: close other models",
                      snapshot_.name, purpose, plan_.max_allocation_count);
  }
  const VkBufferCreateInfo buffer_info = slab_buffer(size_bytes);
  VkResult result = fn_.vkCreateBuffer(device_, &buffer_info, nullptr, &slab.buffer);
  if (result != VK_SUCCESS) {
    free_slab(slab);
    return error_of(result, "creating a buffer for " + purpose);
  }

  // Drivers may round a buffer up; the slab's own alignment (256) keeps this at the asked size.
  VkBufferMemoryRequirementsInfo2 requirements_info{
      .sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2, .buffer = slab.buffer};
  VkMemoryRequirements2 requirements{.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
  fn_.vkGetBufferMemoryRequirements2(device_, &requirements_info, &requirements);
  result = allocate_memory(choice, requirements.memoryRequirements, priority_of(domain, purpose),
                           slab.memory);
  slab.mapped = static_cast<std::byte*>(slab.memory.mapped);
  if (result == VK_SUCCESS) {
    result = fn_.vkBindBufferMemory(device_, slab.buffer, slab.memory.memory, slab.memory.offset);
  }
  if (result == VK_SUCCESS && domain != MemoryDomain::kDevice && slab.mapped == nullptr) {
    free_slab(slab);
    return make_error(ErrorCode::kInvalidArgument,
                      "the host's allocator did not map {} bytes for {}", size_bytes, purpose);
  }
  if (result != VK_SUCCESS) {
    free_slab(slab);
    return error_of(result, fmt::format("allocating {} bytes for {}", size_bytes, purpose));
  }
  VkBufferDeviceAddressInfo address_info{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                         .buffer = slab.buffer};
  slab.address = fn_.vkGetBufferDeviceAddress(device_, &address_info);
  ++n_allocated_;
  return slab;
}

VkResult Device::allocate_memory(const MemoryChoice& choice,
                                 const VkMemoryRequirements& requirements, float priority,
                                 HostMemory& memory) const {
  const bool maps = choice.host_visible && choice.coherent;
  if (allocator_.allocate != nullptr) {
    HostMemory lent;
    const VkResult result = allocator_.allocate(allocator_.user,
                                                {.size_bytes = requirements.size,
                                                 .alignment = requirements.alignment,
                                                 .memory_type = choice.type,
                                                 .priority = priority,
                                                 .mapped = maps},
                                                lent);
    if (result == VK_SUCCESS) memory = lent;
    return result;
  }
  VkMemoryPriorityAllocateInfoEXT priority_info{
      .sType = VK_STRUCTURE_TYPE_MEMORY_PRIORITY_ALLOCATE_INFO_EXT, .priority = priority};
  VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                  .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  if (plan_.features.memory_priority) flags.pNext = &priority_info;
  VkMemoryAllocateInfo info{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                            .pNext = &flags,
                            .allocationSize = requirements.size,
                            .memoryTypeIndex = choice.type};
  VkResult result = fn_.vkAllocateMemory(device_, &info, nullptr, &memory.memory);
  if (result == VK_SUCCESS && maps) {
    result = fn_.vkMapMemory(device_, memory.memory, 0, VK_WHOLE_SIZE, 0, &memory.mapped);
  }
  return result;
}

void Device::free_slab(const Slab& slab) {
  fn_.vkDestroyBuffer(device_, slab.buffer, nullptr);
  if (allocator_.allocate == nullptr) {
    fn_.vkFreeMemory(device_, slab.memory.memory, nullptr);
  } else if (slab.memory.memory != VK_NULL_HANDLE) {
    allocator_.free(allocator_.user, slab.memory);
  }
  --n_allocations_;
}

Error Device::error_of(VkResult result, std::string_view what) const {
  switch (result) {
    case VK_ERROR_DEVICE_LOST:
      note(Loss::kLost);
      return make_error(ErrorCode::kDeviceLost, "{}: the device was lost while {}{}",
                        snapshot_.name, what,
                        plan_.features.device_fault ? describe_fault(fn_, device_) : "");
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return make_error(ErrorCode::kDoesNotFit, "{}: out of memory while {} ({} bytes in use)",
                        snapshot_.name, what, ledger_.total_bytes());
    default:
      return make_error(ErrorCode::kInternal, "{}: VkResult {} while {}", snapshot_.name,
                        static_cast<int>(result), what);
  }
}

}  // namespace pumice::vk
