// The pipelines whose hot loops are counted (hot_loops), and what one turn of each loop does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "vk/pipeline.hpp"

namespace pumice::test {

struct HotKernel {
  const vk::Pipeline* pipeline = nullptr;
  std::string_view kernel;  ///< "gemv", "flash_attention.decode", …
  std::string type;         ///< of weights, or of keys and values
  uint32_t rows = 0;        ///< of its tile: of x, or (token, head) pairs
  uint32_t head_dim = 0;    ///< of attention, else 0
  /// What instructions are counted by: "weight" or "key" (of a lane), or "mma" (of a subgroup).
  std::string_view unit;
  /// Of these in a turn of the hot loop; 0: as many as its listing has (mma).
  uint32_t units = 0;
  /// Which loop is hot: the largest of those that are in no other, or of those that have none inside.
  bool innermost = false;
  /// How often loops inside turn, each time round: multiplications with an addition (of matrices'
  /// where the unit is "mma", else of a lane) that `phases` loops do each, so many as a turn of the
  /// loop's body lacks of them.
  uint32_t products = 0;
  uint32_t phases = 1;
  /// And loops inside that have none to speak of.
  uint32_t trips = 1;
};

/// Declares them as the engine would have them on this device, with `math` auto. Kernels that a
/// device does not take (tiles on matrix cores where it has none) are not among them.
Result<std::vector<HotKernel>> declare_hot_kernels(vk::PipelineLibrary& pipelines);

}  // namespace pumice::test
