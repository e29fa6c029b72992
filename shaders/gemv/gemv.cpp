#include "shaders/gemv/gemv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "format/resident_layout.hpp"
#include "shaders/gemv/gemv.h"
#include "shaders/gemv/gemv_broadcast.h"
#include "shaders/gemv/gemv_reduce.h"
#include "shaders/gemv/gemv_subgroup.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint32_t kSliceLanes = 32;
static_assert(LinearFinish::kSquares == GEMV_SQUARES && kRowGroup == GEMV_SQUARES);
constexpr std::array<uint32_t, 4> kTileRows = {1, 2, 4, 8};

/// A pipeline for up to `tile_rows` rows of x.
struct Tuned {
  std::vector<std::pair<uint32_t, uint32_t>> constants;
  uint32_t tile_cols = 0;      // columns of y of a workgroup
  uint32_t subgroup_size = 0;  // to require
  bool full_subgroups = false;
  uint32_t n_slices = 1;  // of K; their lengths are the same in all tiles of as many
};

/// Of the tables that have a row for a number of rows of x.
vk::TuningFacts shape_facts(const WeightType& type, uint32_t tile_rows) {
  return vk::TuningFacts().set("type", tuning_word(type)).set("tile_rows", tile_rows);
}

uint32_t tuned_unroll(const vk::TuningRow& row, const WeightType& type) {
  return std::min(type.layout.tile_cols / kWeightBlockCols, row.number("unroll"));
}

/// The largest workgroup of kernels whose lanes share K in slices.
std::string slices_obstacle(uint32_t workgroup_size, uint32_t tile_rows,
                            const vk::DevicePlan& plan) {
  if (workgroup_size > std::min(plan.max_workgroup_invocations, plan.max_workgroup_size[0])) {
    return fmt::format("it needs workgroups of {}", workgroup_size);
  }
  // The sums of each row and slice.
  const uint32_t shared_bytes = workgroup_size * tile_rows * 4;
  if (shared_bytes > plan.max_shared_bytes) {
    return fmt::format("it needs {} bytes of shared memory", shared_bytes);
  }
  return "";
}

Tuned tuned_broadcast(const TuningTarget& target, const WeightType& type, uint32_t tile_rows,
                      bool finishes) {
  const vk::DevicePlan& plan = target.plan;
  const vk::TuningRow& row =
      take_row(target, "gemv_broadcast", shape_facts(type, tile_rows),
               [&](const vk::TuningRow& one) -> std::string {
                 if (one.number("workgroup_size") % plan.subgroup_size == 0) return "";
                 return fmt::format("its workgroup is not a multiple of subgroups of {}",
                                    plan.subgroup_size);
               });
  // What finishes has whole groups of squares in each subgroup.
  const uint32_t least_cols = finishes ? GEMV_SQUARES / plan.subgroup_size : 1;
  const GemvBroadcastSpec spec{.workgroup_size = row.number("workgroup_size"),
                               .tile_rows = tile_rows,
                               .lane_cols = std::max(row.number("lane_cols"), least_cols),
                               .uniform_loads = row.number("uniform_loads"),
                               .finishes = finishes};
  return {.constants = broadcast_constants(plan, spec, row.number("wide_loads")),
          .tile_cols = spec.workgroup_size * spec.lane_cols,
          .subgroup_size = plan.subgroup_size};
}

Tuned tuned_portable(const TuningTarget& target, const WeightType& type, uint32_t tile_rows,
                     bool finishes) {
  const auto row_of = [&](uint32_t n_rows) -> const vk::TuningRow& {
    return take_row(target, "gemv_uniform", shape_facts(type, n_rows),
                    [&](const vk::TuningRow& one) {
                      return slices_obstacle(one.number("workgroup_size"), n_rows, target.plan);
                    });
  };
  const vk::TuningRow& row = row_of(tile_rows);
  GemvSpec spec{.workgroup_size = row.number("workgroup_size"),
                .tile_rows = tile_rows,
                .unroll = tuned_unroll(row, type),
                .finishes = finishes};
  // Of all tiles alike; numbers of blocks in flight are powers of two.
  for (const uint32_t n_rows : kTileRows) {
    spec.slice_blocks = std::max(spec.slice_blocks, tuned_unroll(row_of(n_rows), type));
  }
  return {.constants = vk::constants_of(spec),
          .tile_cols = kSliceLanes * spec.lane_cols,
          .n_slices = spec.workgroup_size / kSliceLanes};
}

