#include "shaders/peak/peak.hpp"

#include <algorithm>

#include "shaders/peak/peak_arithmetic.h"
#include "shaders/peak/peak_matrix.h"
#include "shaders/peak/peak_memory.h"
#include "shaders/peak/peak_touch.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

constexpr uint64_t kWorkgroupBytes = PeakMemory::kInvocationBytes * PeakMemory::kWorkgroupSize;

struct ArithmeticKind {
  const char* module;
  vk::Arithmetic arithmetic;
  uint64_t step_flops;  ///< of one step of one chain: two halves, or four bytes, at a time
};

const ArithmeticKind& of(PeakArithmetic::Kind kind) {
  static constexpr ArithmeticKind kKinds[] = {{"peak.f32", vk::Arithmetic::kF32, 2},
                                              {"peak.f16", vk::Arithmetic::kF16, 4},
                                              {"peak.i8", vk::Arithmetic::kInt8Dot, 8}};
  return kKinds[static_cast<size_t>(kind)];
}

struct MatrixType {
  const char* module;
  vk::ComponentType factor;
  vk::ComponentType sum;
  uint32_t factor_bytes;
  uint32_t sum_bytes;
  vk::Arithmetic arithmetic;
};

const MatrixType& matrix_type(PeakMatrix::Type type) {
  using enum vk::ComponentType;
  using vk::Arithmetic;
  static constexpr MatrixType kMatrixTypes[] = {
      {"peak.matrix.f16.f16", kF16, kF16, 2, 2, Arithmetic::kMatrixF16F16},
      {"peak.matrix.f16.f32", kF16, kF32, 2, 4, Arithmetic::kMatrixF16F32},
      {"peak.matrix.bf16.f32", kBf16, kF32, 2, 4, Arithmetic::kMatrixBf16F32},
      {"peak.matrix.s8.s32", kS8, kS32, 1, 4, Arithmetic::kMatrixS8S32},
  };
  return kMatrixTypes[static_cast<size_t>(type)];
}

}  // namespace

Result<PeakMemory> PeakMemory::plan(vk::PipelineLibrary& pipelines, Kind kind) {
  PUMICE_TRY(const vk::ShaderModule module,
             find_spirv(kind == Kind::kRead ? "peak.read" : "peak.copy"));
  PeakMemory op;
  op.kind_ = kind;
  PUMICE_TRY(op.pipeline_,
             declare_kernel<PeakMemoryPush>(pipelines, module,
                                            PeakMemorySpec{.workgroup_size = kWorkgroupSize}));
  return op;
}

uint64_t PeakMemory::source_bytes(uint64_t available_bytes) {
  constexpr uint64_t kMaxWorkgroups = 65535;  // of a dispatch, on every device
  return std::min(available_bytes / kWorkgroupBytes, kMaxWorkgroups) * kWorkgroupBytes;
}

void PeakMemory::record(vk::Recorder& recorder, const Args& args) const {
  const uint64_t bytes = args.source.size_bytes;
  PUMICE_CHECK(bytes > 0 && bytes == source_bytes(bytes), "whole workgroups");
  PeakMemoryPush push;
  push.source = args.source.address();
  push.target = args.target.address();
  push.n_passes = kPasses;
  const uint64_t written = kind_ == Kind::kRead ? sums_bytes(bytes) : bytes;
  recorder.dispatch(*pipeline_, push, {static_cast<uint32_t>(bytes / kWorkgroupBytes)},
                    {vk::reads(args.source), vk::writes(args.target.subrange(0, written))},
                    {.bytes = bytes + written});
}

bool PeakArithmetic::supported(const vk::DevicePlan& plan, Kind kind) {
  if (!find_spirv(of(kind).module).ok()) return false;
  if (kind == Kind::kF16) return plan.features.shader_float16;
  if (kind == Kind::kInt8Dot) return plan.features.integer_dot;
  return true;
}

Result<PeakArithmetic> PeakArithmetic::plan(vk::PipelineLibrary& pipelines, Kind kind) {
  if (!supported(pipelines.device()->plan(), kind)) {
    return make_error(ErrorCode::kInvalidArgument, "{}: not in this build or on this device",
                      of(kind).module);
  }
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(of(kind).module));
  const PeakArithmeticSpec spec{.workgroup_size = kWorkgroupSize};
  PeakArithmetic op;
  op.kind_ = kind;
  PUMICE_TRY(op.pipeline_, declare_kernel<PeakArithmeticPush>(pipelines, module, spec));
  return op;
}

