// The gated activation of a feed-forward block, activation(gate) * up: SwiGLU, GEGLU.
// Shazeer, "GLU Variants Improve Transformer", 2020.
#pragma once

#include "base/result.hpp"
#include "shaders/common/activation_kind.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"
#include "vk/recorder.hpp"

namespace pumice::ops {

class GatedActivation {
 public:
  using Kind = ActivationKind;

  struct Args {
    vk::BufferRange
        gate_up;        ///< float [rows][2n]: a row's n gates, then its n ups; 16-byte aligned
    vk::BufferRange y;  ///< float [rows][n]; 16-byte aligned
    uint32_t rows = 0;  ///< at most 65535; rows * 2n below 2^32
    uint32_t n = 0;
    /// PlanesOfX [rows]: y once more, where `makes_planes`; empty: not.
    vk::BufferRange planes = {};
  };

  enum class Variant {
    kPlain,
    kPlanes,  ///< can write planes
  };

  /// The variant as the device is tuned (gated_activation.tune).
  static Result<GatedActivation> plan(vk::PipelineLibrary& pipelines, Kind kind);
  static Result<GatedActivation> plan(vk::PipelineLibrary& pipelines, Kind kind, Variant variant);

  /// Whether it can write planes of rows of `n`.
  bool makes_planes(uint32_t n) const;

  void record(vk::Recorder& recorder, const Args& args) const;

 private:
  Kind kind_ = Kind::kSilu;
  Variant variant_ = Variant::kPlain;
  const vk::Pipeline* pipeline_ = nullptr;
  uint32_t columns_per_workgroup_ = 0;
};

}  // namespace pumice::ops
