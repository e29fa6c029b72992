#include "vk/pipeline.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <limits>

#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/path.hpp"
#include "vk/recorder.hpp"
#include "vk/shader_info.hpp"
#include "vk/shader_requirements.hpp"

namespace pumice::vk {
namespace {

// A cache file is this header and the driver's data. Drivers are not all careful with damaged data,
// so it is given to them only if it is what was written.
struct CacheHeader {
  static constexpr uint64_t kMagic = 0x3165636143656D50;  // "PmeCace1"
  uint64_t magic = kMagic;
  uint64_t data_bytes = 0;
  uint64_t data_hash = 0;
};

// Nothing for what is no file or cannot be read whole: a cache is never a reason to fail.
std::vector<char> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t n_bytes = std::filesystem::file_size(path, error);
  if (error) return {};
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(n_bytes);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file ? bytes : std::vector<char>();
}

}  // namespace

/// An empty one, which is enough for drivers that compile then. Held until it has ended.
struct PipelineLibrary::FirstDispatch {
  Pipeline* pipeline = nullptr;
  RecordedWork work;
  uint64_t value = 0;  // of the device's timeline, when it has ended
};

PipelineLibrary::PipelineLibrary(std::shared_ptr<Device> device,
                                 std::filesystem::path cache_directory, uint64_t shader_hash)
    : device_(std::move(device)) {
  if (!cache_directory.empty() && !device_->plan().quirks.pipeline_cache_is_empty) {
    const DeviceSnapshot& snapshot = device_->snapshot();
    cache_file_ = cache_directory / fmt::format("pipelines-{}-{:x}-{:016x}.bin",
                                                format_uuid(snapshot.device_uuid),
                                                snapshot.driver_version, shader_hash);
  }
  const std::vector<char> saved = load_cache();
  VkPipelineCacheCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                 .initialDataSize = saved.size(),
                                 .pInitialData = saved.data()};
  if (device_->fn().vkCreatePipelineCache(device_->handle(), &info, nullptr, &cache_) !=
      VK_SUCCESS) {
    device_->logger().warning("pipeline cache {} was refused by the driver; starting afresh",
                              to_utf8(cache_file_));
    info.initialDataSize = 0;
    info.pInitialData = nullptr;
    if (device_->fn().vkCreatePipelineCache(device_->handle(), &info, nullptr, &cache_) !=
        VK_SUCCESS) {
      cache_ = VK_NULL_HANDLE;
    }
  }
}

std::vector<char> PipelineLibrary::load_cache() const {
  if (cache_file_.empty()) return {};
  std::vector<char> file = read_file(cache_file_);
  if (file.empty()) return {};
  CacheHeader header;
  if (file.size() >= sizeof header) {
    std::memcpy(&header, file.data(), sizeof header);
    file.erase(file.begin(), file.begin() + sizeof header);
    if (header.magic == CacheHeader::kMagic && header.data_bytes == file.size() &&
        header.data_hash == XXH3_64bits(file.data(), file.size())) {
      return file;
    }
  }
  device_->logger().warning("pipeline cache {} is damaged; starting afresh", to_utf8(cache_file_));
  return {};
}

PipelineLibrary::~PipelineLibrary() {
  if (device_->hangs()) return;  // they may be in use for ever
  const DeviceFunctions& fn = device_->fn();
  for (const Pipeline& pipeline : pipelines_) {
    if (pipeline.handle_) fn.vkDestroyPipeline(device_->handle(), pipeline.handle_, nullptr);
  }
  for (const auto& [bytes, layout] : layouts_) {
    fn.vkDestroyPipelineLayout(device_->handle(), layout, nullptr);
  }
  if (cache_) fn.vkDestroyPipelineCache(device_->handle(), cache_, nullptr);
}

void PipelineLibrary::reject(ModuleNames module_names) {
  const std::lock_guard lock(mutex_);
  rejected_.merge(module_names);
}

bool PipelineLibrary::is_rejected(std::string_view module_name) const {
  const std::lock_guard lock(mutex_);
  return rejected_.contains(module_name);
}

