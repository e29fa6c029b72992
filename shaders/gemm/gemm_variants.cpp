#include "shaders/gemm/gemm_variants.hpp"

#include <algorithm>

#include "shaders/common/matrix_shape.hpp"
#include "shaders/gemm/gemm.h"
#include "shaders/gemm/gemm_i8.h"
#include "shaders/gemm/gemm_matrix.h"
#include "shaders/gemm/gemm_matrix2.h"

namespace pumice::ops {
namespace {

template <typename Spec>
Spec spec_of(const vk::TuningRow& row) {
  return {.workgroup_size = row.number("workgroup_size"),
          .tile_rows = row.number("tile_rows"),
          .lane_cols = row.number("lane_cols")};
}

template <typename Spec>
GemmTile tile_of(const Spec& spec, std::vector<std::pair<uint32_t, uint32_t>> constants) {
  return {.rows = spec.tile_rows,
          .cols = spec.workgroup_size * spec.lane_cols,
          .constants = std::move(constants),
          .workgroup_size = spec.workgroup_size};
}

GemmVariant fp32_variant(const vk::DevicePlan& plan, const vk::TuningRow& row) {
  const auto spec = spec_of<GemmSpec>(row);
  GemmVariant variant{.name = row.choice};
  if (row.choice == "shared") {
    variant.tiles.push_back(tile_of(spec, vk::constants_of(spec)));
    return variant;
  }
  variant.subgroup_size = plan.subgroup_size;
  if (row.choice == "broadcast") {
    variant.tiles.push_back(
        tile_of(spec, broadcast_constants(plan, spec, row.number("wide_loads"))));
  } else {
    auto uniform = spec_of<GemmUniformSpec>(row);
    uniform.subgroup_size = plan.subgroup_size;
    variant.tiles.push_back(tile_of(spec, vk::constants_of(uniform)));
  }
  return variant;
}

GemmVariant i8_variant(const vk::TuningRow& row) {
  const auto spec = spec_of<GemmI8Spec>(row);
  return {.name = row.choice,
          .math = Math::kI8,
          .x = XForm::kInt8,
          .tiles = {tile_of(spec, vk::constants_of(spec))}};
}

// A part's sums in registers of each invocation.
constexpr uint32_t kMaxSums = 64;

GemmMatrixSpec matrix_spec(const vk::TuningRow& row, const vk::MatrixShape& shape,
                           uint32_t subgroup_size) {
  const uint32_t parts_down = row.number("parts_down");
  const uint32_t parts_across = row.number("parts_across");
  GemmMatrixSpec spec;
  // A matrix may be larger than the part a row means.
  spec.part_rows = std::max(row.number("part_rows"), shape.m);
  spec.part_cols = std::max(row.number("part_cols"), shape.n);
  spec.tile_rows = spec.part_rows * parts_down;
  spec.tile_cols = spec.part_cols * parts_across;
  spec.tile_k = row.number("tile_k");
  spec.buffers = row.number("buffers");
  spec.subgroup_size = subgroup_size;
  spec.workgroup_size = subgroup_size * parts_down * parts_across;
  spec.matrix_m = shape.m;
  spec.matrix_n = shape.n;
  spec.matrix_k = shape.k;
  return spec;
}

/// As gemm_matrix.comp declares it.
uint32_t shared_bytes(const GemmMatrixSpec& spec) {
  const uint32_t tiles = spec.buffers * (spec.tile_rows + spec.tile_cols) * (spec.tile_k + 8) * 2;
  const uint32_t y = spec.workgroup_size / spec.subgroup_size * spec.matrix_m * spec.matrix_n * 4;
  return tiles + y;
}

std::string matrix_obstacle(const GemmMatrixSpec& spec, const vk::DevicePlan& plan) {
  if (HALVED_COLS % spec.tile_k != 0) return "tile_k must divide 64";
  if (spec.part_rows * spec.part_cols > kMaxSums * spec.subgroup_size) return "too many registers";
  if (spec.workgroup_size > std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0])) {
    return "its workgroups are too large";
  }
  return shared_bytes(spec) > plan.max_shared_bytes ? "too much shared memory" : "";
}

