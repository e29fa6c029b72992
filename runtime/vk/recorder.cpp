#include "vk/recorder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pumice::vk {
namespace {

bool overlap(const BufferRange& a, const BufferRange& b) {
  return a.slab == b.slab && a.offset < b.offset + b.size_bytes &&
         b.offset < a.offset + a.size_bytes;
}

/// Column windows of matrices with one stride, neither wrapping around into the next row.
bool disjoint_columns(const Access& a, const Access& b) {
  if (a.stride_bytes == 0 || a.stride_bytes != b.stride_bytes) return false;
  const uint64_t stride = a.stride_bytes;
  const uint64_t distance = (b.range.offset % stride + stride - a.range.offset % stride) % stride;
  return distance >= a.width_bytes && distance + b.width_bytes <= stride;
}

}  // namespace

std::string_view arithmetic_name(Arithmetic arithmetic) {
  constexpr std::array<std::string_view, kArithmeticCount> kNames = {
      "f32",
      "f16",
      "int8 dot",
      "matrix f16->f16",
      "matrix f16->f32",
      "matrix bf16->f32",
      "matrix s8->s32",
  };
  return kNames.at(static_cast<size_t>(arithmetic));
}

bool conflict(const Access& a, const Access& b) {
  const bool both_read = a.mode == AccessMode::kRead && b.mode == AccessMode::kRead;
  const bool promised_disjoint =
      a.disjoint_group != nullptr && a.disjoint_group == b.disjoint_group;
  return !both_read && !promised_disjoint && overlap(a.range, b.range) && !disjoint_columns(a, b);
}

RecordedWork::~RecordedWork() { release(); }

RecordedWork::RecordedWork(RecordedWork&& other) noexcept { *this = std::move(other); }

RecordedWork& RecordedWork::operator=(RecordedWork&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::move(other.device_);
    pool_ = std::exchange(other.pool_, VK_NULL_HANDLE);
    queries_ = std::exchange(other.queries_, VK_NULL_HANDLE);
    timed_ = other.timed_;
    segments_ = std::move(other.segments_);
    commands_ = std::move(other.commands_);
    barrier_count_ = other.barrier_count_;
  }
  return *this;
}

void RecordedWork::release() {
  if (!device_) return;
  if (queries_ || pool_) {
    device_->retire([device = device_.get(), pool = pool_, queries = queries_] {
      device->fn().vkDestroyQueryPool(device->handle(), queries, nullptr);
      device->fn().vkDestroyCommandPool(device->handle(), pool, nullptr);
    });
  }
  queries_ = VK_NULL_HANDLE;
  pool_ = VK_NULL_HANDLE;
}

Result<std::vector<CommandTime>> RecordedWork::command_times() const {
  PUMICE_CHECK(timed_ == Timed::kCommands, "recorded without timestamps");
  return query_pairs(commands_.size());
}

Result<std::vector<double>> RecordedWork::command_times_ns() const {
  PUMICE_TRY(const std::vector<CommandTime> times, command_times());
  std::vector<double> durations;
  for (const CommandTime& time : times) durations.push_back(time.end_ns - time.begin_ns);
  return durations;
}

Result<double> RecordedWork::span_ns() const {
  PUMICE_CHECK(timed_ == Timed::kSpan, "recorded without its span");
  PUMICE_TRY(const std::vector<CommandTime> times, query_pairs(1));
  return times[0].end_ns - times[0].begin_ns;
}

Result<std::vector<double>> RecordedWork::segment_times_ns() const {
  PUMICE_CHECK(timed_ == Timed::kSegments, "recorded without times of segments");
  PUMICE_TRY(const std::vector<uint64_t> ticks, query_ticks(segments_.size(), 0));
  std::vector<double> durations;
  for (size_t i = 0; i < ticks.size(); i += 2) {
    durations.push_back(ns_between(ticks[i], ticks[i + 1]));
  }
  return durations;
}

Result<std::vector<uint64_t>> RecordedWork::query_ticks(size_t n_pairs,
                                                        VkQueryResultFlags wait) const {
  std::vector<uint64_t> ticks(n_pairs * 2);
  const VkResult result = device_->fn().vkGetQueryPoolResults(
      device_->handle(), queries_, 0, static_cast<uint32_t>(ticks.size()),
      ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
      VK_QUERY_RESULT_64_BIT | wait);
  if (result != VK_SUCCESS) return device_->error_of(result, "reading timestamps");
  return ticks;
}

