// Compute pipelines: declared by ops while planning, compiled together on threads, then only read.
//
// Kernel arguments are push constants holding device addresses; there are no descriptor sets. The
// size of the push-constant struct and the ids of specialisation constants are checked against the
// SPIR-V when a pipeline is declared, so a shader and its C++ struct cannot drift apart.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "vk/device.hpp"
#include "vk/tuning_rows.hpp"

namespace pumice::vk {

/// A compiled SPIR-V module by its public name, "op.variant".
struct ShaderModule {
  std::string_view name;
  std::span<const uint32_t> words;
  bool unproven = false;  ///< no device of ours has run it: PipelineLibrary::accept
};

/// One specialised kernel.
class Pipeline {
 public:
  /// "op.variant", the name profiles and `--json` print.
  const std::string& label() const { return label_; }
  /// The SPIR-V module it specialises.
  std::string_view module_name() const { return module_.name; }
  /// Specialisation constants: (id, value).
  std::span<const std::pair<uint32_t, uint32_t>> constants() const { return constants_; }
  VkPipeline handle() const { return handle_; }
  VkPipelineLayout layout() const { return layout_; }
  uint32_t push_bytes() const { return push_bytes_; }
  /// As PipelineRequest has them.
  uint32_t subgroup_size() const { return subgroup_size_; }
  bool full_subgroups() const { return full_subgroups_; }

 private:
  friend class PipelineLibrary;
  std::string label_;
  ShaderModule module_;
  std::vector<std::pair<uint32_t, uint32_t>> constants_;  // (id, value)
  uint32_t push_bytes_ = 0;
  uint32_t subgroup_size_ = 0;
  bool full_subgroups_ = false;
  bool seldom_ = false;
  VkPipeline handle_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  bool dispatched_ = false;  // with the quirk compiles_at_first_dispatch: it was, so it is compiled
};

/// What an op asks for.
struct PipelineRequest {
  ShaderModule module;
  std::string label;                                     ///< profile name; module.name if empty
  std::vector<std::pair<uint32_t, uint32_t>> constants;  ///< specialisation (id, value)
  uint32_t push_bytes = 0;
  uint32_t subgroup_size = 0;   ///< the plan's, or another where one can be required; 0: any
  bool full_subgroups = false;  ///< require full ones; workgroups are multiples of subgroup_size
  /// Few processes record it: what a driver compiles at the first dispatch is left to that one.
  bool seldom = false;
};

/// What a driver's compiler says of a pipeline, in its own words ("VGPRs", "Spilled VGPRs", …).
struct PipelineStatistic {
  std::string name;
  double value = 0;
};

/// The specialisation list of an interface struct (shaders/common/interface.h).
template <typename Spec>
std::vector<std::pair<uint32_t, uint32_t>> constants_of(const Spec& spec) {
  std::vector<std::pair<uint32_t, uint32_t>> constants;
  std::array<uint32_t, std::size(Spec::kEntries)> members;
  static_assert(sizeof(Spec) == sizeof(members));
  std::memcpy(members.data(), &spec, sizeof(members));  // floats too, as their bits
  for (size_t i = 0; i < members.size(); ++i) {
    constants.emplace_back(Spec::kEntries[i].id, members[i]);
  }
  return constants;
}

/// Owns the pipelines of one device and their persistent cache. Any number of threads may call it,
/// so that engines on threads of their own share one: what one has compiled the others use. A
/// pipeline may be recorded by a thread after a `compile` that this thread called, or synchronised
/// with, has returned.
class PipelineLibrary {
 public:
  using ModuleNames = std::set<std::string, std::less<>>;

  /// `cache_directory`: where the driver's pipeline cache is kept, one file per (device UUID,
  /// driver, shader hash); empty keeps none. An unreadable or foreign file is ignored with a log
  /// line.
  PipelineLibrary(std::shared_ptr<Device> device, std::filesystem::path cache_directory,
                  uint64_t shader_hash);
  ~PipelineLibrary();
  PipelineLibrary(const PipelineLibrary&) = delete;
  PipelineLibrary& operator=(const PipelineLibrary&) = delete;

  /// From now on these modules are neither declared nor compiled: a self-test found them wrong on
  /// this device. What was compiled of them stays usable.
  void reject(ModuleNames module_names);
  bool is_rejected(std::string_view module_name) const;

  /// For tests: requests for the module of that name get these words instead, from now on. Once a
  /// name.
  void override_module(std::string name, std::vector<uint32_t> words);

  /// From now on unproven modules of these names may be declared: they passed a self-test on this
  /// device, or are about to be tested.
  void accept(ModuleNames module_names);

