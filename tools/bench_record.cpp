// What every record of `pumice bench` on a model says besides its numbers.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "bench/build_info.hpp"
#include "bench/device_record.hpp"
#include "bench/machine_state.hpp"
#include "shaders/spirv.hpp"
#include "tools/bench.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr double kCheckSeconds = 20;  // of the fp64 pass
constexpr double kCheckSecondsOnCpu = 10;
constexpr uint32_t kCheckBatchRows = 224;  // with the prompt's a step of 256

}  // namespace

nlohmann::json describe_run(const BenchOptions& options, const host::OpenedModel& opened) {
  return {{"device", bench::device_to_json(*opened.device)},
          {"gpu_info", opened.device->snapshot().name},
          {"cpu_info", bench::read_processor().value("name", "")},
          {"model_filename", options.model.model_name()},
          {"model_hash", fmt::format("{:016x}{:016x}", opened.model->fingerprint[0],
                                     opened.model->fingerprint[1])},
          {"command", options.command},
          {"pumice_version", PUMICE_VERSION},
          {"build_commit", bench::build_commit()},
          {"build_dirty", bench::build_is_dirty()},
          {"shader_hash", fmt::format("{:016x}", spirv_hash())},
          {"options", {{"math", options.model.math}}}};
}

Result<bench::Evidence> check_logits(const host::OpenedModel& opened, const ModelSource& source,
                                     KvTypes kv_type, ops::Math math, const Logger& logger,
                                     const bench::Evidence* earlier) {
  ProgressBar bar("checking logits against fp64");
  bar.update(0, 1);
  const bool is_cpu = opened.device->snapshot().type == vk::DeviceType::kCpu;
  PUMICE_TRY(bench::Evidence evidence,
             bench::gather_evidence(opened.pipelines, opened.model, source,
                                    {.kv_type = kv_type,
                                     .math = math,
                                     .seconds = is_cpu ? kCheckSecondsOnCpu : kCheckSeconds,
                                     .batch_rows = is_cpu ? 0u : kCheckBatchRows,
                                     .stop = InterruptGuard::interrupted,
                                     .reference = earlier ? earlier->reference : nullptr}));
  logger.info("{}; the fp64 pass took {:.1f} s", describe(evidence), evidence.reference_seconds);
  return evidence;
}

Result<nlohmann::json> checked_run(const BenchOptions& options, const host::OpenedModel& opened,
                                   const ModelSource& source, const Logger& logger,
                                   std::optional<bench::Evidence>* evidence) {
  nlohmann::json run = describe_run(options, opened);
  const InterruptGuard interrupt;
  run["evidence"] = {{"checked", false}};
  if (!options.no_check) {
    PUMICE_TRY(bench::Evidence found, check_logits(opened, source, options.model.kv_type(),
                                                   options.model.math_kind(), logger));
    PUMICE_TRY_STATUS(bench::verdict(found));
    run["evidence"] = to_json(found);
    if (evidence != nullptr) *evidence = std::move(found);
  }
  run["machine"] = {{"before", bench::read_machine(*opened.device)}};
  return run;
}

}  // namespace pumice::tools