/// The narrowest of the device: where a thread's registers are shared by its lanes (Intel), that
/// leaves each the most. gemv.q4_k, 8 rows, Mesa's compiler for Intel dg2: 0 spills with 8 lanes,
/// 67 with 16, 745 with 32. AMD's and NVIDIA's narrowest is 32. 0: none that the kernel can run
/// with.
uint32_t slice_subgroup_size(const vk::DevicePlan& plan) {
  const uint32_t size = std::max(plan.subgroup.min_size, 8u);
  return size <= std::min(plan.subgroup.max_size, kSliceLanes) ? size : 0;
}

Tuned tuned_subgroup(const TuningTarget& target, std::string_view table, const WeightType& type,
                     uint32_t tile_rows, bool finishes) {
  const vk::DevicePlan& plan = target.plan;
  const uint32_t subgroup_size = slice_subgroup_size(plan);
  const uint32_t most_subgroups = plan.subgroup.max_workgroup_subgroups;
  const vk::TuningRow& row = take_row(
      target, table, shape_facts(type, tile_rows), [&](const vk::TuningRow& one) -> std::string {
        const uint32_t workgroup_size = one.number("workgroup_size");
        if (most_subgroups != 0 && workgroup_size / subgroup_size > most_subgroups) {
          return fmt::format("it needs {} subgroups", workgroup_size / subgroup_size);
        }
        return slices_obstacle(workgroup_size, tile_rows, plan);
      });
  const GemvSubgroupSpec spec{.workgroup_size = row.number("workgroup_size"),
                              .tile_rows = tile_rows,
                              .subgroup_size = subgroup_size,
                              .finishes = finishes};
  return {.constants = vk::constants_of(spec),
          .tile_cols = kSliceLanes,
          .subgroup_size = spec.subgroup_size,
          .full_subgroups = true,
          .n_slices = spec.workgroup_size / kSliceLanes};
}

uint32_t tuned_finish_rows(const TuningTarget& target, const WeightType& type, GemvKernel kernel) {
  const auto facts =
      vk::TuningFacts().set("type", tuning_word(type)).set("kernel", gemv_kernel_name(kernel));
  return take_row(target, "gemv_finish", facts).number("rows");
}

Tuned tuned(const TuningTarget& target, const WeightType& type, GemvKernel kernel,
            uint32_t tile_rows, bool finishes) {
  switch (kernel) {
    case GemvKernel::kPortable:
      return tuned_portable(target, type, tile_rows, finishes);
    case GemvKernel::kSubgroup:
      return tuned_subgroup(target, "gemv_subgroup", type, tile_rows, finishes);
    case GemvKernel::kBroadcast:
      return tuned_broadcast(target, type, tile_rows, finishes);
    case GemvKernel::kPlanes:
      return tuned_subgroup(target, "gemv_planes", type, tile_rows, false);
  }
  PUMICE_CHECK(false, "no such kernel");
}

std::string module_name(const WeightType& type, GemvKernel kernel) {
  return linear_module_name("gemv", type, gemv_kernel_name(kernel));
}

bool may_split(GemvKernel kernel) {
  return kernel == GemvKernel::kSubgroup || kernel == GemvKernel::kPlanes;
}

/// Whether this build has what a kernel is made of, and no self-test has rejected it.
bool is_usable(const vk::PipelineLibrary& pipelines, const WeightType& type, GemvKernel kernel) {
  const std::string module = module_name(type, kernel);
  return find_spirv(module).ok() && !pipelines.is_rejected(module) &&
         (kernel != GemvKernel::kPlanes || !pipelines.is_rejected(x_form_module(XForm::kPlanes)));
}

constexpr std::string_view kReduceModule = "gemv_reduce";
constexpr GemvReduceSpec kReduceSpec{.max_splits = Gemv::kMaxSplits};

// The most that busy_workgroups of gemv_splits may be.
constexpr uint32_t kMostBusyWorkgroups = 128;

/// What a split matrix is multiplied into: partial sums [splits][rows][n], its scratch.
LinearArgs into_partials(const LinearArgs& args) {
  LinearArgs partials = args;
  partials.y = args.scratch;
  partials.y_stride = args.weights.n_rows;
  partials.finish.added.reset();  // once they are added up
  return partials;
}

