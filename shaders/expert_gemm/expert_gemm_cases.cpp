#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "format/resident_layout.hpp"
#include "shaders/common/linear_cases.hpp"
#include "shaders/expert_gemm/expert_gemm.hpp"
#include "shaders/experts/experts.hpp"
#include "shaders/op_case.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

enum class Routing {
  kAny,
  kAlike,   ///< every row takes the same experts, one of them the last
  kInTurn,  ///< rows take neighbours in turn, each as often as the others
};

struct PairShape {
  uint32_t rows;
  uint32_t n_used;
  uint32_t n_experts;
  uint32_t n;  ///< rows of an expert
  uint32_t k;  ///< rounded up to what the type's blocks allow
  Routing routing = Routing::kAny;
  bool x_of_ranks = false;
  uint32_t part_groups = 0;  ///< the weights are split after so many row groups; 0: not
  bool has_bias = false;
  bool every_type = false;  ///< see LinearShape
};

/// A variant of gemm and one of its tiles.
struct TestedTile {
  std::string_view name;
  Math math = Math::kF32;
  size_t tile = 0;
};

/// The variant with only that tile; without tiles where the device has not.
GemmVariant variant_with(const vk::DevicePlan& plan, const TestedTile& tested) {
  const XRoute path = broadcast_supported(plan) ? XRoute::kBroadcast : XRoute::kPortable;
  for (GemmVariant& variant : gemm_variants(plan, tested.math, path)) {
    if (variant.name != tested.name) continue;
    const bool has = tested.tile < variant.tiles.size();
    variant.tiles = has ? std::vector{variant.tiles[tested.tile]} : std::vector<GemmTile>{};
    return variant;
  }
  return {};
}

/// The experts of each row, in rank order.
std::vector<uint32_t> experts_of(const PairShape& shape) {
  std::mt19937 engine(3);
  std::vector<uint32_t> taken;
  std::vector<uint32_t> all(shape.n_experts);
  std::iota(all.begin(), all.end(), 0u);
  for (uint32_t row = 0; row < shape.rows; ++row) {
    for (uint32_t rank = 0; rank < shape.n_used; ++rank) {
      switch (shape.routing) {
        case Routing::kAny:
          std::swap(all[rank], all[rank + engine() % (shape.n_experts - rank)]);
          taken.push_back(all[rank]);
          break;
        case Routing::kAlike:
          taken.push_back((2 * rank + shape.n_experts - 1) % shape.n_experts);
          break;
        case Routing::kInTurn:
          taken.push_back((row * shape.n_used + rank) % shape.n_experts);
          break;
      }
    }
  }
  return taken;
}

/// The words of ExpertGemm::Groups: where expert e's pairs begin, after so many, its tiles begin
/// after that number / tile_rows + e tiles.
std::vector<uint32_t> groups_of(const PairShape& shape, std::span<const uint32_t> taken,
                                uint32_t tile_rows) {
  std::vector<uint32_t> order(taken.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::less<>(), [&](uint32_t pair) { return taken[pair]; });
  std::vector<uint32_t> words;
  uint32_t first = 0;
  for (uint32_t expert = 0; expert < shape.n_experts; ++expert) {
    const auto end = first + static_cast<uint32_t>(std::ranges::count(taken, expert));
    const uint32_t next_tile = end / tile_rows + expert + 1;
    while (words.size() / 3 < next_tile) {
      const uint32_t n = std::min(end - first, tile_rows);
      const auto last = static_cast<uint32_t>(taken.size() - 1);
      words.insert(words.end(), {std::min(first, last), n, expert});
      first += n;
    }
  }
  for (const uint32_t pair : order) {
    words.push_back(pair / shape.n_used * kMostUsedExperts + pair % shape.n_used);
  }
  return words;
}

