#include "shaders/linear/linear.hpp"

#include <algorithm>

namespace pumice::ops {
namespace {

/// Whether 8-bit products exist here at all: weights of float types have none anyway, and a model
/// of nothing else would otherwise be computed in fp32 without a word.
Status check_integers(const vk::PipelineLibrary& pipelines, const GemmVariant& variant) {
  const WeightType& type = weight_type("Q8_0");
  const std::string name = linear_module_name("gemm", type, variant.name);
  const std::string obstacle = gemm_obstacle(pipelines, name, type, variant);
  if (obstacle.empty()) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      "--math i8: no 8-bit matrix products on this device ({}: {}); leave --math out, or use f32",
      name, obstacle);
}

}  // namespace

Result<Linear> Linear::plan(vk::PipelineLibrary& pipelines,
                            std::span<const WeightType* const> types, Math math, XRoute path) {
  if (math == Math::kI8) {
    PUMICE_TRY_STATUS(check_integers(pipelines, gemm_variants(pipelines, math, path).front()));
  }
  Linear op;
  op.gemv_rows_ = tuned_gemv_rows(pipelines);
  for (const WeightType* type : types) {
    if (op.kernels_.contains(type)) continue;
    const bool in_floats = math == Math::kI8 && !type->has_integers();
    const Result<Gemm> gemm = Gemm::plan(
        pipelines, *type, gemm_variants(pipelines, in_floats ? Math::kAuto : math, path, type));
    if (!gemm.ok()) {
      return make_error(gemm.error().code, "--math {}: {}", math_name(math), gemm.error().message);
    }
    PUMICE_TRY(const Gemv gemv, Gemv::plan(pipelines, *type, path, math));
    for (const XForm form : {gemm->x_form(), gemv.x_form()}) {
      if (form == XForm::kFloats || op.quantize_x_.contains(form)) continue;
      PUMICE_TRY(op.quantize_x_[form], QuantizeX::plan(pipelines, form));
    }
    op.kernels_.emplace(type, Kernels{*gemm, gemv});
  }
  op.finish_rows_ = Gemv::kMaxRows;
  for (const auto& [type, kernels] : op.kernels_) {
    op.finish_rows_ = std::min(op.finish_rows_, kernels.gemv.finish_rows());
  }
  return op;
}

uint32_t Linear::tuned_gemv_rows(const TuningTarget& target) {
  return take_row(target, "linear").number("gemv_rows");
}

uint32_t Linear::alike_rows() const {
  if (gemv_rows_ == 0) return UINT32_MAX;
  uint32_t rows = gemv_rows_;
  for (const auto& [type, kernels] : kernels_) rows = std::min(rows, kernels.gemv.alike_rows());
  return rows;
}

const Linear::Kernels& Linear::kernels_of(const WeightType& type) const {
  const auto kernels = kernels_.find(&type);
  PUMICE_CHECK(kernels != kernels_.end(), "linear was not planned for this weight type");
  return kernels->second;
}

std::vector<const vk::Pipeline*> Linear::gemm_pipelines() const {
  std::vector<const vk::Pipeline*> all;
  for (const auto& [type, kernels] : kernels_) {
    const auto some = kernels.gemm.pipelines();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

uint64_t Linear::forms_bytes(uint64_t rows, uint32_t n_cols, std::optional<XForm> end) const {
  uint64_t bytes = 0;
  for (const auto& [form, quantize_x] : quantize_x_) {
    const bool is_read = (form == XForm::kPlanes) == (rows <= gemv_rows_);
    if (is_read && (!end || form < *end)) bytes += x_form_bytes(form, rows, n_cols);
  }
  return bytes;
}

vk::BufferRange Linear::x_in(XForm form, const Args& args) const {
  if (form == XForm::kFloats) return args.x;
  return args.scratch.from(forms_bytes(args.rows, args.weights.n_cols, form));
}

uint64_t Linear::scratch_bytes(uint64_t rows, std::span<const WeightMatrix> matrices) const {
  PUMICE_CHECK(matrices.size() <= kMaxMatrices, "too many matrices of one x");
  if (matrices.empty()) return 0;
  const uint32_t n_cols = matrices.front().n_cols;
  const uint64_t of_gemm = rows > gemv_rows_ ? forms_bytes(rows, n_cols) : 0;
  const uint64_t few_rows = std::min<uint64_t>(rows, gemv_rows_);
  if (few_rows == 0) return of_gemm;
  uint64_t of_gemv = forms_bytes(few_rows, n_cols);
  for (const WeightMatrix& matrix : matrices) {
    of_gemv += kernels_of(*matrix.type).gemv.scratch_bytes(matrix, few_rows);
  }
  return std::max(of_gemm, of_gemv);
}

uint64_t Linear::max_scratch_bytes(uint64_t rows, uint32_t n_cols) {
  const uint64_t few_rows = std::min<uint64_t>(rows, Gemv::kMaxRows);
  return std::max(
      HalvedX::size_bytes(rows, n_cols) + QuantizedX::size_bytes(rows, n_cols),
      PlanesOfX::size_bytes(few_rows, n_cols) + kMaxMatrices * Gemv::max_scratch_bytes(rows));
}

void Linear::record_gemv(vk::Recorder& recorder, std::span<const Args> matrices) const {
  const auto for_each = [&](auto record_half) {
    // Behind x; each matrix has partial sums of its own.
    uint64_t offset = forms_bytes(matrices.front().rows, matrices.front().weights.n_cols);
    for (const Args& args : matrices) {
      const Gemv& gemv = kernels_of(*args.weights.type).gemv;
      const uint64_t bytes = gemv.scratch_bytes(args.weights, args.rows);
      Args placed = args;
      placed.x = x_in(x_form(args), args);
      placed.scratch = bytes > 0 ? args.scratch.subrange(offset, bytes) : vk::BufferRange{};
      offset += bytes;
      record_half(gemv, placed);
    }
  };
  for_each([&](const Gemv& gemv, const Args& args) { gemv.record_products(recorder, args); });
  for_each([&](const Gemv& gemv, const Args& args) { gemv.record_sums(recorder, args); });
}

void Linear::record(vk::Recorder& recorder, std::span<const Args> matrices, bool x_is_made) const {
  if (!x_is_made) record_x(recorder, matrices);
  if (!matrices.empty() && !uses_gemm(matrices.front().rows)) {
    return record_gemv(recorder, matrices);
  }
  PUMICE_CHECK(std::ranges::all_of(matrices, [](const Args& a) { return a.finish.none(); }),
               "gemm only stores its sums");
  record_products(recorder, matrices);
}

void Linear::record_x(vk::Recorder& recorder, std::span<const Args> matrices) const {
  for (const auto& [form, quantize_x] : quantize_x_) {
    const auto reader = std::ranges::find_if(
        matrices, [&, wanted = form](const Args& args) { return x_form(args) == wanted; });
    if (reader == matrices.end()) continue;
    quantize_x.record(recorder, {.x = reader->x,
                                 .x_stride = reader->x_stride,
                                 .rows = reader->rows,
                                 .k = reader->weights.n_cols,
                                 .y = x_in(form, *reader)});
  }
}

void Linear::record_products(vk::Recorder& recorder, std::span<const Args> matrices) const {
  for (const Args& args : matrices) {
    Args placed = args;
    placed.x = x_in(x_form(args), args);
    kernels_of(*args.weights.type).gemm.record(recorder, placed);
  }
}

}  // namespace pumice::ops