uint64_t partial_bytes(const LinearArgs& args, uint32_t splits) {
  return uint64_t{splits} * args.rows * args.weights.n_rows * 4;
}

/// Of `columns` from the part's first row on; an absent array points at y.
uint64_t column_address(const LinearArgs& args, const vk::BufferRange& range, uint64_t column) {
  return range.empty() ? args.y.address() : range.address() + column * 4;
}

/// What a product or its sums are told of what is done with them besides.
template <typename Push>
void add_to_push(const LinearArgs& args, uint32_t first_row, Push& push) {
  const LinearFinish::Added added = args.finish.added.value_or(LinearFinish::Added{});
  push.norm = column_address(args, added.norm, first_row);
  push.normed = column_address(args, added.normed, first_row);
  push.squares = column_address(args, added.squares, first_row / GEMV_SQUARES);
  push.finish = args.finish.added ? GEMV_ADDED : 0;
}

/// The same of a product, which may also be scaled.
void add_to_push(const LinearArgs& args, uint32_t first_row, GemvPush& push) {
  add_to_push<GemvPush>(args, first_row, push);
  if (!args.finish.scaled) return;
  push.squares = args.finish.scaled->squares.address();
  push.eps = args.finish.scaled->eps;
  push.finish |= GEMV_SCALED;
}

vk::Access reads_x_squares(const LinearArgs& args) {
  if (!args.finish.scaled) return {};
  const uint64_t n = LinearFinish::n_squares(args.weights.n_cols);
  return vk::reads(args.finish.scaled->squares.subrange(0, args.rows * n * 4));
}

/// What is written of `range`, a row of `n` numbers for each of y's, by the part's columns.
vk::Access added_writes(const LinearArgs& args, const vk::BufferRange& range, uint64_t n,
                        uint64_t first, uint64_t width) {
  if (range.empty()) return {};
  return vk::writes_columns(range.from(first * 4), args.rows, n * 4, width * 4);
}
vk::Access writes_normed(const LinearArgs& args, const WeightMatrixPart& part) {
  if (!args.finish.added) return {};
  return added_writes(args, args.finish.added->normed, args.weights.n_rows, part.first_row,
                      part.n_rows);
}
vk::Access writes_squares(const LinearArgs& args, const WeightMatrixPart& part) {
  if (!args.finish.added) return {};
  return added_writes(args, args.finish.added->squares,
                      LinearFinish::n_squares(args.weights.n_rows), part.first_row / GEMV_SQUARES,
                      LinearFinish::n_squares(part.n_rows));
}
vk::Access reads_norm(const LinearArgs& args) {
  return vk::reads(args.finish.added ? args.finish.added->norm : vk::BufferRange{});
}

/// y, which is added to where a norm follows.
vk::Access stores_y(const LinearArgs& args, const WeightMatrixPart& part, uint32_t copies) {
  vk::Access access = linear_writes_y(args, part, copies);
  if (args.finish.added) access.mode = vk::AccessMode::kReadWrite;
  return access;
}

/// What is read and written besides.
vk::Cost added_cost(const LinearArgs& args, uint64_t n) {
  if (!args.finish.added) return {};
  return {.bytes = args.rows * n * 8 + n * 4, .flops = args.rows * n * 4};
}

}  // namespace

std::string_view gemv_kernel_name(GemvKernel kernel) {
  constexpr std::string_view kNames[] = {"uniform", "subgroup", "broadcast", "planes"};
  return kNames[static_cast<size_t>(kernel)];
}

bool gemv_kernel_supported(const vk::DevicePlan& plan, GemvKernel kernel) {
  // Full subgroups make gl_SubgroupID a slice's number. Where a driver has one size, nothing has to
  // be required (Mesa's for NVIDIA allows no stage to).
  const bool has_slices =
      (plan.require_subgroup_size || plan.subgroup.min_size == plan.subgroup.max_size) &&
      plan.features.full_subgroups && plan.subgroup.basic && slice_subgroup_size(plan) != 0;
  switch (kernel) {
    case GemvKernel::kPortable:
      return true;
    case GemvKernel::kSubgroup:
      return has_slices && plan.subgroup.shuffle && plan.subgroup.ballot;
    case GemvKernel::kBroadcast:
      return broadcast_supported(plan);
    case GemvKernel::kPlanes:
      return has_slices && plan.features.integer_dot;
  }
  return false;
}