void PipelineLibrary::override_module(std::string name, std::vector<uint32_t> words) {
  const std::lock_guard lock(mutex_);
  const bool is_new = overrides_.emplace(std::move(name), std::move(words)).second;
  PUMICE_CHECK(is_new, "a module is overridden twice");  // declared pipelines view the first words
}

ShaderModule PipelineLibrary::effective_locked(const ShaderModule& module) const {
  const auto found = overrides_.find(module.name);
  return found == overrides_.end() ? module
                                   : ShaderModule{module.name, found->second, module.unproven};
}

bool PipelineLibrary::is_pending_locked(const Pipeline& pipeline) const {
  return !pipeline.handle_ && !rejected_.contains(pipeline.module_.name);
}

PipelineLibrary::ModuleNames PipelineLibrary::declared_modules() const {
  const std::lock_guard lock(mutex_);
  ModuleNames names;
  for (const Pipeline& pipeline : pipelines_) names.emplace(pipeline.module_.name);
  return names;
}

PipelineLibrary::ModuleNames PipelineLibrary::pending_modules() const {
  const std::lock_guard lock(mutex_);
  ModuleNames names;
  for (const Pipeline& pipeline : pipelines_) {
    if (is_pending_locked(pipeline)) names.emplace(pipeline.module_.name);
  }
  return names;
}

void PipelineLibrary::accept(ModuleNames module_names) {
  const std::lock_guard lock(mutex_);
  accepted_.merge(module_names);
}

void PipelineLibrary::prefer(std::vector<TuningRow> rows) {
  PUMICE_CHECK(preferred_.empty() && declared().empty(), "rows that come too late to be chosen by");
  preferred_ = std::move(rows);
}

void PipelineLibrary::note(TuningChoice choice) const {
  const std::lock_guard lock(mutex_);
  std::string key = choice.row.table + " " + choice.shape.text();
  choices_.insert_or_assign(std::move(key), std::move(choice));
}

std::vector<TuningChoice> PipelineLibrary::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<TuningChoice> choices;
  for (const auto& [key, choice] : choices_) choices.push_back(choice);
  return choices;
}

uint64_t PipelineLibrary::preferred_hash() const {
  std::string all;
  for (const TuningRow& row : preferred_) all += row.text + "\n";
  return all.empty() ? 0 : XXH3_64bits(all.data(), all.size());
}

std::string PipelineLibrary::obstacle(const ShaderModule& module) const {
  const std::lock_guard lock(mutex_);
  return obstacle_locked(module);
}

std::string PipelineLibrary::obstacle_locked(const ShaderModule& module) const {
  if (rejected_.contains(module.name)) return "it failed this device's self-test";
  const Result<ShaderInfo> info = read_shader_info(effective_locked(module).words);
  if (!info.ok()) return info.error().message;
  const auto missing = missing_capabilities(info->capabilities, device_->plan());
  if (!missing.empty()) return fmt::format("it needs {}", fmt::join(missing, ", "));
  if (module.unproven && !accepted_.contains(module.name)) {
    return "never run: no self-test has passed on this device";
  }
  return "";
}