  /// Why a module cannot run here: capabilities that are not enabled, its rejection, or that it is
  /// unproven and not accepted. Empty: it can. Ops ask this to choose among their variants.
  std::string obstacle(const ShaderModule& module) const;

  /// From now on ops choose by these rows before those of the build. Once, before any op is planned.
  void prefer(std::vector<TuningRow> rows);
  /// These; they stay as they are.
  std::span<const TuningRow> preferred() const { return preferred_; }
  /// Over what they say; 0 if there are none. Part of keys of bits that kernels compute.
  uint64_t preferred_hash() const;
  /// What ops chose by rows, for whoever reports or tunes it.
  void note(TuningChoice choice) const;
  /// Each once, in the order of tables and shapes; of one shape the last.
  std::vector<TuningChoice> choices() const;

  /// The pipeline for a request; the same request gives the same pipeline. It can be recorded after
  /// the next `compile`. The pointer stays valid for the library's life. Errors: kSelfTestFailed
  /// when the module is rejected, kInvalidArgument when it has another obstacle, kInternal when the
  /// request contradicts the SPIR-V.
  Result<const Pipeline*> declare(const PipelineRequest& request);

  /// Pipelines compiled from now on keep the compiler's statistics. Needs the feature
  /// pipeline_executable_info.
  void capture_statistics();
  /// Those of a compiled pipeline. Errors: kInternal when the driver gives none.
  Result<std::vector<PipelineStatistic>> statistics(const Pipeline& pipeline) const;

  /// Everything declared so far.
  std::vector<const Pipeline*> declared() const;

  using Progress = std::function<void(size_t done, size_t total)>;

  /// Compile everything declared and not compiled, on up to one thread per core, and let drivers
  /// that compile at the first dispatch do so (one empty dispatch per pipeline that is not
  /// `seldom`). Waits for a
  /// compile that another thread has begun. `progress` may be called from any thread and must not
  /// compile or save. Errors: those of the device; kDoesNotFit or kInternal when `progress` throws.
  /// What was compiled before an error stays so.
  Status compile(const Progress& progress = {});

  /// Pipelines declared and not rejected, and those among them that are compiled.
  struct Readiness {
    size_t done = 0;
    size_t total = 0;
    bool complete() const { return done == total; }
  };
  Readiness readiness() const;

  /// `compile` in pieces: none is begun once `budget_s` seconds have passed, but one at least if
  /// any is left. A driver cannot be interrupted, so it takes as long as the pipelines it is at
  /// then. Ends with what is ready now.
  Result<Readiness> compile_for(double budget_s, const Progress& progress = {});

  /// Pipelines compiled so far: constant after prewarming.
  size_t compiled_count() const;

  /// Modules of everything declared; of what the next `compile` will compile.
  ModuleNames declared_modules() const;
  ModuleNames pending_modules() const;

  /// Write the driver's cache back to its file if anything was compiled since. Failure is a log
  /// line: a cache is never a reason to fail.
  void save();

  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  // Those ending in _locked are called with mutex_ held.
  ShaderModule effective_locked(const ShaderModule& module) const;
  bool is_pending_locked(const Pipeline& pipeline) const;
  std::string obstacle_locked(const ShaderModule& module) const;
  Result<VkPipelineLayout> layout_locked(uint32_t push_bytes);
  Result<VkPipeline> compile_one(const Pipeline& pipeline, bool capture_statistics) const;
  bool is_ready_locked(const Pipeline& pipeline) const;
  struct FirstDispatch;
  Result<FirstDispatch> begin_dispatch(Pipeline& pipeline);
  Status end_dispatch(const FirstDispatch& dispatch);
  std::vector<char> load_cache() const;

  std::shared_ptr<Device> device_;
  std::filesystem::path cache_file_;
  std::vector<TuningRow> preferred_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::mutex compile_mutex_;  // held while compiling and saving; taken before mutex_
  size_t saved_count_ = 0;    // compiled_count_ when the cache was last saved

  mutable std::mutex mutex_;  // of all below; not held while compiling
  ModuleNames rejected_;
  std::map<std::string, std::vector<uint32_t>, std::less<>> overrides_;
  mutable std::map<std::string, TuningChoice> choices_;  // by table and shape
  ModuleNames accepted_;
  std::deque<Pipeline> pipelines_;
  std::vector<std::pair<uint32_t, VkPipelineLayout>> layouts_;
  bool capture_statistics_ = false;
  size_t compiled_count_ = 0;
};

}  // namespace pumice::vk