GemvSplits gemv_splits(const TuningTarget& target, GemvKernel kernel, const WeightType& type) {
  if (!may_split(kernel) || target.plan.device_class == vk::DeviceClass::kCpu) {
    return {};
  }
  const vk::TuningRow& row =
      take_row(target, "gemv_splits", vk::TuningFacts().set("type", tuning_word(type)));
  return {.busy_workgroups = row.number("busy_workgroups"),
          .least_bytes = row.number("least_bytes")};
}

uint32_t GemvSplits::of(const WeightType& type, uint32_t n_rows, uint32_t n_cols) const {
  const uint64_t groups = n_row_groups(n_rows);
  const uint64_t wanted = (busy_workgroups + groups - 1) / groups;
  const uint64_t worth = row_group_bytes(type, n_cols) / least_bytes;
  const uint64_t splits = std::min({wanted, worth, uint64_t{Gemv::kMaxSplits}});
  return static_cast<uint32_t>(std::bit_floor(std::max(splits, uint64_t{1})));
}

namespace {

vk::TuningFacts kernel_facts(const WeightType& type, XRoute path, Math math) {
  return vk::TuningFacts()
      .set("type", tuning_word(type))
      .set("x", path == XRoute::kBroadcast ? "broadcast" : "portable")
      .set("math", math_name(math));
}

/// Whether a kernel computes as precisely as `math` asks, whatever a row's conditions.
bool is_allowed(GemvKernel kernel, Math math) {
  return kernel != GemvKernel::kPlanes || math != Math::kF32;
}

/// Of the row that names it.
void note_kernel(const vk::PipelineLibrary& pipelines, GemvKernel kernel,
                 const vk::TuningFacts& facts) {
  for (const vk::TuningRow* row : tuning_rows(pipelines, "gemv", facts)) {
    if (row->choice == gemv_kernel_name(kernel)) return pipelines.note({facts, *row});
  }
}

}  // namespace

std::vector<GemvKernel> gemv_kernels(const TuningTarget& target, const WeightType& type,
                                     XRoute path, Math math) {
  std::vector<GemvKernel> kernels;
  for (const vk::TuningRow* row : tuning_rows(target, "gemv", kernel_facts(type, path, math))) {
    for (const GemvKernel kernel : {GemvKernel::kPortable, GemvKernel::kSubgroup,
                                    GemvKernel::kBroadcast, GemvKernel::kPlanes}) {
      if (row->choice == gemv_kernel_name(kernel) && gemv_kernel_supported(target.plan, kernel) &&
          is_allowed(kernel, math) && std::ranges::find(kernels, kernel) == kernels.end()) {
        kernels.push_back(kernel);
      }
    }
  }
  return kernels;
}

Result<Gemv> Gemv::plan(vk::PipelineLibrary& pipelines, const WeightType& type, XRoute path,
                        Math math) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  if (path == XRoute::kBroadcast && !broadcast_supported(device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "gemv: this device has no broadcast path; use the portable one");
  }
  const auto kernels = gemv_kernels(pipelines, type, path, math);
  const auto kernel = std::ranges::find_if(
      kernels, [&](GemvKernel candidate) { return is_usable(pipelines, type, candidate); });
  const GemvKernel chosen = kernel != kernels.end() ? *kernel : kernels.back();
  note_kernel(pipelines, chosen, kernel_facts(type, path, math));
  return plan(pipelines, type, chosen);
}

Result<Gemv> Gemv::plan(vk::PipelineLibrary& pipelines, const WeightType& type, GemvKernel kernel,
                        std::optional<uint32_t> finish_rows) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  if (!gemv_kernel_supported(device, kernel)) {
    return make_error(ErrorCode::kInvalidArgument, "gemv: this device cannot run the {} kernel",
                      gemv_kernel_name(kernel));
  }
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(module_name(type, kernel)));
  Gemv op;
  op.kernel_ = kernel;
  op.splits_ = gemv_splits(pipelines, kernel, type);
  if (kernel != GemvKernel::kPlanes) {
    op.finish_rows_ = finish_rows ? *finish_rows : tuned_finish_rows(pipelines, type, kernel);
  }
  for (size_t i = 0; i < kTileRows.size(); ++i) {
    const bool finishes = kTileRows[i] <= op.finish_rows_;
    const Tuned spec = tuned(pipelines, type, kernel, kTileRows[i], finishes);
    Variant& variant = op.variants_[i];
    PUMICE_TRY(variant.pipeline, pipelines.declare({.module = module,
                                                    .label = {},
                                                    .constants = spec.constants,
                                                    .push_bytes = sizeof(GemvPush),
                                                    .subgroup_size = spec.subgroup_size,
                                                    .full_subgroups = spec.full_subgroups}));
    variant.tile_rows = kTileRows[i];
    variant.tile_cols = spec.tile_cols;
    variant.n_slices = spec.n_slices;
  }
  if (may_split(kernel) && !pipelines.is_rejected(kReduceModule)) {
    PUMICE_TRY(op.reduce_, declare_kernel<GemvReducePush>(pipelines, kReduceModule, kReduceSpec));
  }
  return op;
}

