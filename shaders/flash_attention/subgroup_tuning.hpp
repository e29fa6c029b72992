// Which kernel attention uses for items of one token on a device (attention_row of flash_attention.tune), and
// what flash_attention_subgroup.comp needs; tested on snapshots.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shaders/common/tuning.hpp"
#include "shaders/flash_attention/flash_attention.h"
#include "shaders/flash_attention/flash_attention.hpp"
#include "shaders/flash_attention/flash_attention_subgroup.h"
#include "vk/plan.hpp"

namespace pumice::ops {

/// The constants that flash_attention_subgroup.comp has besides `spec`, of a tuning of Path::kSubgroup.
FlashAttentionSubgroupSpec subgroup_attention_spec(const FlashAttentionSpec& spec,
                                                   const FlashAttention::Tuning& tuning);

/// Whether a tile of spec.tile_rows fits: y into the registers of so many rows as the tuning allows
/// where a lane has 8 columns, and the rest into the shared memory that every device has.
bool subgroup_tile_fits(const FlashAttentionSpec& spec, const FlashAttention::Tuning& tuning);

/// What a workgroup carries from dispatch to dispatch.
uint32_t carried_bytes_of(const FlashAttentionSpec& spec, const FlashAttentionSubgroupSpec& more);

/// What forbids that tuning (of Path::kSubgroup) here; empty if nothing does.
std::string subgroup_attention_obstacle(const vk::DevicePlan& plan,
                                        const FlashAttention::Tuning& tuning);

/// The best tuning for single rows: of Path::kSubgroup, or `on_matrices`, which is asked for if a row says so;
/// nothing where they are better computed as tiles are in fp32.
std::optional<FlashAttention::Tuning> row_attention_tuning(
    const vk::PipelineLibrary& pipelines, const FlashAttention::Shape& shape,
    const std::function<Result<FlashAttention::Tuning>()>& on_matrices);

}  // namespace pumice::ops
