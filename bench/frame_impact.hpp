// What generation costs a program that draws frames: a render loop of our own beside it, for a
// sweep of budgets.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/engine.hpp"
#include "vk/pipeline.hpp"

namespace pumice::bench {

struct FrameOptions {
  /// Milliseconds that a frame gives to `Engine::poll`, a row each; 0: the frames alone, and
  /// infinity: as fast as possible.
  std::vector<double> budgets_ms = {0, 1, 2, 5, 10, std::numeric_limits<double>::infinity()};
  double frame_rate = 60;           ///< frames begin so often; late ones at the next such time
  double frame_work_ms = 4;         ///< what a frame computes of its own
  double seconds = 10;              ///< that a row's frames are measured, after a quarter of that
                                    ///< in which predictions learn
  uint32_t prompt_tokens = 16;      ///< of each request: one after the other, all the while
  uint32_t n_vocab = 0;             ///< of the model
  bool own_queue = false;           ///< whether frames have one; see measure_frames
  std::function<bool()> stop = {};  ///< asked between frames; true ends it with kCancelled
};

struct FrameRow {
  double budget_ms = 0;
  /// Of each frame: from before `poll` until what the frame computes is done.
  std::vector<double> samples_ns;
  uint64_t late = 0;  ///< frame times that passed while a frame was not done
  double tokens_per_s = 0;
  std::vector<SliceTime> slices;  ///< none without a budget, or without timestamps
};

struct FrameReport {
  double frame_rate = 0;
  double frame_work_ms = 0;  ///< as asked for
  bool own_queue = false;
  std::vector<FrameRow> rows;
  std::optional<Error> ended;  ///< early
};

/// Makes an engine for each row that generates: what budgets taught one is not another's.
using MakeEngine = std::function<Result<std::unique_ptr<Engine>>()>;

/// `pipelines`: of the device that frames are computed on. If it is the engines', they share its
/// queue; another one of the same processor has a queue of its own, as another program would.
/// `progress` is told what comes next. Errors of the frames' own kernel, and in `ended` those that
/// come later, kCancelled among them.
Result<FrameReport> measure_frames(vk::PipelineLibrary& pipelines, const MakeEngine& make_engine,
                                   const FrameOptions& options,
                                   const std::function<void(const std::string&)>& progress = {});

nlohmann::json to_json(const FrameReport& report);
std::string to_markdown(const FrameReport& report);

}  // namespace pumice::bench
