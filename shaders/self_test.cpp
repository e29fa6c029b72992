#include "shaders/self_test.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "shaders/spirv.hpp"

namespace pumice {
namespace {

using ModuleNames = vk::PipelineLibrary::ModuleNames;
using State = ModuleVerdict::State;

bool intersect(const ModuleNames& a, const ModuleNames& b) {
  return std::ranges::any_of(a, [&](const std::string& name) { return b.contains(name); });
}

ModuleNames modules_of(const vk::RecordedWork& work) {
  ModuleNames names;
  for (const vk::CommandInfo& command : work.commands()) {
    if (!command.module.empty()) names.emplace(command.module);
  }
  return names;
}

/// Whether rejecting all of a family costs speed only: gemv then does not split K.
bool ops_do_without(std::string_view family) { return family == "gemv_reduce"; }

/// Everything one run of the test holds.
class SelfTest {
 public:
  SelfTest(vk::PipelineLibrary& pipelines, std::vector<ops::OpCase> cases,
           const SelfTestVerdict& known, const SelfTestOptions& options)
      : pipelines_(pipelines),
        cases_(std::move(cases)),
        options_(options),
        outcomes_(cases_.size()),
        total_(cases_.size()) {
    pipelines_.accept(unproven_modules());
    set_starting_point(known);
  }

  SelfTestResult run() {
    std::vector<size_t> round(cases_.size());
    std::iota(round.begin(), round.end(), size_t{0});
    while (!round.empty() && result_.status.ok()) {
      for (const size_t i : round) {
        result_.status = run_case(i);
        if (!result_.status.ok()) break;
      }
      round = reject_what_is_wrong();
      total_ += round.size();
    }
    const bool ended_in_a_case =
        !result_.status.ok() && result_.status.error().code == ErrorCode::kDeviceLost;
    if (!ended_in_a_case) announce({}, {});
    result_.verdict = verdict_so_far();
    return std::move(result_);
  }

 private:
  /// What is known of modules that these cases do not touch.
  void set_starting_point(const SelfTestVerdict& known) {
    for (const vk::ShaderModule& module : spirv_modules()) {
      ModuleVerdict& verdict = start_[std::string(module.name)];
      const auto earlier = known.modules.find(module.name);
      if (const std::string obstacle = pipelines_.obstacle(module); !obstacle.empty()) {
        verdict = {.state = State::kNotSupported, .n_passed = 0, .note = obstacle};
      } else if (known.running_modules.contains(module.name)) {
        verdict = {State::kFailed, 0, "the last self-test ended in " + known.running};
      } else if (earlier != known.modules.end()) {
        verdict = earlier->second;
      }
    }
    // The op that the last test ended in goes last: the others are known then, whatever happens.
    const std::string ended_in = known.running.substr(0, known.running.find(' '));
    std::stable_partition(cases_.begin(), cases_.end(),
                          [&](const ops::OpCase& test) { return test.op != ended_in; });
  }

  void announce(const std::string& name, ModuleNames modules) {
    running_ = name;
    running_modules_ = std::move(modules);
    if (options_.on_case && !name.empty()) options_.on_case(verdict_so_far(), n_done_, total_);
  }

  SelfTestVerdict verdict_so_far() const {
    SelfTestVerdict verdict{start_, running_, running_modules_};
    for (const CaseOutcome& outcome : outcomes_) {
      for (const std::string& name : outcome.modules) verdict.modules[name] = {};
    }
    for (const CaseOutcome& outcome : outcomes_) {
      if (outcome.state != CaseOutcome::State::kPassed) continue;
      for (const std::string& name : outcome.modules) {
        ModuleVerdict& passed = verdict.modules[name];
        passed.state = State::kPassed;
        ++passed.n_passed;
      }
    }
    for (const auto& [name, failure] : failures_) verdict.modules[name] = failure;
    for (const std::string& name : wrong()) verdict.modules[name] = failure_of(name);
    return verdict;
  }

  ModuleNames wrong() const {
    return blame(outcomes_, [this](std::string_view name) {
      return std::ranges::any_of(spirv_modules(), [&](const vk::ShaderModule& other) {
        return other.name != name && module_family(other.name) == module_family(name) &&
               pipelines_.obstacle(other).empty();
      });
    });
  }

  ModuleVerdict failure_of(const std::string& module) const {
    for (const CaseOutcome& outcome : outcomes_) {
      if (outcome.state == CaseOutcome::State::kFailed && outcome.modules.contains(module)) {
        return {State::kFailed, 0, outcome.name + ": " + outcome.message};
      }
    }
    return {State::kFailed, 0, ""};
  }

  /// The cases that used what is found wrong now, to run again without it.
  std::vector<size_t> reject_what_is_wrong() {
    const ModuleNames wrong = this->wrong();
    for (const std::string& name : wrong) failures_[name] = failure_of(name);
    pipelines_.reject(wrong);
    std::vector<size_t> again;
    for (size_t i = 0; i < outcomes_.size(); ++i) {
      if (intersect(outcomes_[i].modules, wrong)) again.push_back(i);
    }
    return again;
  }

