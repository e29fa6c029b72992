#include "shaders/elementwise/elementwise.hpp"

#include <iterator>

#include "shaders/common/row_shares.hpp"
#include "shaders/elementwise/elementwise.h"
#include "shaders/spirv.hpp"

namespace pumice::ops {
namespace {

using Kind = Elementwise::Kind;

bool has_b(Kind kind) {
  return kind == Kind::kAdd || kind == Kind::kMul || kind == Kind::kMulGroups ||
         kind == Kind::kAddBias;
}

/// A kind's value for the kernel, and the operations of one element; in the order of kinds.
struct KernelKind {
  uint32_t value;
  uint32_t flops;
};

constexpr KernelKind kKernelKinds[] = {
    {ELEMENTWISE_ADD, 1},          // kAdd
    {ELEMENTWISE_MUL, 1},          // kMul
    {ELEMENTWISE_MUL_GROUPS, 1},   // kMulGroups
    {ELEMENTWISE_ADD, 1},          // kAddBias
    {ACTIVATION_SILU, 3},          // kSilu
    {ACTIVATION_GELU, 4},          // kGelu
    {ACTIVATION_GELU_TANH, 8},     // kGeluTanh
    {ACTIVATION_SIGMOID, 3},       // kSigmoid
    {ACTIVATION_RELU, 1},          // kRelu
    {ELEMENTWISE_SCALE, 1},        // kScale
    {ELEMENTWISE_SOFT_CAP, 2},     // kSoftCap
    {ELEMENTWISE_AT_MOST, 1},      // kAtMost
    {ELEMENTWISE_WITHIN, 2},       // kWithin
    {ELEMENTWISE_COPY, 0},         // kCopy
    {ELEMENTWISE_COPY_GROUPS, 0},  // kCopyGroups
    {ELEMENTWISE_XIELU, 5},        // kXielu
};
static_assert(std::size(kKernelKinds) == static_cast<size_t>(Kind::kXielu) + 1);

const KernelKind& kernel_kind(Kind kind) { return kKernelKinds[static_cast<size_t>(kind)]; }

bool in_quads(const vk::BufferRange& range, uint32_t stride) {
  return stride % 4 == 0 && range.address() % 16 == 0;
}

/// The n columns that are read. Which rows they are of an index may say, so all of the range
/// counts.
vk::Access reads_columns(const vk::BufferRange& range, uint32_t stride, uint32_t n,
                         const Elementwise::Args& args) {
  if (!args.row_index.empty()) return vk::reads(range);
  const uint64_t width = uint64_t{n} * 4;
  if (stride == 0) return vk::reads(range.subrange(0, width));
  vk::Access access = vk::writes_columns(range, args.rows, uint64_t{stride} * 4, width);
  access.mode = vk::AccessMode::kRead;
  return access;
}

}  // namespace

Result<Elementwise> Elementwise::plan(vk::PipelineLibrary& pipelines, Kind kind) {
  const ElementwiseSpec spec{.kind = kernel_kind(kind).value};
  Elementwise op;
  op.kind_ = kind;
  op.columns_per_workgroup_ = 4 * spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, declare_kernel<ElementwisePush>(pipelines, "elementwise", spec));
  return op;
}

void Elementwise::record(vk::Recorder& recorder, const Args& args) const {
  const bool two = has_b(kind_);
  const bool gather = !args.row_index.empty();
  const bool groups = kind_ == Kind::kMulGroups;
  PUMICE_CHECK(args.rows > 0 && args.n > 0, "elementwise of nothing");
  PUMICE_CHECK(kind_ != Kind::kAddBias || args.b_stride == 0, "a bias is one row");
  PUMICE_CHECK(args.b_group > 0 && args.n % args.b_group == 0, "groups do not divide a row");
  PUMICE_CHECK(args.rows == 1 || args.y_stride >= args.n, "rows of y overlap");
  const vk::BufferRange b = two ? args.b : vk::BufferRange{};
  const uint32_t b_stride = two ? args.b_stride : 0;
  ElementwisePush push;
  push.a = args.a.address();
  push.b = (two ? b : args.a).address();
  push.y = args.y.address();
  push.row_index = (gather ? args.row_index : args.a).address();
  push.a_stride = args.a_stride;
  push.b_stride = b_stride;
  push.y_stride = args.y_stride;
  push.n = args.n;
  push.factor = args.factor;
  push.alpha_p = args.xielu.alpha_p;
  push.alpha_n = args.xielu.alpha_n;
  push.eps = args.xielu.eps;
  push.gather = gather;
  const bool picks = kind_ == Kind::kCopyGroups;
  PUMICE_CHECK(!picks || (args.n % args.y_group == 0 && args.y_group <= args.a_group),
               "groups of y are not parts of those of a");
  push.group = picks ? args.y_group : args.b_group;
  push.a_group = args.a_group;
  const bool b_in_quads = groups  ? args.b_group % 4 == 0
                          : picks ? args.y_group % 4 == 0 && args.a_group % 4 == 0
                                  : !two || in_quads(b, b_stride);
  push.quads = args.n % 4 == 0 && in_quads(args.a, args.a_stride) && b_in_quads &&
               in_quads(args.y, args.y_stride);
  const uint32_t a_columns =
      picks ? (args.n / args.y_group - 1) * args.a_group + args.y_group : args.n;
  const uint32_t b_columns = groups ? args.n / args.b_group : args.n;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {reads_columns(args.a, args.a_stride, a_columns, args),
       two ? reads_columns(b, b_stride, b_columns, args) : vk::Access{}, vk::reads(args.row_index),
       vk::writes_columns(args.y, args.rows, uint64_t{args.y_stride} * 4, uint64_t{args.n} * 4)},
      [&](uint64_t rows) {
        const uint64_t b_elements = !two ? 0 : b_columns * (b_stride == 0 ? 1 : rows);
        return vk::Cost{.bytes = 8 * rows * args.n + 4 * b_elements,
                        .flops = rows * args.n * kernel_kind(kind_).flops};
      },
      [&](ElementwisePush& moved, uint64_t first, uint32_t rows) {
        if (gather) {
          moved.row_index += first * 4;
        } else {
          moved.a += first * args.a_stride * 4;
          moved.b += first * b_stride * 4;
        }
        moved.y += first * args.y_stride * 4;
        return vk::Grid{(args.n + columns_per_workgroup_ - 1) / columns_per_workgroup_, rows};
      });
}

}  // namespace pumice::ops