Result<const Pipeline*> PipelineLibrary::declare(const PipelineRequest& request) {
  const std::string label =
      request.label.empty() ? std::string(request.module.name) : request.label;
  const std::lock_guard lock(mutex_);
  const ShaderModule module = effective_locked(request.module);
  const bool rejected = rejected_.contains(module.name);
  for (const Pipeline& known : pipelines_) {
    if (!rejected && known.module_.words.data() == module.words.data() && known.label_ == label &&
        known.constants_ == request.constants && known.subgroup_size_ == request.subgroup_size &&
        known.full_subgroups_ == request.full_subgroups) {
      return &known;
    }
  }
  if (const std::string obstacle = obstacle_locked(module); !obstacle.empty()) {
    return make_error(rejected ? ErrorCode::kSelfTestFailed : ErrorCode::kInvalidArgument,
                      "{} cannot run on this device: {}", label, obstacle);
  }
  const DevicePlan& plan = device_->plan();
  PUMICE_CHECK(request.subgroup_size == 0 || plan.require_subgroup_size ||
                   request.subgroup_size == plan.subgroup_size,
               "the subgroup size cannot be chosen on this device");
  PUMICE_TRY(const ShaderInfo info, read_shader_info(module.words));
  PUMICE_CHECK(request.push_bytes <= Recorder::kMaxPushBytes, "push constants exceed the floor");
  // C++ rounds a struct with addresses up to their alignment, SPIR-V does not.
  const auto rounded = [](uint32_t bytes) { return (bytes + 7) / 8 * 8; };
  if (rounded(info.push_constant_bytes) != rounded(request.push_bytes)) {
    return make_error(ErrorCode::kInternal,
                      "{}: the shader's push constants are {} bytes, its C++ struct {}", label,
                      info.push_constant_bytes, request.push_bytes);
  }
  for (const auto& [id, value] : request.constants) {
    if (!info.has_spec_constant(id)) {
      return make_error(ErrorCode::kInternal, "{}: the shader has no specialisation constant {}",
                        label, id);
    }
  }
  PUMICE_TRY(VkPipelineLayout layout, layout_locked(request.push_bytes));
  Pipeline& pipeline = pipelines_.emplace_back();
  pipeline.label_ = label;
  pipeline.module_ = module;
  pipeline.constants_ = request.constants;
  pipeline.push_bytes_ = request.push_bytes;
  pipeline.subgroup_size_ = request.subgroup_size;
  pipeline.full_subgroups_ = request.full_subgroups;
  pipeline.seldom_ = request.seldom;
  pipeline.layout_ = layout;
  return &pipeline;
}

Result<VkPipelineLayout> PipelineLibrary::layout_locked(uint32_t push_bytes) {
  for (const auto& [bytes, layout] : layouts_) {
    if (bytes == push_bytes) return layout;
  }
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
  VkPipelineLayoutCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                  .pushConstantRangeCount = push_bytes > 0 ? 1u : 0u,
                                  .pPushConstantRanges = &range};
  layouts_.reserve(layouts_.size() + 1);
  VkPipelineLayout layout = VK_NULL_HANDLE;
  const VkResult result =
      device_->fn().vkCreatePipelineLayout(device_->handle(), &info, nullptr, &layout);
  if (result != VK_SUCCESS) return device_->error_of(result, "creating a pipeline layout");
  layouts_.emplace_back(push_bytes, layout);
  return layout;
}

void PipelineLibrary::capture_statistics() {
  const std::lock_guard lock(mutex_);
  capture_statistics_ = true;
}

size_t PipelineLibrary::compiled_count() const {
  const std::lock_guard lock(mutex_);
  return compiled_count_;
}

