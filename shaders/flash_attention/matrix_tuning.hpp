// Which kernel and tiles flash attention uses on a device's matrix cores (attention_matrix of
// flash_attention.tune), tested on snapshots.
#pragma once

#include <functional>

#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "vk/plan.hpp"

namespace pumice::ops {

/// Shared memory of that tuning's kernel.
uint32_t matrix_attention_shared_bytes(uint32_t head_dim, const FlashAttention::Tuning& tuning);

/// What forbids that tuning (of Path::kMatrix) here; empty if nothing does.
std::string matrix_attention_obstacle(const vk::DevicePlan& plan,
                                      const FlashAttention::Shape& shape,
                                      const FlashAttention::Tuning& tuning);

/// Why a tuning cannot be taken besides; empty if it can.
using MatrixTuningObstacle = std::function<std::string(const FlashAttention::Tuning&)>;

/// The best tuning of Path::kMatrix. Errors: kInvalidArgument naming what the device lacks, such as
/// "it needs shuffles in subgroups".
Result<FlashAttention::Tuning> matrix_attention_tuning(
    const TuningTarget& target, const FlashAttention::Shape& shape,
    const MatrixTuningObstacle& obstacle_of = {});

}  // namespace pumice::ops
