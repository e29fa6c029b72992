// How every op that has a choice makes it: rows of its table (vk/tuning_rows.hpp), of which the
// first that holds and has no obstacle is taken. What is preferred here (tuning_overlay.hpp) comes
// before what the build has.
//
// A row may be wrong for a device, and then it is slow: what a kernel needs to be correct, and what
// the device must have for it, are obstacles, which each op knows of itself.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "format/weight_type.hpp"
#include "vk/pipeline.hpp"
#include "vk/plan.hpp"
#include "vk/tuning_rows.hpp"

namespace pumice::ops {

/// A file beside an op, NAME.tune, as it was when this program was built.
struct TuningFile {
  std::string_view name;
  std::string_view text;
};
std::span<const TuningFile> built_in_tuning_files();

/// The tables of all these files.
std::span<const vk::TuningTable> tuning_tables();

/// What rows are chosen for. A view: made where it is passed.
struct TuningTarget {
  // Implicit by intent: what is asked of a plan alone is asked of the build's rows.
  TuningTarget(const vk::DevicePlan& of) : plan(of) {}  // NOLINT
  TuningTarget(const vk::PipelineLibrary& pipelines)    // NOLINT
      : plan(pipelines.device()->plan()),
        preferred(pipelines.preferred()),
        logger(&pipelines.device()->logger()),
        library(&pipelines) {}

  const vk::DevicePlan& plan;
  std::span<const vk::TuningRow> preferred = {};
  const Logger* logger = nullptr;                ///< null: nothing is logged
  const vk::PipelineLibrary* library = nullptr;  ///< that is told what was chosen, if any
};

/// As conditions name a weight type: "q4_k".
std::string tuning_word(const WeightType& type);

/// Why a row cannot be taken; empty if it can.
using TuningObstacle = std::function<std::string(const vk::TuningRow&)>;

/// The rows of a table, which there must be, whose conditions hold, best first. `shape` has the
/// table's own facts. They live as long as the target's.
std::vector<const vk::TuningRow*> tuning_rows(const TuningTarget& target, std::string_view table,
                                              vk::TuningFacts shape = {});

/// The first of these without an obstacle; null: none. Logs why preferred rows before it are not
/// taken.
const vk::TuningRow* choose_row(const TuningTarget& target, std::string_view table,
                                const vk::TuningFacts& shape = {},
                                const TuningObstacle& obstacle = {});

/// The same of a table whose last rows suit every device.
const vk::TuningRow& take_row(const TuningTarget& target, std::string_view table,
                              const vk::TuningFacts& shape = {},
                              const TuningObstacle& obstacle = {});

}  // namespace pumice::ops
