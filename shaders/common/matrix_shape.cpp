#include "shaders/common/matrix_shape.hpp"

#include <bit>

namespace pumice::ops {

const vk::MatrixShape* half_matrix_shape(const vk::DevicePlan& plan) {
  const auto usable = [](const vk::MatrixShape& shape) {
    const auto power_of_two_to = [](uint32_t value, uint32_t most) {
      return value >= 4 && value <= most && std::has_single_bit(value);
    };
    return shape.a == vk::ComponentType::kF16 && shape.b == vk::ComponentType::kF16 &&
           shape.c == vk::ComponentType::kF32 && shape.result == vk::ComponentType::kF32 &&
           !shape.saturating && power_of_two_to(shape.m, 64) && power_of_two_to(shape.n, 64) &&
           power_of_two_to(shape.k, 32);
  };
  const auto closeness = [](const vk::MatrixShape& shape) {
    const auto close = [](uint32_t value) { return value <= 16 ? value : 16 * 16 / value; };
    return close(shape.m) * close(shape.n) * close(shape.k);
  };
  const vk::MatrixShape* best = nullptr;
  for (const vk::MatrixShape& shape : plan.matrix_shapes) {
    if (usable(shape) && (best == nullptr || closeness(shape) > closeness(*best))) best = &shape;
  }
  return best;
}

std::string half_matrix_obstacle(const vk::DevicePlan& plan) {
  if (!plan.features.cooperative_matrix || !plan.features.shader_float16) {
    return "it needs cooperativeMatrix and shaderFloat16";
  }
  if (plan.matrix_subgroup_size == 0 || !plan.features.full_subgroups) {
    return "it needs full subgroups of a known size";
  }
  if (half_matrix_shape(plan) == nullptr) {
    return "no cooperative matrix shape has fp16 inputs and fp32 sums";
  }
  return {};
}

}  // namespace pumice::ops
