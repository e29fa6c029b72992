#include "shaders/flash_attention/subgroup_tuning.hpp"

#include <algorithm>
#include <bit>

#include "shaders/common/kv_layout.hpp"
#include "shaders/flash_attention/matrix_tuning.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kFloorSharedBytes = 16 * 1024;  // what every device has
// Of y that is merged at once, where that is a row at least: more would leave a core fewer workgroups.
constexpr uint32_t kMergeBytes = 8 * 1024;

uint32_t value_octets_of(const FlashAttentionSpec& spec) {
  return (spec.latent_dim != 0 ? spec.latent_dim : spec.v_dim) / 8;
}

/// Octets of a value that a lane has.
uint32_t chunks_of(const FlashAttentionSpec& spec, const FlashAttentionSubgroupSpec& more) {
  return (value_octets_of(spec) + more.column_lanes - 1) / more.column_lanes;
}

/// Of so many 16-byte loads: an octet of F32 takes two.
uint32_t octets_at_once(const FlashAttentionSpec& spec, uint32_t loads) {
  const bool wide = spec.k_type == KV_F32 || (spec.latent_dim == 0 && spec.v_type == KV_F32);
  return wide ? std::max(1u, loads / 2) : loads;
}

uint32_t merged_row_bytes(const FlashAttentionSpec& spec, const FlashAttentionSubgroupSpec& more) {
  return spec.workgroup_size * chunks_of(spec, more) * 32;
}

uint32_t shared_bytes(const FlashAttentionSpec& spec, const FlashAttentionSubgroupSpec& more) {
  const uint32_t q = more.shared_q != 0 ? spec.tile_rows * spec.head_dim * 4 : 16;
  const uint32_t weights = spec.workgroup_size * ((spec.tile_rows + 3) / 4) * 16;
  const uint32_t stats = spec.workgroup_size / more.subgroup_size * spec.tile_rows * 8;
  return q + weights + stats + more.merge_rows * merged_row_bytes(spec, more);
}

}  // namespace

FlashAttentionSubgroupSpec subgroup_attention_spec(const FlashAttentionSpec& spec,
                                                   const FlashAttention::Tuning& tuning) {
  FlashAttentionSubgroupSpec more{.subgroup_size = tuning.subgroup_size,
                                  .flight = octets_at_once(spec, tuning.flight),
                                  .shared_q = tuning.shared_q,
                                  .unroll = tuning.unroll};
  // Of a block's 16 tokens a load of all lanes has neighbours, of one block alone.
  more.column_lanes = std::clamp(std::bit_ceil(value_octets_of(spec)),
                                 (tuning.subgroup_size + kKvBlockTokens - 1) / kKvBlockTokens,
                                 tuning.subgroup_size);
  more.merge_rows = std::clamp(kMergeBytes / merged_row_bytes(spec, more), 1u, spec.tile_rows);
  while (more.merge_rows > 1 && shared_bytes(spec, more) > kFloorSharedBytes) --more.merge_rows;
  return more;
}

bool subgroup_tile_fits(const FlashAttentionSpec& spec, const FlashAttention::Tuning& tuning) {
  const FlashAttentionSubgroupSpec more = subgroup_attention_spec(spec, tuning);
  return spec.tile_rows == 1 || (spec.tile_rows * chunks_of(spec, more) <= tuning.max_tile_rows &&
                                 shared_bytes(spec, more) <= kFloorSharedBytes);
}

uint32_t carried_bytes_of(const FlashAttentionSpec& spec, const FlashAttentionSubgroupSpec& more) {
  return spec.tile_rows * (merged_row_bytes(spec, more) + spec.workgroup_size * 8);
}

std::string subgroup_attention_obstacle(const vk::DevicePlan& plan,
                                        const FlashAttention::Tuning& tuning) {
  const vk::SubgroupFacts& subgroup = plan.subgroup;
  const uint32_t size = tuning.subgroup_size;
  if (!subgroup.basic || !subgroup.shuffle) return "it needs shuffles in subgroups";
  if (!plan.features.full_subgroups ||
      !(plan.require_subgroup_size || subgroup.min_size == subgroup.max_size) ||
      size < subgroup.min_size || size > subgroup.max_size || !std::has_single_bit(size)) {
    return fmt::format("it needs full subgroups of {}", size);
  }
  if (tuning.workgroup_size == 0 || tuning.workgroup_size % size != 0 ||
      !std::has_single_bit(tuning.flight) || tuning.unroll == 0 ||
      tuning.unroll % tuning.flight != 0 || tuning.max_tile_rows == 0) {
    return "it needs workgroups of whole subgroups, and turns of whole loads";
  }
  if (tuning.workgroup_size >
      std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0])) {
    return fmt::format("it needs workgroups of {}", tuning.workgroup_size);
  }
  const uint32_t n_subgroups = tuning.workgroup_size / size;
  if (subgroup.max_workgroup_subgroups != 0 && n_subgroups > subgroup.max_workgroup_subgroups) {
    return fmt::format("it needs {} subgroups", n_subgroups);
  }
  return "";
}

std::optional<FlashAttention::Tuning> row_attention_tuning(
    const vk::PipelineLibrary& pipelines, const FlashAttention::Shape& shape,
    const std::function<Result<FlashAttention::Tuning>()>& on_matrices) {
  const auto by_subgroups = [](const vk::TuningRow& row) {
    return FlashAttention::Tuning{.path = FlashAttention::Path::kSubgroup,
                                  .workgroup_size = row.number("workgroup_size"),
                                  .max_tile_rows = row.number("tile_rows"),
                                  .subgroup_size = row.number("subgroup_size"),
                                  .flight = row.number("flight"),
                                  .unroll = row.number("unroll"),
                                  .shared_q = row.number("shared_q") != 0};
  };
  std::optional<FlashAttention::Tuning> tuning;
  take_row(pipelines, "attention_row",
           vk::TuningFacts()
               .set("head_dim", shape.head_dim)
               .set("k", std::string(kv_type_name(shape.kv_type.k))),
           [&](const vk::TuningRow& row) -> std::string {
             tuning.reset();
             if (row.choice == "tile") return "";
             if (row.choice == "matrix") {
               const Result<FlashAttention::Tuning> matrix = on_matrices();
               if (!matrix.ok()) return matrix.error().message;
               tuning = *matrix;
               tuning->key_tile = std::min(tuning->key_tile, row.number("key_tile"));
               return matrix_attention_obstacle(pipelines.device()->plan(), shape, *tuning);
             }
             const Result<vk::ShaderModule> module = find_spirv("flash_attention.subgroup");
             if (!module.ok()) return "its kernel is not in this build";
             if (std::string obstacle = pipelines.obstacle(*module); !obstacle.empty())
               return obstacle;
             tuning = by_subgroups(row);
             return subgroup_attention_obstacle(pipelines.device()->plan(), *tuning);
           });
  return tuning;
}

}  // namespace pumice::ops
