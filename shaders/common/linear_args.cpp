#include "shaders/common/linear_args.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/ascii.hpp"
#include "format/resident_layout.hpp"

namespace pumice::ops {

bool broadcast_supported(const vk::DevicePlan& plan) {
  const uint32_t size = plan.subgroup_size;
  return plan.subgroup.shuffle && plan.features.shader_int64 && plan.require_subgroup_size &&
         (size == 4 || size == 8 || size == 16 || size == 32);
}

XRoute tuned_x_route(const TuningTarget& target) {
  const vk::TuningRow& row =
      take_row(target, "x_path", {}, [&](const vk::TuningRow& one) -> std::string {
        const bool runs = one.choice != "broadcast" || broadcast_supported(target.plan);
        return runs ? "" : "it needs shuffles in subgroups of a known size, and 64-bit integers";
      });
  return row.choice == "broadcast" ? XRoute::kBroadcast : XRoute::kPortable;
}

std::string linear_module_name(std::string_view op, const WeightType& type,
                               std::string_view variant) {
  return fmt::format("{}.{}.{}", op, lower_case(type.shaders), variant);
}

void check_linear_args(const LinearArgs& args) {
  PUMICE_CHECK(args.rows > 0, "linear of no rows");
  PUMICE_CHECK(args.x_stride % 4 == 0 && args.x_stride >= args.weights.n_cols,
               "x_stride must be a multiple of 4 and hold the weights' columns");
  PUMICE_CHECK(args.x.address() % 16 == 0, "x must be 16-byte aligned");
  PUMICE_CHECK(args.y_stride >= args.n_outputs() || args.rows == 1,
               "y_stride must hold the weights' rows");
}

vk::Access linear_reads_x(const LinearArgs& args) {
  const uint64_t floats = uint64_t{args.rows - 1} * args.x_stride + args.weights.n_cols;
  return vk::reads(args.x.subrange(0, floats * 4));
}

vk::Access linear_writes_y(const LinearArgs& args, const WeightMatrixPart& part, uint32_t copies) {
  return vk::writes_columns(args.y.from(uint64_t{part.first_row} * 4), uint64_t{copies} * args.rows,
                            uint64_t{args.y_stride} * 4, uint64_t{part.n_rows} * 4);
}

std::vector<LinearShare> linear_shares(const LinearArgs& args, const WeightMatrixPart& part,
                                       const vk::SegmentLimit& limit, uint32_t tile_cols,
                                       vk::Arithmetic arithmetic, uint32_t copies) {
  const uint64_t rows = args.rows;
  const uint64_t k = args.weights.n_cols;
  const uint64_t x_bytes = rows * k * 4;
  const auto share = [&](uint64_t begin, uint64_t end) {
    const auto n = static_cast<uint32_t>(end - begin);
    const auto first = static_cast<uint32_t>(part.first_row + begin);
    const WeightMatrixPart some = args.weights.rows_of(part, first, n);
    const uint64_t x = x_bytes * end / part.n_rows - x_bytes * begin / part.n_rows;
    return LinearShare{.part = some,
                       .cost = {.bytes = some.range.size_bytes + x + copies * rows * n * 4,
                                .flops = 2 * rows * k * n,
                                .arithmetic = arithmetic}};
  };
  const LinearShare whole = share(0, part.n_rows);
  const uint64_t most_rows = uint64_t{vk::Grid::kMost} * tile_cols;
  if (limit.holds(whole.cost) && part.n_rows <= most_rows) return {whole};

  const uint64_t granule = std::lcm(tile_cols, kRowGroup);
  const uint64_t n_granules = (part.n_rows + granule - 1) / granule;
  const uint64_t granule_bytes = granule / kRowGroup * row_group_bytes(*args.weights.type, k) +
                                 copies * rows * granule * 4 +
                                 (x_bytes * granule + part.n_rows - 1) / part.n_rows;
  const uint64_t most = std::min(
      {limit.bytes / granule_bytes, limit.flops / (2 * rows * k * granule), most_rows / granule});
  const uint64_t share_granules = std::max<uint64_t>(most, 1);
  const uint64_t n_shares = (n_granules + share_granules - 1) / share_granules;
  std::vector<LinearShare> shares;
  for (uint64_t i = 0; i < n_shares; ++i) {
    const uint64_t end = (i + 1) * n_granules / n_shares * granule;
    shares.push_back(
        share(i * n_granules / n_shares * granule, std::min<uint64_t>(end, part.n_rows)));
  }
  return shares;
}

}  // namespace pumice::ops