double RecordedWork::ns_between(uint64_t earlier_ticks, uint64_t later_ticks) const {
  const uint32_t valid_bits = device_->plan().timestamp_valid_bits;
  const uint64_t mask = valid_bits >= 64 ? ~0ull : (1ull << valid_bits) - 1;
  // Differences are taken of whole ticks: a double does not hold the nanoseconds of a clock that
  // has run for months.
  return static_cast<double>((later_ticks - earlier_ticks) & mask) *
         device_->plan().timestamp_period_ns;
}

Result<std::vector<CommandTime>> RecordedWork::query_pairs(size_t n_pairs) const {
  PUMICE_TRY(const std::vector<uint64_t> ticks, query_ticks(n_pairs, VK_QUERY_RESULT_WAIT_BIT));
  std::vector<CommandTime> times(n_pairs);
  for (size_t i = 0; i < times.size(); ++i) {
    times[i] = {ns_between(ticks[0], ticks[2 * i]), ns_between(ticks[0], ticks[2 * i + 1])};
  }
  return times;
}

Recorder::Recorder(std::shared_ptr<Device> device, RecorderOptions options)
    : device_(std::move(device)), options_(options) {}

void Recorder::dispatch_bytes(const Pipeline& pipeline, std::span<const std::byte> push, Grid grid,
                              const BufferRange& indirect, std::initializer_list<Access> accesses,
                              Cost cost) {
  PUMICE_CHECK(push.size() == pipeline.push_bytes(), "push constants of another pipeline");
  const auto& most = device_->plan().max_workgroup_count;
  PUMICE_CHECK(grid.x <= most[0] && grid.y <= most[1] && grid.z <= most[2],
               "more workgroups than the device dispatches: " + pipeline.label());
  Command command;
  command.kind = Kind::kDispatch;
  command.pipeline = &pipeline;
  std::memcpy(command.push.data(), push.data(), push.size());
  command.push_bytes = static_cast<uint32_t>(push.size());
  command.grid = grid;
  command.indirect = indirect;
  command.cost = cost;
  std::vector<Access> all(accesses);
  if (!indirect.empty())
    all.push_back(reads(indirect.subrange(0, sizeof(VkDispatchIndirectCommand))));
  add(command, all);
}

void Recorder::copy(const BufferRange& source, const BufferRange& target) {
  PUMICE_CHECK(target.size_bytes >= source.size_bytes, "copy into a smaller range");
  Command command;
  command.kind = Kind::kCopy;
  command.indirect = source;
  command.target = target.subrange(0, source.size_bytes);
  command.cost.bytes = 2 * source.size_bytes;
  const Access accesses[] = {reads(command.indirect), writes(command.target)};
  add(command, accesses);
}

void Recorder::fill(const BufferRange& target, uint32_t word) {
  PUMICE_CHECK(target.size_bytes % 4 == 0, "fill of a range that is not whole words");
  Command command;
  command.kind = Kind::kFill;
  command.target = target;
  command.fill_word = word;
  command.cost.bytes = target.size_bytes;
  const Access accesses[] = {writes(target)};
  add(command, accesses);
}

void Recorder::add(Command command, std::span<const Access> accesses) {
  for (const Access& access : accesses) {
    if (access.range.empty()) continue;
    const auto conflicts = [&](const Access& earlier) { return conflict(earlier, access); };
    if (std::ranges::any_of(since_barrier_, conflicts)) {
      command.barrier_before = true;
      since_barrier_.clear();
      break;
    }
  }
  for (const Access& access : accesses) {
    if (!access.range.empty()) since_barrier_.push_back(access);
  }
  command.scope = scope_;
  commands_.push_back(command);
}

// One for every hazard: what commands of all kinds wrote, to what all kinds and the host read.
// Grids are read in a stage of their own, which is also among those waited for: a grid must not be
// overwritten before it was read.
VkPipelineStageFlags2 Recorder::stages_of(const Command& command) {
  if (command.kind != Kind::kDispatch) return VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT;
  return VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT |
         (command.indirect.empty() ? 0 : VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT);
}

