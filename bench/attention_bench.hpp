// `pumice bench --attention`: what it saves, in time and in memory, that flash attention never
// writes the scores down.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "vk/pipeline.hpp"

namespace pumice::bench {

/// One way to compute one shape, checked against fp64 before it was timed.
struct AttentionSide {
  Timing timing;
  uint64_t scratch_bytes = 0;     ///< that it asked for besides q, K, V and y
  uint64_t allocated_bytes = 0;   ///< that the device gave for it
  double largest_difference = 0;  ///< of any output to the reference's
  std::optional<Error> error;     ///< why there is no timing

  double median_ns() const;
};

/// The last `rows` tokens of a context.
struct AttentionRow {
  uint32_t context = 0;
  uint32_t rows = 0;
  uint64_t scores_bytes = 0;     ///< heads * rows * context * 4: by formula
  uint64_t unchunked_bytes = 0;  ///< the same for the whole context at once
  AttentionSide reference;       ///< all scores in memory: ops::AttentionReference
  AttentionSide same_tiles;      ///< flash attention with the reference's tiles and arithmetic
  AttentionSide tuned;           ///< flash attention as models run it on this device
};

struct AttentionReport {
  ops::FlashAttention::Shape shape;
  std::vector<AttentionRow> rows;
  bool scaled_down = false;    ///< shorter contexts and chunks: CPU drivers
  std::optional<Error> ended;  ///< why measuring stopped early
};

/// Never fails: errors are in the report. `progress` is told how much is done of how much; it stops
/// the measurement by returning false.
AttentionReport bench_attention(vk::PipelineLibrary& pipelines, const TimingOptions& options,
                                const std::function<bool(size_t done, size_t total)>& progress);

/// The worst of the rows' errors; rows that do not fit into memory are no failure.
Status verdict(const AttentionReport& report);

nlohmann::json to_json(const AttentionReport& report);
std::string to_markdown(const AttentionReport& report);

}  // namespace pumice::bench