Result<VkPipeline> PipelineLibrary::compile_one(const Pipeline& pipeline,
                                                bool capture_statistics) const {
  const DeviceFunctions& fn = device_->fn();
  // What needs memory of the host comes before the module, which nobody would destroy.
  std::vector<VkSpecializationMapEntry> entries;
  std::vector<uint32_t> values;
  for (const auto& [id, value] : pipeline.constants_) {
    entries.push_back(
        {id, static_cast<uint32_t>(values.size() * sizeof(uint32_t)), sizeof(uint32_t)});
    values.push_back(value);
  }
  VkShaderModuleCreateInfo module_info{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = pipeline.module_.words.size_bytes(),
                                       .pCode = pipeline.module_.words.data()};
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult result = fn.vkCreateShaderModule(device_->handle(), &module_info, nullptr, &module);
  if (result != VK_SUCCESS) return device_->error_of(result, "loading shader " + pipeline.label_);

  const VkSpecializationInfo specialization{static_cast<uint32_t>(entries.size()), entries.data(),
                                            values.size() * sizeof(uint32_t), values.data()};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
      .requiredSubgroupSize = pipeline.subgroup_size_};
  VkComputePipelineCreateInfo info{.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  if (capture_statistics) info.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (pipeline.full_subgroups_) {
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  // Where no size may be required, plan_device knows the only one there is.
  const bool require_size = pipeline.subgroup_size_ != 0 && device_->plan().require_subgroup_size;
  info.stage.pNext = require_size ? &subgroup : nullptr;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialization;
  info.layout = pipeline.layout_;
  VkPipeline handle = VK_NULL_HANDLE;
  result = fn.vkCreateComputePipelines(device_->handle(), cache_, 1, &info, nullptr, &handle);
  fn.vkDestroyShaderModule(device_->handle(), module, nullptr);
  if (result != VK_SUCCESS) return device_->error_of(result, "compiling " + pipeline.label_);
  return handle;
}

bool PipelineLibrary::is_ready_locked(const Pipeline& pipeline) const {
  return pipeline.handle_ && (pipeline.dispatched_ || pipeline.seldom_ ||
                              !device_->plan().quirks.compiles_at_first_dispatch);
}

PipelineLibrary::Readiness PipelineLibrary::readiness() const {
  const std::lock_guard lock(mutex_);
  Readiness readiness;
  for (const Pipeline& pipeline : pipelines_) {
    if (rejected_.contains(pipeline.module_.name)) continue;
    ++readiness.total;
    if (is_ready_locked(pipeline)) ++readiness.done;
  }
  return readiness;
}

Status PipelineLibrary::compile(const Progress& progress) {
  PUMICE_TRY_STATUS(compile_for(std::numeric_limits<double>::infinity(), progress));
  return {};
}

Result<PipelineLibrary::Readiness> PipelineLibrary::compile_for(double budget_s,
                                                                const Progress& progress) {
  const std::lock_guard compiling(compile_mutex_);
  std::vector<Pipeline*> pending;
  std::vector<Pipeline*> to_dispatch;
  bool capture_statistics = false;
  {
    const std::lock_guard lock(mutex_);
    for (Pipeline& pipeline : pipelines_) {
      if (is_pending_locked(pipeline)) pending.push_back(&pipeline);
      const bool is_rejected = rejected_.contains(pipeline.module_.name);
      if (!is_rejected && !pipeline.seldom_ && !is_ready_locked(pipeline))
        to_dispatch.push_back(&pipeline);
    }
    capture_statistics = capture_statistics_;
  }
  if (!device_->plan().quirks.compiles_at_first_dispatch) to_dispatch.clear();
  // The longest first: every thread waits for the last one.
  std::ranges::stable_sort(pending, std::ranges::greater(),
                           [](const Pipeline* one) { return one->module_.words.size(); });

  const auto start = std::chrono::steady_clock::now();
  std::atomic<bool> has_begun{false};
  const auto may_begin = [&] {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return !has_begun.exchange(true) || elapsed.count() < budget_s;
  };
  const size_t total = pending.size() + to_dispatch.size();
  std::atomic<size_t> done{0};
  // A driver that compiles at the first dispatch does so while the next ones are translated. Where there is a budget each
  // is waited for, so that no more has begun than fits.
  const bool ahead = !to_dispatch.empty() && budget_s == std::numeric_limits<double>::infinity();
  std::mutex begun_mutex;
  std::vector<FirstDispatch> begun;
  const auto compile_next = [&](size_t i) -> Status {
    if (!may_begin()) return {};
    PUMICE_TRY(const VkPipeline handle, compile_one(*pending[i], capture_statistics));
    {
      const std::lock_guard lock(mutex_);
      pending[i]->handle_ = handle;
      ++compiled_count_;
    }
    if (progress) progress(++done, total);
    if (!ahead || pending[i]->seldom_) return {};
    const std::lock_guard lock(begun_mutex);
    begun.reserve(begun.size() + 1);
    PUMICE_TRY(FirstDispatch dispatch, begin_dispatch(*pending[i]));
    begun.push_back(std::move(dispatch));
    return {};
  };
  const auto dispatch_next = [&](size_t i) -> Status {
    if (!to_dispatch[i]->handle_ || to_dispatch[i]->dispatched_ || !may_begin()) return {};
    PUMICE_TRY(const FirstDispatch dispatch, begin_dispatch(*to_dispatch[i]));
    PUMICE_TRY_STATUS(end_dispatch(dispatch));
    if (progress) progress(++done, total);
    return {};
  };
  const auto end_next = [&](size_t i) -> Status {
    PUMICE_TRY_STATUS(end_dispatch(begun[i]));
    if (progress) progress(++done, total);
    return {};
  };
  const Status compiled = for_each_on_threads(pending.size(), 0, compile_next);
  const Status ended = for_each_on_threads(begun.size(), 1, end_next);
  if (!compiled.ok() || !ended.ok()) {
    if (!begun.empty()) device_->wait_idle();  // what was begun is held by this
    return compiled.ok() ? ended.error() : compiled.error();
  }
  PUMICE_TRY_STATUS(for_each_on_threads(to_dispatch.size(), 1, dispatch_next));
  return readiness();
}

std::vector<const Pipeline*> PipelineLibrary::declared() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Pipeline*> result;
  for (const Pipeline& pipeline : pipelines_) result.push_back(&pipeline);
  return result;
}

