// The ways a device has of computing gemm (gemm.tune), tested on snapshots.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shaders/common/linear_args.hpp"
#include "shaders/common/math.hpp"
#include "shaders/quantize_x/quantize_x.hpp"

namespace pumice::ops {

/// One specialisation: what a workgroup computes of y and the constants that make it so.
struct GemmTile {
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<std::pair<uint32_t, uint32_t>> constants = {};  ///< (id, value)
  uint32_t workgroup_size = 0;                                ///< invocations
  uint32_t shared_bytes = 0;                                  ///< 0: below the floor's 16 KiB
  uint32_t busy_workgroups = 0;  ///< so many at least, or a smaller tile is faster
};

/// An algorithm: the modules "gemm.<type>.<name>" of every weight type.
struct GemmVariant {
  std::string_view name;
  Math math = Math::kF32;               ///< its arithmetic; never kAuto
  XForm x = XForm::kFloats;             ///< what it reads
  uint32_t subgroup_size = 0;           ///< to require; 0: any
  bool full_subgroups = false;          ///< to require
  std::vector<GemmTile> tiles = {};     ///< by rising size; none if there is an obstacle
  std::string obstacle = {};            ///< what of the plan forbids it, "it needs …"
  std::string_view grid_obstacle = {};  ///< what forbids it for types with a grid
  std::optional<vk::TuningChoice> chosen = {};
};

/// Variants that compute as precisely as `math` asks, best first. With kAuto and kF32 the last one
/// runs everywhere; kF16 and kI8 name only variants of that arithmetic. `path` is the best way for
/// activations to reach fp32 kernels; `type` is that of the weights, null where they are of several.
std::vector<GemmVariant> gemm_variants(const TuningTarget& target, Math math, XRoute path,
                                       const WeightType* type = nullptr);

/// Which of a variant's tiles to use for y of `rows` × `n`.
size_t choose_gemm_tile(std::span<const GemmTile> tiles, uint32_t rows, uint32_t n);

}  // namespace pumice::ops