Result<PreparedOp> prepare_pairs(OpBed& bed, const WeightType& type, const PairShape& shape,
                                 const TestedTile& tested) {
  const GemmVariant variant = variant_with(bed.device()->plan(), tested);
  const WeightType* const types[] = {&type};
  PUMICE_TRY(const ExpertGemm op, ExpertGemm::plan(bed.pipelines(), types, std::span(&variant, 1)));
  const uint32_t k =
      (shape.k + type.block_elements - 1) / type.block_elements * type.block_elements;
  const RandomWeights weights(type, shape.n_experts * shape.n, k, 1);
  const WeightSource source = weights.source();
  const uint64_t part_bytes = shape.part_groups == 0 ? bed.device()->plan().slab_bytes
                                                     : shape.part_groups * row_group_bytes(type, k);
  PUMICE_TRY(const auto uploaded, upload_weights(bed, std::span(&source, 1), part_bytes));

  const uint32_t n_pairs = shape.rows * shape.n_used;
  const std::vector<uint32_t> taken = experts_of(shape);
  std::vector<uint32_t> routes;
  for (const uint32_t expert : taken) {
    routes.push_back(expert);
    routes.push_back(0x7FC00000);  // a weight, which nothing reads
  }
  const PaddedInput x(shape.x_of_ranks ? n_pairs : shape.rows, k);
  PUMICE_TRY(const vk::BufferRange x_range, bed.input(x.values));
  PUMICE_TRY(const vk::BufferRange routes_range, bed.input(routes));
  const auto bias = OpBed::normal_floats(size_t{shape.n_experts} * shape.n, 6);
  PUMICE_TRY(const vk::BufferRange bias_range, bed.input(bias));
  ExpertGemm::Groups groups{
      .rows = shape.rows, .n_used = shape.n_used, .n_experts = shape.n_experts};
  PUMICE_TRY(groups.range, bed.output(op.range_bytes(groups)));
  PUMICE_TRY(const vk::BufferRange scratch,
             bed.scratch(op.x_bytes(shape.x_of_ranks ? n_pairs : shape.rows, k)));
  const uint32_t y_stride = shape.n + 3;
  const size_t y_floats = size_t{n_pairs - 1} * y_stride + shape.n;
  PUMICE_TRY(const vk::BufferRange y_range, bed.output(y_floats * 4));

  Expectation sorted{.name = "groups", .output = groups.range};
  sorted.words = groups_of(shape, taken, op.tile_rows(groups));
  Expectation y{.name = "y", .output = y_range};
  y.reference.assign(y_floats, std::numeric_limits<double>::quiet_NaN());  // not to be written
  y.bound.assign(y_floats, 0);
  for (uint32_t pair = 0; pair < n_pairs; ++pair) {
    const uint32_t x_row = shape.x_of_ranks ? pair : pair / shape.n_used;
    for (uint32_t row = 0; row < shape.n; ++row) {
      const size_t weight_row = size_t{taken[pair]} * shape.n + row;
      const LinearElement element =
          linear_element(&x.values[size_t{x_row} * x.stride], &weights.values[weight_row * k], k,
                         tested.math, {}, type.has_integers());
      const double value = element.value + (shape.has_bias ? double{bias[weight_row]} : 0);
      y.reference[size_t{pair} * y_stride + row] = value;
      y.bound[size_t{pair} * y_stride + row] =
          element.bound + (shape.has_bias ? 0x1p-24 * std::abs(value) : 0);
    }
  }
  return PreparedOp{.record =
                        [=, stride = x.stride](vk::Recorder& recorder) {
                          op.record_groups(recorder, routes_range, groups);
                          op.record(recorder,
                                    {.weights = uploaded->matrix,
                                     .x = x_range,
                                     .x_stride = shape.x_of_ranks ? shape.n_used * stride : stride,
                                     .x_rank_stride = shape.x_of_ranks ? stride : 0,
                                     .groups = groups,
                                     .scratch = scratch,
                                     .bias = shape.has_bias ? bias_range : vk::BufferRange{},
                                     .y = y_range,
                                     .y_stride = y_stride});
                        },
                    .expected = {std::move(sorted), std::move(y)}};
}

}  // namespace

std::vector<OpCase> expert_gemm_cases() {
  constexpr const char* kRoutings[] = {"", " alike", " in turn"};
  constexpr PairShape kShapes[] = {{33, 2, 5, 33, 76},
                                   {1, 1, 3, 5, 32, Routing::kAlike},
                                   {9, 10, 512, 3, 64},  // fewer pairs than experts
                                   {17, 16, 37, 7, 32, Routing::kAny, true, 0, true},
                                   // Tiles that are full, and experts without any.
                                   {16, 4, 9, 64, 516, Routing::kAlike, true, 3},
                                   {32, 1, 3, 96, 1025 * 4, Routing::kAlike, false, 1},
                                   {64, 2, 8, 31, 96, Routing::kInTurn},
                                   {65, 2, 8, 257, 100, Routing::kInTurn, false, 5, true},
                                   {129, 2, 3, 67, 1000, Routing::kAny, true, 2, true, true},
                                   {130, 1, 2, 130, 260, Routing::kAlike, false, 2}};
  std::vector<OpCase> cases;
  for (const WeightType* type : linear_types()) {
    for (const TestedTile& tested :
         {TestedTile{"shared"}, TestedTile{"broadcast"}, TestedTile{"uniform"},
          TestedTile{"matrix", Math::kF16}, TestedTile{"matrix", Math::kF16, 1}}) {
      for (const PairShape& shape : kShapes) {
        // Of types gemm's own cases are, whose kernels these are: here one of whole numbers and one
        // of blocks.
        if (!shape.every_type && type->name != "F32" && type->name != "Q4_K") continue;
        cases.push_back(
            {.op = "expert_gemm",
             .name = fmt::format(
                 "{} {}{} rows={} used={} experts={} n={} k={}{}{}{}{}", type->name, tested.name,
                 tested.tile == 0 ? "" : fmt::format(" tile {}", tested.tile), shape.rows,
                 shape.n_used, shape.n_experts, shape.n, shape.k,
                 kRoutings[static_cast<size_t>(shape.routing)],
                 shape.x_of_ranks ? " x of ranks" : "", shape.part_groups > 0 ? " parts" : "",
                 shape.has_bias ? " bias" : ""),
             .prepare = [=](OpBed& bed) { return prepare_pairs(bed, *type, shape, tested); },
             .supported =
                 [=](const vk::DevicePlan& plan) {
                   return !variant_with(plan, tested).tiles.empty() &&
                          find_spirv(linear_module_name("expert_gemm", *type, tested.name)).ok();
                 }});
      }
    }
  }
  return cases;
}

}  // namespace pumice::ops