/// The variant "matrix": a tile for few rows and one for many (gemm_matrix of gemm.tune), within
/// the device's shared memory, workgroups and registers; or the obstacle.
GemmVariant matrix_variant(const TuningTarget& target) {
  const vk::DevicePlan& plan = target.plan;
  GemmVariant variant{.name = "matrix",
                      .math = Math::kF16,
                      .x = XForm::kHalves,
                      .subgroup_size = plan.matrix_subgroup_size,
                      .full_subgroups = true};
  variant.obstacle = half_matrix_obstacle(plan);
  if (!variant.obstacle.empty()) return variant;
  const vk::MatrixShape* shape = half_matrix_shape(plan);
  for (const std::string_view rows : {"few", "many"}) {
    GemmMatrixSpec spec;
    const vk::TuningRow* row = choose_row(
        target, "gemm_matrix", vk::TuningFacts().set("rows", rows), [&](const vk::TuningRow& one) {
          spec = matrix_spec(one, *shape, plan.matrix_subgroup_size);
          return matrix_obstacle(spec, plan);
        });
    if (row == nullptr) continue;
    const auto constants = vk::constants_of(spec);
    if (!variant.tiles.empty() && variant.tiles.back().constants == constants) continue;
    variant.tiles.push_back({.rows = spec.tile_rows,
                             .cols = spec.tile_cols,
                             .constants = constants,
                             .workgroup_size = spec.workgroup_size,
                             .shared_bytes = shared_bytes(spec)});
  }
  if (variant.tiles.empty())
    variant.obstacle = "its tiles exceed the device's registers or shared memory";
  return variant;
}

/// What the plan lacks for matrices shared by a workgroup, whatever their size.
std::string matrix2_obstacle(const vk::DevicePlan& plan) {
  const vk::DeviceFeatures& features = plan.features;
  if (!features.matrix2_workgroup_scope) return "it needs cooperativeMatrixWorkgroupScope";
  if (!features.matrix2_flexible_dimensions) return "it needs cooperativeMatrixFlexibleDimensions";
  if (!features.matrix2_tensor_addressing) return "it needs cooperativeMatrixTensorAddressing";
  if (!features.matrix2_block_loads) return "it needs cooperativeMatrixBlockLoads";
  if (!features.shader_float16) return "it needs shaderFloat16";
  if (plan.matrix2.reserved_shared_bytes > plan.max_shared_bytes) {
    return "the driver reserves more shared memory than there is";
  }
  return "";
}

/// Invocations of the largest workgroup that may share matrices of these dimensions; 0: none.
uint32_t matrix2_workgroup_size(const vk::DevicePlan& plan, const GemmMatrix2Spec& spec) {
  constexpr uint32_t kMostInvocations = 256;
  const uint32_t most =
      std::min({kMostInvocations, plan.matrix2.max_workgroup_size, plan.max_workgroup_invocations});
  if (std::max({spec.tile_rows, spec.tile_cols, spec.tile_k}) > plan.matrix2.max_dimension) {
    return 0;
  }
  const auto whole = [](uint32_t size, uint32_t granularity) {
    return granularity != 0 && size % granularity == 0;
  };
  uint32_t best = 0;
  for (const vk::FlexibleMatrixShape& shape : plan.flexible_matrix_shapes) {
    if (shape.a == vk::ComponentType::kF16 && shape.b == vk::ComponentType::kF16 &&
        shape.c == vk::ComponentType::kF32 && shape.result == vk::ComponentType::kF32 &&
        !shape.saturating && shape.workgroup_invocations <= most &&
        whole(spec.tile_rows, shape.m_granularity) && whole(spec.tile_cols, shape.n_granularity) &&
        whole(spec.tile_k, shape.k_granularity)) {
      best = std::max(best, shape.workgroup_invocations);
    }
  }
  return best;
}