XForm Gemv::x_form() const {
  return kernel_ == GemvKernel::kPlanes ? XForm::kPlanes : XForm::kFloats;
}

Status Gemv::force_splits(uint32_t splits) {
  PUMICE_CHECK(std::has_single_bit(splits) && splits <= kMaxSplits, "gemv cannot split K so often");
  if (splits > 1 && !may_split(kernel_)) {
    return make_error(ErrorCode::kInvalidArgument, "gemv: the {} kernel cannot split K",
                      gemv_kernel_name(kernel_));
  }
  if (splits > 1 && reduce_ == nullptr) {
    return make_error(ErrorCode::kSelfTestFailed, "gemv cannot split K: {} is rejected",
                      kReduceModule);
  }
  forced_splits_ = splits;
  return {};
}

uint32_t Gemv::splits_of(const WeightMatrix& matrix) const {
  if (reduce_ == nullptr) return 1;
  if (forced_splits_ != 0) return forced_splits_;
  return splits_.of(*matrix.type, matrix.n_rows, matrix.n_cols);
}

bool Gemv::can_gate(const WeightMatrix& matrix, uint32_t rows) const {
  // Slices are gates' and ups'; without slices a lane takes both, one after the other.
  const bool halves =
      kernel_ == GemvKernel::kBroadcast ||
      std::ranges::all_of(variants_, [](const Variant& v) { return v.n_slices % 2 == 0; });
  const bool is_one = matrix.parts.size() == 1 &&
                      matrix.parts.front().range.size_bytes / 2 <= UINT32_MAX;  // GemvPush::ups
  return rows <= finish_rows_ && halves && is_one && matrix.n_rows % (2 * kRowGroup) == 0 &&
         splits_of(matrix) == 1;
}

uint32_t Gemv::alike_rows() const {
  const auto other = std::ranges::find_if(
      variants_, [&](const Variant& v) { return v.n_slices != variants_[0].n_slices; });
  const uint32_t finished = finish_rows_ == 0 ? kMaxRows : finish_rows_;
  return std::min(std::prev(other)->tile_rows, finished);
}

uint64_t Gemv::scratch_bytes(const WeightMatrix& matrix, uint64_t rows) const {
  const uint64_t splits = splits_of(matrix);
  return splits > 1 ? splits * std::min<uint64_t>(rows, kMaxRows) * matrix.n_rows * 4 : 0;
}

uint64_t Gemv::max_scratch_bytes(uint64_t rows) {
  // Fewer workgroups than keep the device busy, and split until they are at most so many more.
  constexpr uint64_t kMostOutputs = 2 * kMostBusyWorkgroups * kRowGroup;
  return kMostOutputs * std::min<uint64_t>(rows, kMaxRows) * 4;
}