/// Writes of `from` come before what `to` reads and writes. Stages that nothing runs in are left
/// out: a barrier from compute to compute need not empty the units that copy, nor the host's view.
void Recorder::emit_barrier(VkCommandBuffer commands, VkPipelineStageFlags2 from,
                            VkPipelineStageFlags2 to) const {
  VkMemoryBarrier2 memory{
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2, .srcStageMask = from, .dstStageMask = to};
  if ((from & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT) != 0) {
    memory.srcAccessMask |= VK_ACCESS_2_SHADER_WRITE_BIT;
  }
  if ((from & VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT) != 0) {
    memory.srcAccessMask |= VK_ACCESS_2_TRANSFER_WRITE_BIT;
  }
  if ((to & VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT) != 0) {
    memory.dstAccessMask |= VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT;
  }
  if ((to & VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT) != 0) {
    memory.dstAccessMask |= VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT;
  }
  if ((to & VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT) != 0) {
    memory.dstAccessMask |= VK_ACCESS_2_INDIRECT_COMMAND_READ_BIT;
  }
  if ((to & VK_PIPELINE_STAGE_2_HOST_BIT) != 0) memory.dstAccessMask |= VK_ACCESS_2_HOST_READ_BIT;
  VkDependencyInfo dependency{.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                              .memoryBarrierCount = 1,
                              .pMemoryBarriers = &memory};
  device_->fn().vkCmdPipelineBarrier2(commands, &dependency);
}

void Recorder::emit(const Command& command, VkCommandBuffer commands) const {
  const DeviceFunctions& fn = device_->fn();
  switch (command.kind) {
    case Kind::kDispatch:
      fn.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, command.pipeline->handle());
      if (command.push_bytes > 0) {
        fn.vkCmdPushConstants(commands, command.pipeline->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                              command.push_bytes, command.push.data());
      }
      if (command.indirect.empty()) {
        fn.vkCmdDispatch(commands, command.grid.x, command.grid.y, command.grid.z);
      } else {
        fn.vkCmdDispatchIndirect(commands, command.indirect.slab->buffer, command.indirect.offset);
      }
      break;
    case Kind::kCopy: {
      const VkBufferCopy region{command.indirect.offset, command.target.offset,
                                command.target.size_bytes};
      fn.vkCmdCopyBuffer(commands, command.indirect.slab->buffer, command.target.slab->buffer, 1,
                         &region);
      break;
    }
    case Kind::kFill:
      fn.vkCmdFillBuffer(commands, command.target.slab->buffer, command.target.offset,
                         command.target.size_bytes, command.fill_word);
      break;
  }
}

void Recorder::emit(const Emission& emission, RecordedWork& work) const {
  const Command& command = *emission.command;
  RecordedWork::Segment& segment = work.segments_.back();
  if (emission.barrier_to != 0) {
    emit_barrier(segment.commands, emission.barrier_from, emission.barrier_to);
  }
  const size_t query = 2 * work.commands_.size();
  if (options_.timestamps) write_timestamp(work, query);
  emit(command, segment.commands);
  if (options_.timestamps) write_timestamp(work, query + 1);
  CommandInfo info{.label = command.kind == Kind::kCopy ? "copy" : "fill",
                   .module = {},
                   .cost = command.cost,
                   .scope = command.scope};
  if (command.kind == Kind::kDispatch) {
    info.label = command.pipeline->label();
    info.module = command.pipeline->module_name();
  }
  work.commands_.push_back(info);
  segment.cost += command.cost;
  ++segment.n_commands;
}

std::vector<Recorder::Emission> Recorder::emission_order(size_t& barrier_count) const {
  std::vector<Emission> order;
  size_t run_start = 0;
  VkPipelineStageFlags2 run_stages = 0, previous_stages = 0;
  // A barrier is from what ran since the one before it to what runs until the next, so each pair of
  // neighbours has a stage in common and what lies further back is ordered through them.
  const auto close_run = [&] {
    if (options_.reverse_unordered && run_start < order.size()) {
      std::reverse(order.begin() + static_cast<ptrdiff_t>(run_start), order.end());
    }
    if (run_start > 0 && run_start < order.size()) {
      order[run_start].barrier_from = previous_stages;
      order[run_start].barrier_to = run_stages;
    }
    run_start = order.size();
    previous_stages = std::exchange(run_stages, 0);
  };
  for (const Command& command : commands_) {
    if (command.barrier_before && barrier_count++ != options_.drop_barrier) close_run();
    order.push_back({.command = &command});
    run_stages |= stages_of(command);
  }
  close_run();
  return order;
}

RecordedWork::Timed Recorder::timed() const {
  using Timed = RecordedWork::Timed;
  const int kinds =
      int{options_.timestamps} + int{options_.time_span} + int{options_.time_segments};
  PUMICE_CHECK(kinds <= 1, "time commands, segments or their span");
  PUMICE_CHECK(kinds == 0 || device_->plan().timestamp_valid_bits > 0, "the device has no clock");
  if (options_.timestamps) return Timed::kCommands;
  if (options_.time_span) return Timed::kSpan;
  return options_.time_segments ? Timed::kSegments : Timed::kNothing;
}