void PeakArithmetic::record(vk::Recorder& recorder, const Args& args) const {
  PeakArithmeticPush push;
  push.factors = args.factors.address();
  push.y = args.y.address();
  push.n_iterations = args.n_iterations;
  const uint64_t invocations = uint64_t{args.n_workgroups} * kWorkgroupSize;
  const uint64_t steps = uint64_t{args.n_iterations} * kStepsPerIteration * kChains;
  recorder.dispatch(*pipeline_, push, {args.n_workgroups},
                    {vk::reads(args.factors), vk::writes(args.y.subrange(0, invocations * 4))},
                    {.bytes = invocations * 4,
                     .flops = invocations * steps * of(kind_).step_flops,
                     .arithmetic = of(kind_).arithmetic});
}

std::string_view PeakMatrix::module_name(Type type) { return matrix_type(type).module; }

std::vector<vk::MatrixShape> PeakMatrix::shapes(const vk::DevicePlan& plan, Type type) {
  const MatrixType& types = matrix_type(type);
  std::vector<vk::MatrixShape> shapes;
  if (!find_spirv(types.module).ok() || !plan.features.cooperative_matrix) return shapes;
  if (plan.matrix_subgroup_size == 0 || !plan.features.full_subgroups) return shapes;
  for (const vk::MatrixShape& shape : plan.matrix_shapes) {
    if (shape.a == types.factor && shape.b == types.factor && shape.c == types.sum &&
        shape.result == types.sum && !shape.saturating) {
      shapes.push_back(shape);
    }
  }
  return shapes;
}

vk::Arithmetic PeakMatrix::arithmetic(Type type) { return matrix_type(type).arithmetic; }

Result<PeakMatrix> PeakMatrix::plan(vk::PipelineLibrary& pipelines, Type type,
                                    const vk::MatrixShape& shape) {
  PUMICE_TRY(const vk::ShaderModule module, find_spirv(matrix_type(type).module));
  const uint32_t subgroup_size = pipelines.device()->plan().matrix_subgroup_size;
  const PeakMatrixSpec spec{.workgroup_size = kSubgroups * subgroup_size,
                            .matrix_m = shape.m,
                            .matrix_n = shape.n,
                            .matrix_k = shape.k};
  PeakMatrix op;
  op.type_ = type;
  op.shape_ = shape;
  PUMICE_TRY(op.pipeline_, pipelines.declare({.module = module,
                                              .constants = vk::constants_of(spec),
                                              .push_bytes = sizeof(PeakMatrixPush),
                                              .subgroup_size = subgroup_size,
                                              .full_subgroups = true}));
  return op;
}

uint64_t PeakMatrix::factors_bytes() const {
  return uint64_t{2} * shape_.k * (shape_.m + shape_.n) * matrix_type(type_).factor_bytes;
}

uint64_t PeakMatrix::y_bytes(uint32_t n_workgroups) const {
  return uint64_t{n_workgroups} * kSubgroups * shape_.m * shape_.n * matrix_type(type_).sum_bytes;
}

void PeakMatrix::record(vk::Recorder& recorder, const Args& args) const {
  PeakMatrixPush push;
  push.factors = args.factors.address();
  push.y = args.y.address();
  push.n_iterations = args.n_iterations;
  const uint64_t products =
      uint64_t{args.n_workgroups} * kSubgroups * args.n_iterations * kStepsPerIteration * kChains;
  recorder.dispatch(*pipeline_, push, {args.n_workgroups},
                    {vk::reads(args.factors.subrange(0, factors_bytes())),
                     vk::writes(args.y.subrange(0, y_bytes(args.n_workgroups)))},
                    {.bytes = factors_bytes() + y_bytes(args.n_workgroups),
                     .flops = products * 2 * shape_.m * shape_.n * shape_.k,
                     .arithmetic = arithmetic(type_)});
}

Result<PeakTouch> PeakTouch::plan(vk::PipelineLibrary& pipelines) {
  PeakTouch op;
  PUMICE_TRY(op.pipeline_, declare_kernel<PeakTouchPush>(pipelines, "peak.touch", PeakTouchSpec{}));
  return op;
}

void PeakTouch::record(vk::Recorder& recorder, const vk::BufferRange& word, uint32_t value) const {
  PeakTouchPush push;
  push.y = word.address();
  push.value = value;
  recorder.dispatch(*pipeline_, push, {1}, {vk::writes(word.subrange(0, 4))}, {.bytes = 4});
}

}  // namespace pumice::ops