void Gemv::record_products(vk::Recorder& recorder, const LinearArgs& args) const {
  check_linear_args(args);
  PUMICE_CHECK(args.rows <= kMaxRows, "too many rows for gemv");
  const Variant& variant = *std::find_if(variants_.begin(), variants_.end(), [&](const Variant& v) {
    return v.tile_rows >= args.rows;
  });
  const uint32_t splits = splits_of(args.weights);
  const LinearArgs out = splits > 1 ? into_partials(args) : args;
  PUMICE_CHECK(splits == 1 || args.scratch.size_bytes >= partial_bytes(args, splits),
               "gemv lacks scratch for its partial sums");
  if (args.finish.gated) return record_gated(recorder, args, variant);
  PUMICE_CHECK(args.finish.none() || args.rows <= finish_rows_,
               "gemv only stores sums of so many rows");
  const uint32_t k = args.weights.n_cols;
  const bool in_planes = kernel_ == GemvKernel::kPlanes;
  const vk::Access reads_x =
      in_planes ? vk::reads(args.x.subrange(0, PlanesOfX::size_bytes(args.rows, k)))
                : linear_reads_x(args);
  for (const WeightMatrixPart& part : args.weights.parts) {
    for (const LinearShare& share :
         linear_shares(args, part, recorder.segment_limit(), variant.tile_cols,
                       in_planes ? vk::Arithmetic::kInt8Dot : vk::Arithmetic::kF32, splits)) {
      auto push = linear_push<GemvPush>(out, share.part);
      push.splits = splits;
      if (in_planes) push.x_stride = PlanesOfX::stride_bytes(k);
      push.tile_stride = variant.n_slices * splits;
      add_to_push(out, share.part.first_row, push);
      vk::Cost cost = share.cost;
      cost += added_cost(out, share.part.n_rows);
      recorder.dispatch(
          *variant.pipeline, push,
          {(share.part.n_rows + variant.tile_cols - 1) / variant.tile_cols, splits},
          {vk::reads(share.part.range), reads_x, stores_y(out, share.part, splits), reads_norm(out),
           writes_normed(out, share.part), writes_squares(out, share.part), reads_x_squares(out)},
          cost);
    }
  }
}

void Gemv::record_gated(vk::Recorder& recorder, const LinearArgs& args,
                        const Variant& variant) const {
  PUMICE_CHECK(can_gate(args.weights, args.rows) && !args.finish.added,
               "gemv cannot gate these sums");
  const WeightMatrixPart& all = args.weights.parts.front();
  const uint32_t n = args.n_outputs();
  // An output takes two of the matrix's rows.
  vk::SegmentLimit limit = recorder.segment_limit();
  limit.bytes /= 2;
  limit.flops /= 2;
  for (const LinearShare& share : linear_shares(args, args.weights.rows_of(all, 0, n), limit,
                                                variant.tile_cols, vk::Arithmetic::kF32)) {
    const uint32_t first = share.part.first_row;
    const WeightMatrixPart ups = args.weights.rows_of(all, n + first, share.part.n_rows);
    auto push = linear_push<GemvPush>(args, share.part);
    push.splits = 1;
    push.tile_stride = variant.n_slices / 2;
    add_to_push(args, first, push);
    push.finish |= GEMV_GATED | static_cast<uint32_t>(*args.finish.gated) << GEMV_ACTIVATION_SHIFT;
    push.ups = static_cast<uint32_t>(ups.range.address() - share.part.range.address());
    vk::Cost cost = share.cost;
    cost += {.bytes = ups.range.size_bytes,
             .flops = share.cost.flops + uint64_t{args.rows} * share.part.n_rows * 4};
    recorder.dispatch(*variant.pipeline, push,
                      {(share.part.n_rows + variant.tile_cols - 1) / variant.tile_cols, 1},
                      {vk::reads(share.part.range), vk::reads(ups.range), linear_reads_x(args),
                       linear_writes_y(args, share.part), reads_x_squares(args)},
                      cost);
  }
}

void Gemv::record_sums(vk::Recorder& recorder, const LinearArgs& args) const {
  const uint32_t splits = splits_of(args.weights);
  if (splits == 1) return;
  const uint32_t n = args.weights.n_rows;
  GemvReducePush push;
  push.partials = args.scratch.address();
  push.y = args.y.address();
  push.rows = args.rows;
  push.n = n;
  push.y_stride = args.y_stride;
  push.splits = splits;
  add_to_push(args, 0, push);
  const uint64_t bytes = partial_bytes(args, splits);
  const WeightMatrixPart all{.range = {}, .first_row = 0, .n_rows = n};
  // The additions of partial sums are among the flops of the products.
  vk::Cost cost{.bytes = bytes + uint64_t{args.rows} * n * 4, .flops = 0};
  cost += added_cost(args, n);
  recorder.dispatch(*reduce_, push,
                    {(n + kReduceSpec.workgroup_size - 1) / kReduceSpec.workgroup_size, args.rows},
                    {vk::reads(args.scratch.subrange(0, bytes)), stores_y(args, all, 1),
                     reads_norm(args), writes_normed(args, all), writes_squares(args, all)},
                    cost);
}

}  // namespace pumice::ops
