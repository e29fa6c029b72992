// y = x · Wᵀ for many rows of x: tiles of rows × weight rows in registers, weights dequantised on
// the way. Any number of rows works; up to 8 gemv is faster.
#pragma once

#include "base/result.hpp"
#include "shaders/common/linear_args.hpp"
#include "shaders/gemm/gemm_variants.hpp"
#include "vk/pipeline.hpp"

namespace pumice::ops {

/// Why the module `name` of a variant cannot run with weights of the type here; empty if it can.
std::string gemm_obstacle(const vk::PipelineLibrary& pipelines, const std::string& name,
                          const WeightType& type, const GemmVariant& variant);

/// The pipelines of a module that can run: one for each of the variant's tiles.
Result<std::vector<const vk::Pipeline*>> declare_gemm_tiles(vk::PipelineLibrary& pipelines,
                                                            const std::string& name,
                                                            const GemmVariant& variant,
                                                            uint32_t push_bytes);

/// What kernels that compute in `math`, never kAuto, do most of their flops in.
vk::Arithmetic gemm_arithmetic(Math math);

class Gemm {
 public:
  /// Declare the pipelines of the first candidate (see gemm_variants) that this build has and the
  /// device can run: one for each of its tiles. Errors, saying of each candidate why it
  /// cannot run: kSelfTestFailed if one would, were it not rejected; kInvalidArgument.
  static Result<Gemm> plan(vk::PipelineLibrary& pipelines, const WeightType& type,
                           std::span<const GemmVariant> candidates);

  /// One dispatch for each part of the matrix, which must be of the planned type, or several where
  /// one would exceed the recorder's segment limit: fewer outputs each (linear_shares), and where
  /// that is not enough fewer rows, in whole tiles. args.x is in the form x_form(), without a stride
  /// if that is not floats: what QuantizeX makes of the rows.
  void record(vk::Recorder& recorder, const LinearArgs& args) const;

  /// The arithmetic of the chosen variant, and what it reads.
  Math math() const { return math_; }
  XForm x_form() const { return x_form_; }
  /// One for each of its tiles.
  std::span<const vk::Pipeline* const> pipelines() const { return pipelines_; }

 private:
  Math math_ = Math::kF32;
  XForm x_form_ = XForm::kFloats;
  std::vector<GemmTile> tiles_;
  std::vector<const vk::Pipeline*> pipelines_;  // of tiles_
};

}  // namespace pumice::ops