Result<std::vector<PipelineStatistic>> PipelineLibrary::statistics(const Pipeline& pipeline) const {
  const DeviceFunctions& fn = device_->fn();
  if (!device_->plan().features.pipeline_executable_info ||
      fn.vkGetPipelineExecutableStatisticsKHR == nullptr) {
    return make_error(ErrorCode::kInternal, "{}: this device has no compiler statistics",
                      pipeline.label());
  }
  // A compute pipeline is one executable.
  VkPipelineExecutableInfoKHR info{.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                   .pipeline = pipeline.handle()};
  uint32_t count = 0;
  VkResult result =
      fn.vkGetPipelineExecutableStatisticsKHR(device_->handle(), &info, &count, nullptr);
  VkPipelineExecutableStatisticKHR empty{.sType =
                                             VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR};
  std::vector<VkPipelineExecutableStatisticKHR> rows(count, empty);
  if (result == VK_SUCCESS) {
    result = fn.vkGetPipelineExecutableStatisticsKHR(device_->handle(), &info, &count, rows.data());
  }
  if (result != VK_SUCCESS) {
    return device_->error_of(result, "reading statistics of " + pipeline.label());
  }
  std::vector<PipelineStatistic> statistics;
  for (const VkPipelineExecutableStatisticKHR& row : rows) {
    double value = 0;
    switch (row.format) {
      case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
        value = row.value.b32;
        break;
      case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
        value = static_cast<double>(row.value.i64);
        break;
      case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
        value = static_cast<double>(row.value.u64);
        break;
      default:
        value = row.value.f64;
    }
    statistics.push_back({row.name, value});
  }
  return statistics;
}

Result<PipelineLibrary::FirstDispatch> PipelineLibrary::begin_dispatch(Pipeline& pipeline) {
  constexpr std::array<std::byte, Recorder::kMaxPushBytes> kZeros{};
  Recorder recorder(device_);
  recorder.dispatch_bytes(pipeline, std::span(kZeros).first(pipeline.push_bytes()), Grid{0, 1, 1},
                          {}, {}, {});
  PUMICE_TRY(RecordedWork work, recorder.finish());
  PUMICE_TRY(const uint64_t value, submit(*device_, work));
  return FirstDispatch{&pipeline, std::move(work), value};
}

Status PipelineLibrary::end_dispatch(const FirstDispatch& dispatch) {
  PUMICE_TRY_STATUS(device_->wait(dispatch.value));
  const std::lock_guard lock(mutex_);
  dispatch.pipeline->dispatched_ = true;
  return {};
}

void PipelineLibrary::save() {
  const std::lock_guard compiling(compile_mutex_);
  const size_t compiled = compiled_count();
  if (cache_file_.empty() || !cache_ || saved_count_ == compiled) return;
  const DeviceFunctions& fn = device_->fn();
  size_t size = 0;
  std::vector<char> data;
  VkResult result = fn.vkGetPipelineCacheData(device_->handle(), cache_, &size, nullptr);
  if (result == VK_SUCCESS) {
    data.resize(size);
    result = fn.vkGetPipelineCacheData(device_->handle(), cache_, &size, data.data());
  }
  if (result != VK_SUCCESS) {
    device_->logger().warning("pipeline cache not saved: the driver did not return it");
    return;
  }
  const CacheHeader header{.data_bytes = size, .data_hash = XXH3_64bits(data.data(), size)};
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  content.append(data.data(), size);
  if (const Status saved = write_cache_file(cache_file_, content); !saved.ok()) {
    device_->logger().warning("pipeline cache not saved: {}", saved.error().message);
    return;
  }
  saved_count_ = compiled;
}

}  // namespace pumice::vk
