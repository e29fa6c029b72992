#include "vk/quirks.hpp"

namespace pumice::vk {

Quirks find_quirks(const DeviceSnapshot& snapshot) {
  const bool swiftshader = snapshot.driver_id == VK_DRIVER_ID_GOOGLE_SWIFTSHADER;
  const bool lavapipe = snapshot.driver_id == VK_DRIVER_ID_MESA_LLVMPIPE;
  Quirks quirks;
  if (swiftshader) {
    quirks.max_allocation_bytes = uint64_t{1} << 30;
    quirks.notes.push_back({"max_allocation_bytes",
                            "SwiftShader refuses every allocation above 1 GiB, whatever the heap"});
  }
  if (swiftshader || lavapipe) {
    quirks.pipeline_cache_is_empty = true;
    quirks.notes.push_back({"pipeline_cache_is_empty",
                            "CPU drivers return a bare header as pipeline cache data "
                            "(seen on lavapipe 22.3, 25.0 and SwiftShader)"});
  }
  if (swiftshader || lavapipe) {
    quirks.compiles_at_first_dispatch = true;
    quirks.notes.push_back({"compiles_at_first_dispatch",
                            "CPU drivers generate code when a pipeline is first dispatched "
                            "(seen on lavapipe 25.0)"});
  }
  if (lavapipe && snapshot.features.matrix2_reductions) {
    quirks.matrix_reductions_are_wrong = true;
    quirks.notes.push_back({"matrix_reductions_are_wrong",
                            "row reductions are wrong when rows and columns both exceed 8 "
                            "(seen on lavapipe 26.1)"});
  }
  const bool amds_own = snapshot.driver_id == VK_DRIVER_ID_AMD_PROPRIETARY ||
                        snapshot.driver_id == VK_DRIVER_ID_AMD_OPEN_SOURCE;
  if (amds_own && snapshot.features.cooperative_matrix &&
      snapshot.type == DeviceType::kIntegrated) {
    quirks.matrix_query_crashes = true;
    quirks.notes.push_back({"matrix_query_crashes",
                            "AMD's own driver crashes when asked for the matrices of integrated "
                            "GPUs (reported of Radeon 860M, Adrenalin 26.3.1)"});
  }
  return quirks;
}

}  // namespace pumice::vk
