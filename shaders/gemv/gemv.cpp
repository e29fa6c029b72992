#include "shaders/gemv/gemv.hpp"

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
constexpr std::array<uint32_t, 4> kTileRows = {1, 2, 4, 8};

/// A pipeline for up to `tile_rows` rows of x.
struct Tuned {
  std::vector<std::pair<uint32_t, uint32_t>> constants;
  uint32_t tile_cols = 0;      // columns of y of a workgroup
  uint32_t subgroup_size = 0;  // to require
  bool full_subgroups = false;
};

Tuned tuned_broadcast(const vk::DevicePlan& plan, uint32_t tile_rows) {
  // Columns of a lane share the loads and shuffles of x. Tokens/s of one stream, 128 M parameters
  // Q4_K, lavapipe 25.0.7 / 26.1.6 / 26.2.6: 4 57 / 69 / 69, 2 51 / 60 / 62; the bundled model,
  // whose matrices are one to three workgroups of 4, is as fast with either.
  const GemvBroadcastSpec spec{.workgroup_size = 32, .tile_rows = tile_rows, .lane_cols = 4};
  return {.constants = linear_constants(plan, XPath::kBroadcast, spec),
          .tile_cols = spec.workgroup_size * spec.lane_cols,
          .subgroup_size = plan.subgroup_size};
}

/// Of 128 (Adreno), whose registers are shared by so many that a workgroup of 512 leaves an
/// invocation 24: Mesa's compiler for adreno-750 then spilled 85 to 439 of gemv.q4_k.
bool has_wide_subgroups(const vk::DevicePlan& plan) { return plan.subgroup.max_size >= 128; }

/// The largest workgroup of whole slices. 4096 weight rows are 128 workgroups, so that 16 slices of
/// K make 2048 subgroups of 32. The sums of 8 rows and 16 slices are 16 KiB of shared memory, the
/// floor. Not measured yet.
uint32_t gpu_workgroup_size(const vk::DevicePlan& plan) {
  const uint32_t most = has_wide_subgroups(plan) ? 128 : 512;
  return std::min(most, plan.max_workgroup_invocations / kSliceLanes * kSliceLanes);
}

Tuned tuned_portable(const vk::DevicePlan& plan, const WeightType& type, uint32_t tile_rows) {
  GemvSpec spec{.workgroup_size = 128, .tile_rows = tile_rows};
  if (plan.device_class != vk::DeviceClass::kCpu) {
    // Several blocks at once put several 16-byte loads of each lane in flight. Not measured yet.
    const uint32_t tile_blocks = type.layout.tile_cols / kWeightBlockCols;
    spec.workgroup_size = gpu_workgroup_size(plan);
    spec.unroll = has_wide_subgroups(plan) && tile_rows > 1
                      ? 1
                      : std::min(tile_blocks, tile_rows <= 2 ? 8u : 4u);
  }
  return {.constants = linear_constants(plan, XPath::kPortable, spec),
          .tile_cols = kSliceLanes * spec.lane_cols};
}

/// The narrowest of the device: where a thread's registers are shared by its lanes (Intel), that
/// leaves each the most. gemv.q4_k, 8 rows, Mesa's compiler for Intel dg2: 0 spills with 8 lanes,
/// 67 with 16, 745 with 32. AMD's and NVIDIA's narrowest is 32. 0: none that the kernel can run
/// with.
uint32_t slice_subgroup_size(const vk::DevicePlan& plan) {
  const uint32_t size = std::max(plan.subgroup.min_size, 8u);
  return size <= std::min(plan.subgroup.max_size, kSliceLanes) ? size : 0;
}

Tuned tuned_subgroup(const vk::DevicePlan& plan, uint32_t tile_rows) {
  GemvSubgroupSpec spec{.workgroup_size = gpu_workgroup_size(plan),
                        .tile_rows = tile_rows,
                        .subgroup_size = slice_subgroup_size(plan)};
  if (plan.subgroup.max_workgroup_subgroups != 0) {
    const uint32_t most = plan.subgroup.max_workgroup_subgroups * spec.subgroup_size;
    spec.workgroup_size = std::min(spec.workgroup_size, most / kSliceLanes * kSliceLanes);
  }
  return {.constants = vk::constants_of(spec),
          .tile_cols = kSliceLanes,
          .subgroup_size = spec.subgroup_size,
          .full_subgroups = true};
}

