// Which tiles flash attention uses on a device's matrix cores (attention_matrix of
// flash_attention.tune), tested on snapshots.
#pragma once

#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/flash_attention.hpp"
#include "vk/plan.hpp"

namespace pumice::ops {

/// Shared memory of flash_attention_matrix.comp.
uint32_t matrix_attention_shared_bytes(uint32_t head_dim, const FlashAttention::Tuning& tuning);

/// What forbids that tuning (of Path::kMatrix) here; empty if nothing does.
std::string matrix_attention_obstacle(const vk::DevicePlan& plan,
                                      const FlashAttention::Shape& shape,
                                      const FlashAttention::Tuning& tuning);

/// The best tuning of Path::kMatrix. Errors: kInvalidArgument naming what the device lacks, such as
/// "it needs shuffles in subgroups".
Result<FlashAttention::Tuning> matrix_attention_tuning(const TuningTarget& target,
                                                       const FlashAttention::Shape& shape);

}  // namespace pumice::ops
