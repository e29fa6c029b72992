// The self-test: every op's cases on a device, and which SPIR-V modules they find wrong.
//
// A case blames the modules it dispatched, as recorded, so cases need to declare nothing. Modules
// that are found wrong are rejected and the cases that used them run again, on whatever variant
// their op chooses then, until a round finds nothing new.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "shaders/op_case.hpp"
#include "vk/pipeline.hpp"

namespace pumice {

/// What a self-test found out about one module.
struct ModuleVerdict {
  enum class State {
    kNotRun,        ///< no case ran it: its op has no use for it on this device, or not yet
    kPassed,        ///< every case it could be blamed for passed
    kFailed,        ///< a case was wrong, did not compile or took the device down
    kNotSupported,  ///< it needs what the device does not have enabled
  };
  State state = State::kNotRun;
  uint32_t n_passed = 0;  ///< cases
  std::string note;       ///< kFailed: the case and what it said; kNotSupported: what is missing

  bool operator==(const ModuleVerdict&) const = default;
};
std::string_view state_name(ModuleVerdict::State state);  ///< "passed", "not supported", …

/// All verdicts of a device, by module name.
struct SelfTestVerdict {
  std::map<std::string, ModuleVerdict, std::less<>> modules;
  /// The case that is running, and what it may run: set when a test ended there, with the process
  /// or the device.
  std::string running;
  vk::PipelineLibrary::ModuleNames running_modules;

  /// Modules not to use: those that failed and those a test ended in.
  vk::PipelineLibrary::ModuleNames rejected() const;
  /// Modules that passed and are not rejected.
  vk::PipelineLibrary::ModuleNames passed() const;
  /// Families (module_family) with a module that failed and none that passed: without them no model
  /// runs that needs the op. Not gemv_reduce, which gemv does without.
  std::vector<std::string> broken_families() const;

  bool operator==(const SelfTestVerdict&) const = default;
};

/// What happened to one case, by itself.
struct CaseOutcome {
  enum class State { kPassed, kFailed, kSkipped };
  State state = State::kSkipped;
  std::string name;                          ///< "op case"
  vk::PipelineLibrary::ModuleNames modules;  ///< dispatched by it
  std::string message;                       ///< kFailed
};

/// The modules to blame for failed cases. A case of one module blames it. A case of several blames
/// none if one of them is blamed already, else those that pass no case at all (all, if each passes
/// some), and of these only those that their op can replace: another round shows whether that
/// helped.
vk::PipelineLibrary::ModuleNames blame(std::span<const CaseOutcome> outcomes,
                                       const std::function<bool(std::string_view)>& replaceable);

struct SelfTestOptions {
  /// Called before each case with the verdict so far, which names that case.
  std::function<void(const SelfTestVerdict&, size_t done, size_t total)> on_case = {};
  std::function<bool()> interrupted = {};
};

struct SelfTestResult {
  SelfTestVerdict verdict;
  size_t n_cases = 0;               ///< that ran, repetitions not counted
  std::vector<std::string> errors;  ///< cases that could not run for reasons of their own
  Status status;                    ///< kDeviceLost or kCancelled when it ended early
};

/// Run `cases`. `known` are earlier verdicts of modules that these cases may not touch. The library
/// must be this test's own: unproven modules are accepted in it, and modules rejected on the way.
SelfTestResult run_self_test(vk::PipelineLibrary& pipelines, std::vector<ops::OpCase> cases,
                             const SelfTestVerdict& known, const SelfTestOptions& options = {});

}  // namespace pumice