Tuned tuned(const vk::DevicePlan& plan, const WeightType& type, GemvKernel kernel,
            uint32_t tile_rows) {
  switch (kernel) {
    case GemvKernel::kPortable:
      return tuned_portable(plan, type, tile_rows);
    case GemvKernel::kSubgroup:
      return tuned_subgroup(plan, tile_rows);
    case GemvKernel::kBroadcast:
      return tuned_broadcast(plan, tile_rows);
  }
  PUMICE_CHECK(false, "no such kernel");
}

std::string module_name(const WeightType& type, GemvKernel kernel) {
  return linear_module_name("gemv", type, gemv_kernel_name(kernel));
}

constexpr std::string_view kReduceModule = "gemv_reduce";
constexpr GemvReduceSpec kReduceSpec{.max_splits = Gemv::kMaxSplits};

/// Workgroups that keep every core of a device busy. What Vulkan says of a device does not tell how
/// many cores it has: large GPUs have 60 to 140 of what runs a workgroup, those that share their
/// memory with the host 4 to 40.
constexpr uint32_t kMostBusyWorkgroups = 128;
uint32_t busy_workgroups(const vk::DevicePlan& plan) {
  return plan.unified_memory ? 32 : kMostBusyWorkgroups;
}

/// The least weights of a split. Two splits save a workgroup half of its weights and cost a
/// dispatch and a barrier, about 2 us; by the instructions of compiled kernels a core gets through
/// 16 to 32 bytes of 4-bit weights in a nanosecond. Not measured yet.
constexpr uint64_t kLeastSplitBytes = uint64_t{32} << 10;

/// What a split matrix is multiplied into: partial sums [splits][rows][n], its scratch.
LinearArgs into_partials(const LinearArgs& args) {
  LinearArgs partials = args;
  partials.y = args.scratch;
  partials.y_stride = args.weights.n_rows;
  return partials;
}

uint64_t partial_bytes(const LinearArgs& args, uint32_t splits) {
  return uint64_t{splits} * args.rows * args.weights.n_rows * 4;
}

}  // namespace

std::string_view gemv_kernel_name(GemvKernel kernel) {
  switch (kernel) {
    case GemvKernel::kPortable:
      return "uniform";
    case GemvKernel::kSubgroup:
      return "subgroup";
    case GemvKernel::kBroadcast:
      return "broadcast";
  }
  return "?";
}

bool gemv_kernel_supported(const vk::DevicePlan& plan, GemvKernel kernel) {
  switch (kernel) {
    case GemvKernel::kPortable:
      return true;
    case GemvKernel::kSubgroup:
      // Full subgroups make gl_SubgroupID a slice's number. Where a driver has one size, nothing
      // has to be required (Mesa's for NVIDIA allows no stage to).
      return (plan.require_subgroup_size || plan.subgroup.min_size == plan.subgroup.max_size) &&
             plan.features.full_subgroups && plan.subgroup.basic && plan.subgroup.shuffle &&
             plan.subgroup.ballot && slice_subgroup_size(plan) != 0;
    case GemvKernel::kBroadcast:
      return broadcast_supported(plan);
  }
  return false;
}

uint32_t gemv_splits(const vk::DevicePlan& plan, GemvKernel kernel, const WeightType& type,
                     uint32_t n_rows, uint32_t n_cols) {
  if (kernel != GemvKernel::kSubgroup || plan.device_class == vk::DeviceClass::kCpu) return 1;
  const uint64_t groups = n_row_groups(n_rows);
  const uint64_t wanted = (busy_workgroups(plan) + groups - 1) / groups;
  const uint64_t worth = row_group_bytes(type, n_cols) / kLeastSplitBytes;
  const uint64_t splits = std::min({wanted, worth, uint64_t{Gemv::kMaxSplits}});
  return static_cast<uint32_t>(std::bit_floor(std::max(splits, uint64_t{1})));
}

