// y = x · Wᵀ for weights of any type and any number of rows: gemv for few rows, gemm for many.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/gemm/gemm.hpp"
#include "shaders/gemv/gemv.hpp"
#include "shaders/quantize_x/quantize_x.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

class Linear {
 public:
  using Args = LinearArgs;

  /// Declare the pipelines for these weight types (repeats are fine): four of gemv each, one for
  /// all where gemv may split K, and one of gemm for each of its tile sizes. Products of gemm are
  /// computed as `math` says, with kI8 as kAuto says for weights of a float type; gemv is fp32,
  /// where `math` is not kF32 with x in 16 bits (XForm::kPlanes) on some devices. `path` is tuned_x_route() of the device except in tests. Errors:
  /// kInvalidArgument for a type without shaders, a path the device lacks, or an arithmetic that
  /// was asked for and that no kernel of gemm has here; never for lack of one with kAuto.
  static Result<Linear> plan(vk::PipelineLibrary& pipelines,
                             std::span<const WeightType* const> types, Math math, XRoute path);
  static Result<Linear> plan(vk::PipelineLibrary& pipelines,
                             std::span<const WeightType* const> types, Math math = Math::kAuto) {
    return plan(pipelines, types, math, tuned_x_route(pipelines));
  }

  /// From now on gemm computes few rows too, so that a row's result does not depend on how many
  /// there are, to the last bit.
  void use_gemm_only() { gemv_rows_ = 0; }

  /// Up to how many rows gemv is faster here than gemm (linear.tune): Gemv::kMaxRows at most.
  static uint32_t tuned_gemv_rows(const TuningTarget& target);
  /// Whether products of so many rows are gemm's.
  bool uses_gemm(uint32_t rows) const { return rows > gemv_rows_; }

  /// Up to how many rows a row's bits are those that it has alone, whatever the planned type.
  uint32_t alike_rows() const;

  /// Whether products of so many rows take LinearFinish::added and scaled, whatever the planned
  /// type: one product leaves to the next what it did not do.
  bool shares_norms(uint32_t rows) const { return rows <= finish_rows_ && !uses_gemm(rows); }
  /// Whether they take LinearFinish::gated with this matrix.
  bool gates(const WeightMatrix& matrix, uint32_t rows) const {
    return !uses_gemm(rows) && kernels_of(*matrix.type).gemv.can_gate(matrix, rows);
  }

  /// One dispatch for each part of the matrix, after one that makes x what products read (XForm) and
  /// before one that adds sums where gemv splits K. Its type must be among the planned ones. Parts
  /// whose products would exceed the recorder's segment limit are cut further, by outputs, whatever
  /// the kernel (linear_shares); the results are the same bits. What quantises x is not cut, being
  /// small beside its products, nor is what adds sums, which is at most a few hundred KiB.
  void record(vk::Recorder& recorder, const Args& args) const { record(recorder, {&args, 1}); }
  /// Several matrices of one x: their x, x_stride, rows, columns and scratch are the same. At most
  /// kMaxMatrices.
  /// `x_is_made`: the start of scratch has x in planes already, as where it was made it was written
  /// there; reads_planes of one of the matrices.
  void record(vk::Recorder& recorder, std::span<const Args> matrices, bool x_is_made = false) const;
  /// Its two halves where rows are gemm's, so that products of several x can follow what makes all of
  /// them what gemm reads, without a barrier between.
  void record_x(vk::Recorder& recorder, std::span<const Args> matrices) const;
  void record_products(vk::Recorder& recorder, std::span<const Args> matrices) const;

  /// The arithmetic of products of so many rows with weights of a planned type.
  Math math_of(const WeightType& type, uint32_t rows) const {
    return uses_gemm(rows) ? kernels_of(type).gemm.math() : Math::kF32;
  }

  /// What products of so many rows with weights of a planned type read.
  XForm x_form(const WeightType& type, uint32_t rows) const {
    return uses_gemm(rows) ? kernels_of(type).gemm.x_form() : kernels_of(type).gemv.x_form();
  }

  /// Whether these products of so many rows read x as PlanesOfX, at the start of their scratch.
  bool reads_planes(const WeightType& type, uint32_t rows) const {
    return x_form(type, rows) == XForm::kPlanes;
  }

  /// Every pipeline of gemm.
  std::vector<const vk::Pipeline*> gemm_pipelines() const;

  /// Over how many workgroups each K of a matrix is split in products of so many rows.
  uint32_t splits_of(const WeightMatrix& matrix, uint32_t rows) const {
    return uses_gemm(rows) ? 1 : kernels_of(*matrix.type).gemv.splits_of(matrix);
  }

  static constexpr size_t kMaxMatrices = 3;  ///< of one x: query, key and value

  /// What Args::scratch must hold for products of up to `rows` rows with these matrices of one x.
  /// 0: none.
  uint64_t scratch_bytes(uint64_t rows, std::span<const WeightMatrix> matrices) const;
  /// The same whatever the matrices of `n_cols` columns, the device and the arithmetic.
  static uint64_t max_scratch_bytes(uint64_t rows, uint32_t n_cols);

 private:
  struct Kernels {
    Gemm gemm;
    Gemv gemv;
  };
  const Kernels& kernels_of(const WeightType& type) const;
  XForm x_form(const Args& args) const { return x_form(*args.weights.type, args.rows); }
  /// Of x in the forms that products of so many rows read and that come before `end`, or in all: they
  /// lie one after the other in the scratch memory, since matrices of one x may read different ones.
  uint64_t forms_bytes(uint64_t rows, uint32_t n_cols, std::optional<XForm> end = {}) const;
  vk::BufferRange x_in(XForm form, const Args& args) const;
  void record_gemv(vk::Recorder& recorder, std::span<const Args> matrices) const;

  std::map<const WeightType*, Kernels> kernels_;
  uint32_t gemv_rows_ = 0;
  uint32_t finish_rows_ = 0;               // the fewest of a planned type's gemv
  std::map<XForm, QuantizeX> quantize_x_;  // those that products read
};

}  // namespace pumice::ops