GemmVariant matrix2_variant(const TuningTarget& target) {
  const vk::DevicePlan& plan = target.plan;
  GemmVariant variant{.name = "matrix2", .math = Math::kF16};
  variant.grid_obstacle = "it decodes weights one by one, and points hold several";
  variant.obstacle = matrix2_obstacle(plan);
  if (!variant.obstacle.empty()) return variant;
  for (const std::string_view rows : {"few", "many"}) {
    GemmMatrix2Spec spec;
    choose_row(target, "gemm_matrix2", vk::TuningFacts().set("rows", rows),
               [&](const vk::TuningRow& row) -> std::string {
                 spec.tile_rows = row.number("tile_rows");
                 spec.tile_cols = row.number("tile_cols");
                 spec.workgroup_size = matrix2_workgroup_size(plan, spec);
                 return spec.workgroup_size != 0 ? "" : "the device shares no such matrices";
               });
    if (spec.workgroup_size == 0) continue;
    variant.tiles.push_back({.rows = spec.tile_rows,
                             .cols = spec.tile_cols,
                             .constants = vk::constants_of(spec),
                             .workgroup_size = spec.workgroup_size});
  }
  if (variant.tiles.empty()) {
    variant.obstacle = "the device shares no fp16 matrices of its sizes in a workgroup";
  }
  return variant;
}

/// Whether what a row chooses computes as precisely as `math` asks, whatever the row's conditions.
bool is_allowed(const vk::TuningRow& row, Math math) {
  if (row.choice == "i8") return math == Math::kI8;
  const bool in_halves = row.choice == "matrix" || row.choice == "matrix2";
  return math == Math::kAuto || math == (in_halves ? Math::kF16 : Math::kF32);
}

/// Why no variant can be made of a row.
std::string row_obstacle(const vk::DevicePlan& plan, const vk::TuningRow& row) {
  const bool has_sizes = row.choice != "matrix" && row.choice != "matrix2";
  if (has_sizes && row.number("workgroup_size") >
                       std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0])) {
    return "its workgroups are too large";
  }
  if (row.choice != "broadcast" && row.choice != "uniform") return "";
  if (!broadcast_supported(plan)) return "it needs shuffles in subgroups of a known size";
  return row.number("workgroup_size") % plan.subgroup_size == 0 ? "" : "it needs whole subgroups";
}

GemmVariant variant_of(const TuningTarget& target, const vk::TuningRow& row) {
  if (row.choice == "matrix2") return matrix2_variant(target);
  if (row.choice == "matrix") return matrix_variant(target);
  return row.choice == "i8" ? i8_variant(row) : fp32_variant(target.plan, row);
}

}  // namespace

std::vector<GemmVariant> gemm_variants(const TuningTarget& target, Math math, XRoute path,
                                       const WeightType* type) {
  vk::TuningFacts facts;
  facts.set("math", math_name(math));
  facts.set("x", path == XRoute::kBroadcast ? "broadcast" : "portable");
  if (type != nullptr) facts.set("type", tuning_word(*type));
  std::vector<GemmVariant> variants;
  for (const vk::TuningRow* row : tuning_rows(target, "gemm", facts)) {
    const bool is_listed =
        std::ranges::find(variants, row->choice, &GemmVariant::name) != variants.end();
    if (is_listed || !is_allowed(*row, math) || !row_obstacle(target.plan, *row).empty()) continue;
    variants.push_back(variant_of(target, *row));
    variants.back().chosen = vk::TuningChoice{facts, *row};
  }
  const uint32_t busy = take_row(target, "gemm_tiles", facts).number("busy_workgroups");
  for (GemmVariant& variant : variants) {
    for (GemmTile& tile : variant.tiles) tile.busy_workgroups = busy;
  }
  return variants;
}

size_t choose_gemm_tile(std::span<const GemmTile> tiles, uint32_t rows, uint32_t n) {
  for (size_t i = tiles.size() - 1; i > 0; --i) {
    const auto count = [](uint32_t size, uint32_t tile) { return (size + tile - 1) / tile; };
    const bool filled = rows > tiles[i - 1].rows;
    const uint64_t workgroups = uint64_t{count(rows, tiles[i].rows)} * count(n, tiles[i].cols);
    if (filled && workgroups >= tiles[i].busy_workgroups) return i;
  }
  return 0;
}

}  // namespace pumice::ops