  Status run_case(size_t i) {
    if (options_.interrupted && options_.interrupted()) {
      return make_error(ErrorCode::kCancelled, "interrupted");
    }
    const ops::OpCase& test = cases_[i];
    CaseOutcome& outcome = outcomes_[i];
    const bool first_time = outcome.name.empty();
    outcome = {.name = test.op + " " + test.name, .modules = {}, .message = {}};
    announce(outcome.name, {});
    ++n_done_;
    if (test.supported && !test.supported(pipelines_.device()->plan())) return {};

    const Status status = try_case(test, outcome);
    if (!status.ok() && status.error().code == ErrorCode::kDeviceLost) {
      return make_error(ErrorCode::kDeviceLost, "self-test, {}: {}", outcome.name,
                        status.error().message);
    }
    if (!status.ok() && status.error().code == kVariantIsRejected) return {};
    outcome.state = status.ok() ? CaseOutcome::State::kPassed : CaseOutcome::State::kFailed;
    if (!status.ok()) outcome.message = status.error().message;
    if (!status.ok() && outcome.modules.empty()) {
      result_.errors.push_back(outcome.name + ": " + outcome.message);
    }
    if (first_time) ++result_.n_cases;
    return {};
  }

  /// A failure without modules in `outcome` is not a kernel's.
  Status try_case(const ops::OpCase& test, CaseOutcome& outcome) {
    ops::OpBed bed(pipelines_.device(), pipelines_);
    PUMICE_TRY(const ops::PreparedOp op, test.prepare(bed));
    if (const ModuleNames pending = pipelines_.pending_modules(); !pending.empty()) {
      announce(outcome.name, pending);
      if (const Status compiled = pipelines_.compile(); !compiled.ok()) {
        const ModuleNames refused = pipelines_.pending_modules();
        outcome.modules = refused.empty() ? pending : refused;
        return of_kernel(compiled.error());
      }
    }
    PUMICE_TRY(const vk::RecordedWork work, ops::record(bed, op));
    const ModuleNames modules = modules_of(work);
    announce(outcome.name, modules);
    const Status checked = ops::run_and_check(bed, op, work);
    if (checked.ok() || checked.error().code == ErrorCode::kSelfTestFailed) {
      outcome.modules = modules;
    }
    return checked.ok() ? checked : of_kernel(checked.error());
  }

  /// So that it differs from a case that could not be prepared since its variant is rejected.
  static Error of_kernel(Error error) {
    if (error.code == kVariantIsRejected) error.code = ErrorCode::kInternal;
    return error;
  }
  static constexpr ErrorCode kVariantIsRejected = ErrorCode::kSelfTestFailed;

  vk::PipelineLibrary& pipelines_;
  std::vector<ops::OpCase> cases_;
  const SelfTestOptions& options_;
  std::map<std::string, ModuleVerdict, std::less<>> start_;
  std::map<std::string, ModuleVerdict, std::less<>> failures_;  // of earlier rounds
  std::vector<CaseOutcome> outcomes_;                           // the last of each case
  std::string running_;
  ModuleNames running_modules_;
  size_t n_done_ = 0;
  size_t total_;
  SelfTestResult result_;
};

}  // namespace

std::string_view state_name(State state) {
  constexpr std::string_view kNames[] = {"not run", "passed", "failed", "not supported"};
  return kNames[static_cast<size_t>(state)];
}

ModuleNames SelfTestVerdict::rejected() const {
  ModuleNames names = running_modules;
  for (const auto& [name, verdict] : modules) {
    if (verdict.state == State::kFailed) names.insert(name);
  }
  return names;
}

ModuleNames SelfTestVerdict::passed() const {
  ModuleNames names;
  for (const auto& [name, verdict] : modules) {
    if (verdict.state == State::kPassed && !running_modules.contains(name)) names.insert(name);
  }
  return names;
}

std::vector<std::string> SelfTestVerdict::broken_families() const {
  const ModuleNames rejected_modules = rejected();
  std::map<std::string_view, bool> works;  // of families with a rejected module
  for (const std::string& name : rejected_modules) works[module_family(name)] = false;
  for (const auto& [name, verdict] : modules) {
    const auto family = works.find(module_family(name));
    if (family != works.end() && verdict.state == State::kPassed &&
        !rejected_modules.contains(name)) {
      family->second = true;
    }
  }
  std::vector<std::string> broken;
  for (const auto& [family, any] : works) {
    if (!any && !ops_do_without(family)) broken.emplace_back(family);
  }
  return broken;
}

ModuleNames blame(std::span<const CaseOutcome> outcomes,
                  const std::function<bool(std::string_view)>& replaceable) {
  using CaseState = CaseOutcome::State;
  ModuleNames passing;
  ModuleNames blamed;
  for (const CaseOutcome& outcome : outcomes) {
    if (outcome.state == CaseState::kPassed) {
      passing.insert(outcome.modules.begin(), outcome.modules.end());
    } else if (outcome.state == CaseState::kFailed && outcome.modules.size() == 1) {
      blamed.insert(*outcome.modules.begin());
    }
  }
  for (const CaseOutcome& outcome : outcomes) {
    if (outcome.state != CaseState::kFailed || intersect(outcome.modules, blamed)) continue;
    const auto keep_if = [](ModuleNames& suspects, const auto& holds) {
      ModuleNames kept;
      std::ranges::copy_if(suspects, std::inserter(kept, kept.end()), holds);
      if (!kept.empty()) suspects = std::move(kept);
    };
    ModuleNames suspects = outcome.modules;
    keep_if(suspects, [&](const std::string& name) { return !passing.contains(name); });
    keep_if(suspects, replaceable);
    blamed.merge(suspects);
  }
  return blamed;
}

SelfTestResult run_self_test(vk::PipelineLibrary& pipelines, std::vector<ops::OpCase> cases,
                             const SelfTestVerdict& known, const SelfTestOptions& options) {
  return SelfTest(pipelines, std::move(cases), known, options).run();
}

}  // namespace pumice
