#include "tools/self_test.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/folders.hpp"
#include "host/self_test.hpp"
#include "shaders/passport.hpp"
#include "shaders/spirv.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"
#include "vk/shader_info.hpp"
#include "vk/shader_requirements.hpp"

namespace pumice::tools {
namespace {

using Json = nlohmann::json;
using State = ModuleVerdict::State;

/// "gemm.*.broadcast" of "gemm.q4_k.broadcast": a line for all weight types.
std::string row_of(std::string_view module) {
  const std::string_view family = module_family(module);
  const size_t type = family.find('.');
  if (type == family.npos) return std::string(module);
  return fmt::format("{}.*{}", family.substr(0, type), module.substr(family.size()));
}

/// What the module needs and the device has not enabled; empty: it runs here.
std::string obstacle_of(const vk::ShaderModule& module, const vk::DevicePlan& plan) {
  const Result<vk::ShaderInfo> info = vk::read_shader_info(module.words);
  if (!info.ok()) return info.error().message;
  return fmt::format("{}", fmt::join(vk::missing_capabilities(info->capabilities, plan), ", "));
}

ModuleVerdict verdict_of(const std::optional<SelfTestVerdict>& verdict, std::string_view module) {
  if (!verdict) return {};
  if (verdict->running_modules.contains(module)) {
    return {State::kFailed, 0, "the self-test ended in " + verdict->running};
  }
  const auto found = verdict->modules.find(module);
  return found == verdict->modules.end() ? ModuleVerdict{} : found->second;
}

Json to_json(const ModuleVerdict& verdict) {
  return {
      {"state", state_name(verdict.state)}, {"n_passed", verdict.n_passed}, {"note", verdict.note}};
}

}  // namespace

Status run_self_test_command(const DeviceOptions& options, const std::string& ops, bool json,
                             const Logger& logger) {
  Result<std::vector<ops::OpCase>> cases = host::self_test_cases(ops);
  if (!cases.ok()) {
    return make_error(cases.error().code, "--self-test: {}", cases.error().message);
  }
  PUMICE_TRY(const std::shared_ptr<vk::Device> device, open_device(options, logger));
  // With --limit it is another device, so to speak, and its verdict nothing to remember.
  const std::filesystem::path directory =
      options.limit.empty() ? cache_directory() : std::filesystem::path();
  host::VerdictKeeper keeper(directory, *device, logger);
  const auto start = std::chrono::steady_clock::now();
  SelfTestResult result;
  {
    const InterruptGuard interrupt([&] { keeper.keep_interrupted(); });
    ProgressBar bar("self-test");
    result = host::test_device(device, directory, keeper, *std::move(cases),
                               {.on_case = [&](const SelfTestVerdict&, size_t done,
                                               size_t total) { bar.update(done, total); },
                                .interrupted = InterruptGuard::interrupted},
                               logger);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  Status status = host::self_test_status(device->snapshot(), result);
  if (json) {
    const Json out{{"device", device->snapshot().name},
                   {"driver", device->snapshot().driver_info},
                   {"cases", result.n_cases},
                   {"seconds", seconds.count()},
                   {"errors", result.errors},
                   {"broken", result.verdict.broken_families()},
                   {"kernels", describe_kernels(device->plan(), result.verdict)}};
    print_text("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_text("{}, {} {}\n", device->snapshot().name, device->snapshot().driver_name,
               device->snapshot().driver_info);
    print_kernels(device->plan(), result.verdict);
    for (const std::string& error : result.errors) print_text("   could not run: {}\n", error);
    print_text("   {} cases in {:.1f} s\n", result.n_cases, seconds.count());
  }
  return status;
}

void print_kernel_summary(const vk::DevicePlan& plan,
                          const std::optional<SelfTestVerdict>& verdict) {
  size_t n_here = 0;
  std::map<State, size_t> states;
  std::vector<std::string> failures;
  for (const vk::ShaderModule& module : spirv_modules()) {
    if (!obstacle_of(module, plan).empty()) continue;
    ++n_here;
    const ModuleVerdict known = verdict_of(verdict, module.name);
    ++states[known.state];
    if (known.state == State::kFailed) {
      failures.push_back(fmt::format("{}: {}", module.name, known.note));
    }
  }
  std::vector<std::string> said;
  for (const auto& [state, n] : states) said.push_back(fmt::format("{} {}", n, state_name(state)));
  print_text(
      "   kernels: {} of {} modules run here; self-test: {}\n", n_here, spirv_modules().size(),
      verdict ? fmt::format("{}", fmt::join(said, ", ")) : "never run (pumice info --self-test)");
  for (const std::string& failure : failures) print_text("   FAILED {}\n", failure);
}

void print_kernels(const vk::DevicePlan& plan, const std::optional<SelfTestVerdict>& verdict) {
  struct Row {
    size_t n = 0;
    std::string obstacle;
    std::map<State, size_t> states;
    bool unproven = false;
  };
  std::vector<std::string> order;
  std::map<std::string, Row> rows;
  std::vector<std::string> failures;
  for (const vk::ShaderModule& module : spirv_modules()) {
    const std::string name = row_of(module.name);
    const auto [found, is_new] = rows.try_emplace(name);
    if (is_new) order.push_back(name);
    Row& row = found->second;
    ++row.n;
    row.obstacle = obstacle_of(module, plan);
    row.unproven = module.unproven;
    const ModuleVerdict known = verdict_of(verdict, module.name);
    ++row.states[known.state];
    if (known.state == State::kFailed) {
      failures.push_back(fmt::format("{}: {}", module.name, known.note));
    }
  }
  print_text("   {:<28} {:>7}  self-test\n", "kernels", "modules");
  for (const std::string& name : order) {
    const Row& row = rows.at(name);
    std::string said;
    for (const auto& [state, n] : row.states) {
      const bool never_run = !verdict || (row.unproven && state == State::kNotRun);
      const std::string_view text = never_run ? "never run" : state_name(state);
      said += (said.empty() ? "" : ", ") +
              (n == row.n ? std::string(text) : fmt::format("{} {}", n, text));
    }
    if (!row.obstacle.empty()) said = "not here: needs " + row.obstacle;
    // A kernel that nobody has seen run is not used before it has passed: PipelineLibrary::accept.
    if (!row.obstacle.empty() && row.unproven) said = fmt::format("never run, {}", said);
    print_text("   {:<28} {:>7}  {}\n", name, row.n, said);
  }
  std::map<std::string, std::pair<size_t, std::string_view>> left_out;
  for (const LeftOutModule& module : left_out_modules()) {
    auto& row = left_out[row_of(module.name)];
    ++row.first;
    row.second = module.glsl_extension;
  }
  for (const auto& [name, row] : left_out) {
    print_text("   {:<28} {:>7}  not in this build: its glslc does not know {}\n", name, row.first,
               row.second);
  }
  for (const std::string& failure : failures) print_text("   FAILED {}\n", failure);
}

Json describe_kernels(const vk::DevicePlan& plan, const std::optional<SelfTestVerdict>& verdict) {
  Json kernels = Json::array();
  for (const vk::ShaderModule& module : spirv_modules()) {
    const std::string obstacle = obstacle_of(module, plan);
    kernels.push_back(
        {{"name", module.name},
         {"family", module_family(module.name)},
         {"in_build", true},
         {"runs_here", obstacle.empty()},
         {"needs", obstacle},
         {"unproven", module.unproven},
         {"self_test", verdict ? to_json(verdict_of(verdict, module.name)) : nullptr}});
  }
  for (const LeftOutModule& module : left_out_modules()) {
    kernels.push_back({{"name", module.name},
                       {"family", module_family(module.name)},
                       {"in_build", false},
                       {"runs_here", false},
                       {"needs", module.glsl_extension},
                       {"self_test", nullptr}});
  }
  return kernels;
}

}  // namespace pumice::tools
