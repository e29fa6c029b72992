#include "shaders/quantize_x/quantize_x.hpp"

#include <algorithm>

#include "shaders/common/row_shares.hpp"
#include "shaders/spirv.hpp"

namespace pumice::ops {

uint64_t x_form_bytes(XForm form, uint64_t rows, uint32_t k) {
  switch (form) {
    case XForm::kFloats:
      return 0;
    case XForm::kHalves:
      return HalvedX::size_bytes(rows, k);
    case XForm::kInt8:
      return QuantizedX::size_bytes(rows, k);
    case XForm::kPlanes:
      return PlanesOfX::size_bytes(rows, k);
  }
  PUMICE_CHECK(false, "no such form");
}

std::string_view x_form_module(XForm form) {
  PUMICE_CHECK(form != XForm::kFloats, "floats are what x is");
  if (form == XForm::kInt8) return "quantize_x";
  return form == XForm::kHalves ? "quantize_x.halves" : "quantize_x.planes";
}

Result<QuantizeX> QuantizeX::plan(vk::PipelineLibrary& pipelines, XForm form) {
  const QuantizeXSpec spec;
  QuantizeX op;
  op.form_ = form;
  op.workgroup_size_ = spec.workgroup_size;
  PUMICE_TRY(op.pipeline_, declare_kernel<QuantizeXPush>(pipelines, x_form_module(form), spec));
  return op;
}

void QuantizeX::record(vk::Recorder& recorder, const Args& args) const {
  const bool halves = form_ == XForm::kHalves;
  PUMICE_CHECK(args.k % (halves ? 4 : QuantizedX::kBlockCols) == 0, "columns must be whole blocks");
  PUMICE_CHECK(args.x_stride % 4 == 0 && args.x_stride >= args.k && args.x.address() % 16 == 0,
               "rows of x must be 16-byte aligned");
  QuantizeXPush push;
  push.x = args.x.address();
  push.quants = args.y.address();
  if (form_ == XForm::kInt8) {
    push.scales = args.y.address() + QuantizedX::scales_offset(args.rows, args.k);
  }
  push.rows = args.rows;
  push.k = args.k;
  push.x_stride = args.x_stride;
  const uint64_t floats = uint64_t{args.rows - 1} * args.x_stride + args.k;
  const uint64_t size_bytes = x_form_bytes(form_, args.rows, args.k);
  const uint32_t row_lanes = halves ? HalvedX::stride(args.k) / 8 : args.k / 4;
  const uint32_t row_groups = (row_lanes + workgroup_size_ - 1) / workgroup_size_;
  dispatch_rows(
      recorder, *pipeline_, push, args.rows,
      {vk::reads(args.x.subrange(0, floats * 4)), vk::writes(args.y.subrange(0, size_bytes))},
      [&](uint32_t rows) {
        const uint64_t elements = uint64_t{rows} * args.k;
        return vk::Cost{.bytes = elements * 4 + x_form_bytes(form_, rows, args.k),
                        .flops = elements * 3};
      },
      [&](QuantizeXPush& moved, uint64_t first, uint32_t rows) {
        moved.x += first * args.x_stride * 4;
        if (form_ == XForm::kInt8) {  // blocks of all rows, one after the other
          moved.quants += first * QuantizedX::kBlockCols;
          moved.scales += first * 8;
        } else {
          moved.quants += x_form_bytes(form_, first, args.k);
        }
        return vk::Grid{row_groups, rows};
      });
}

}  // namespace pumice::ops