std::vector<GemvKernel> gemv_kernels(const vk::DevicePlan& plan, XPath path) {
  std::vector<GemvKernel> kernels;
  if (path == XPath::kBroadcast) {
    kernels = {GemvKernel::kBroadcast, GemvKernel::kPortable};
  } else if (plan.device_class == vk::DeviceClass::kCpu) {
    kernels = {GemvKernel::kPortable, GemvKernel::kBroadcast};
  } else {
    kernels = {GemvKernel::kSubgroup, GemvKernel::kPortable};
  }
  std::erase_if(kernels, [&](GemvKernel k) { return !gemv_kernel_supported(plan, k); });
  return kernels;
}

Result<Gemv> Gemv::plan(vk::PipelineLibrary& pipelines, const WeightType& type, XPath path) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  if (path == XPath::kBroadcast && !broadcast_supported(device)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "gemv: this device has no broadcast path; use the portable one");
  }
  const auto kernels = gemv_kernels(device, path);
  const auto kernel = std::ranges::find_if(kernels, [&](GemvKernel candidate) {
    return !pipelines.is_rejected(module_name(type, candidate));
  });
  return plan(pipelines, type, kernel != kernels.end() ? *kernel : kernels.front());
}

Result<Gemv> Gemv::plan(vk::PipelineLibrary& pipelines, const WeightType& type, GemvKernel kernel) {
  const vk::DevicePlan& device = pipelines.device()->plan();
  if (!gemv_kernel_supported(device, kernel)) {
    return make_error(ErrorCode::kInvalidArgument, "gemv: this device cannot run the {} kernel",
                      gemv_kernel_name(kernel));
  }
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(module_name(type, kernel)));
  Gemv op;
  op.kernel_ = kernel;
  op.plan_ = &device;
  for (size_t i = 0; i < kTileRows.size(); ++i) {
    const Tuned spec = tuned(device, type, kernel, kTileRows[i]);
    Variant& variant = op.variants_[i];
    PUMICE_TRY(variant.pipeline, pipelines.declare({.module = module,
                                                    .label = {},
                                                    .constants = spec.constants,
                                                    .push_bytes = sizeof(GemvPush),
                                                    .subgroup_size = spec.subgroup_size,
                                                    .full_subgroups = spec.full_subgroups}));
    variant.tile_rows = kTileRows[i];
    variant.tile_cols = spec.tile_cols;
  }
  if (kernel == GemvKernel::kSubgroup && !pipelines.is_rejected(kReduceModule)) {
    PUMICE_TRY(const vk::ShaderModule reduce, find_spirv(kReduceModule));
    PUMICE_TRY(op.reduce_, pipelines.declare({.module = reduce,
                                              .label = {},
                                              .constants = vk::constants_of(kReduceSpec),
                                              .push_bytes = sizeof(GemvReducePush)}));
  }
  return op;
}

Status Gemv::force_splits(uint32_t splits) {
  PUMICE_CHECK(std::has_single_bit(splits) && splits <= kMaxSplits, "gemv cannot split K so often");
  if (splits > 1 && kernel_ != GemvKernel::kSubgroup) {
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
  return gemv_splits(*plan_, kernel_, *matrix.type, matrix.n_rows, matrix.n_cols);
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
  for (const WeightMatrixPart& part : args.weights.parts) {
    for (const LinearShare& share :
         linear_shares(args, part, recorder.segment_limit(), variant.tile_cols,
                       vk::Arithmetic::kF32, splits)) {
      auto push = linear_push<GemvPush>(out, share.part);
      push.splits = splits;
      recorder.dispatch(*variant.pipeline, push,
                        {(share.part.n_rows + variant.tile_cols - 1) / variant.tile_cols, splits},
                        {vk::reads(share.part.range), linear_reads_x(args),
                         linear_writes_y(out, share.part, splits)},
                        share.cost);
    }
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
  const uint64_t bytes = partial_bytes(args, splits);
  // The additions are among the flops of the products.
  recorder.dispatch(*reduce_, push,
                    {(n + kReduceSpec.workgroup_size - 1) / kReduceSpec.workgroup_size, args.rows},
                    {vk::reads(args.scratch.subrange(0, bytes)),
                     linear_writes_y(args, {.range = {}, .first_row = 0, .n_rows = n})},
                    {.bytes = bytes + uint64_t{args.rows} * n * 4, .flops = 0});
}

}  // namespace pumice::ops