Status Recorder::create_pools(RecordedWork& work) const {
  const DeviceFunctions& fn = device_->fn();
  VkCommandPoolCreateInfo pool_info{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                    .queueFamilyIndex = device_->plan().queue_family};
  VkResult result = fn.vkCreateCommandPool(device_->handle(), &pool_info, nullptr, &work.pool_);
  if (result != VK_SUCCESS) return device_->error_of(result, "creating a command pool");

  if (work.timed_ == RecordedWork::Timed::kNothing) return {};
  const bool span = work.timed_ == RecordedWork::Timed::kSpan;
  const size_t n_pairs = span ? 1 : std::max<size_t>(commands_.size(), 1);  // or fewer segments
  VkQueryPoolCreateInfo query_info{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                   .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                   .queryCount = static_cast<uint32_t>(2 * n_pairs)};
  result = fn.vkCreateQueryPool(device_->handle(), &query_info, nullptr, &work.queries_);
  if (result != VK_SUCCESS) return device_->error_of(result, "creating a query pool");
  return {};
}

Status Recorder::begin_segment(RecordedWork& work) const {
  const DeviceFunctions& fn = device_->fn();
  VkCommandBufferAllocateInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                   .commandPool = work.pool_,
                                   .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                   .commandBufferCount = 1};
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VkResult result = fn.vkAllocateCommandBuffers(device_->handle(), &info, &commands);
  if (result != VK_SUCCESS) return device_->error_of(result, "allocating a command buffer");
  work.segments_.push_back({.commands = commands});
  VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  result = fn.vkBeginCommandBuffer(commands, &begin);
  if (result != VK_SUCCESS) return device_->error_of(result, "starting a command buffer");
  if (options_.time_segments) {
    // Its own, so that it can be submitted without the others.
    const size_t query = 2 * (work.segments_.size() - 1);
    fn.vkCmdResetQueryPool(commands, work.queries_, static_cast<uint32_t>(query), 2);
    write_timestamp(work, query);
  }
  return {};
}

Status Recorder::end_segment(RecordedWork& work) const {
  if (options_.time_segments) write_timestamp(work, 2 * work.segments_.size() - 1);
  const VkResult result = device_->fn().vkEndCommandBuffer(work.segments_.back().commands);
  if (result != VK_SUCCESS) return device_->error_of(result, "ending a command buffer");
  return {};
}

void Recorder::write_timestamp(const RecordedWork& work, size_t query) const {
  device_->fn().vkCmdWriteTimestamp2(work.segments_.back().commands,
                                     VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, work.queries_,
                                     static_cast<uint32_t>(query));
}

Result<RecordedWork> Recorder::finish() {
  RecordedWork work;
  work.device_ = device_;
  work.timed_ = timed();
  const std::vector<Emission> order = emission_order(work.barrier_count_);
  PUMICE_TRY_STATUS(create_pools(work));
  PUMICE_TRY_STATUS(begin_segment(work));
  if (options_.timestamps || options_.time_span) {
    const auto n_queries = static_cast<uint32_t>(options_.time_span ? 2 : 2 * order.size());
    device_->fn().vkCmdResetQueryPool(work.segments_.back().commands, work.queries_, 0, n_queries);
  }
  constexpr VkPipelineStageFlags2 kAll = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT |
                                         VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT |
                                         VK_PIPELINE_STAGE_2_DRAW_INDIRECT_BIT;
  emit_barrier(work.segments_.back().commands, kAll, kAll);  // order after earlier submissions
  if (options_.time_span) write_timestamp(work, 0);
  for (const Emission& emission : order) {
    Cost cost = work.segments_.back().cost;
    cost += emission.command->cost;
    const size_t n_commands = work.segments_.back().n_commands;
    if (n_commands > 0 && !options_.segment.holds(cost, n_commands + 1)) {
      PUMICE_TRY_STATUS(end_segment(work));
      PUMICE_TRY_STATUS(begin_segment(work));
    }
    emit(emission, work);
  }
  if (options_.time_span) write_timestamp(work, 1);
  emit_barrier(work.segments_.back().commands, kAll, kAll | VK_PIPELINE_STAGE_2_HOST_BIT);
  PUMICE_TRY_STATUS(end_segment(work));
  commands_.clear();
  since_barrier_.clear();
  return work;
}

Result<uint64_t> submit(Device& device, const RecordedWork& work) {
  std::vector<VkCommandBuffer> commands;
  for (const RecordedWork::Segment& segment : work.segments()) commands.push_back(segment.commands);
  return device.submit(commands);
}

Status run(Device& device, const RecordedWork& work) {
  PUMICE_TRY(const uint64_t value, submit(device, work));
  return device.wait(value);
}

}  // namespace pumice::vk
