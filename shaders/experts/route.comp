#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "experts/route.h"
#include "experts/routes.h"

// The n_used best experts of a row, which a workgroup takes, best first and ties to the lowest id, and
// their weights. An expert's rank is the number of those before it, which with keys that are totally
// ordered gives every rank to exactly one, whatever the scores are. Or the weights of given experts.

const bool kGrouped = grouped != 0;
const bool kRenormalised = renormalised != 0;
const bool kSoftmax = probability == ROUTE_SOFTMAX;
/// The least sum that weights are divided by, as llama.cpp has it: the least normal F16 number.
const float kLeastSum = 6.103515625e-5;

shared uint keys[MOST_EXPERTS];
shared float numerators[MOST_EXPERTS];
shared uint group_keys[MOST_GROUPS];
shared uint chosen[MOST_USED];

/// Rises with the score, from NaN, which is below all, to infinity; both zeros have the same.
uint key_of(float score) {
  const uint bits = floatBitsToUint(score);
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0;
  return bits == magnitude ? 0x80000000u + magnitude : 0x80000000u - magnitude;
}

/// The other way round; zero for a NaN's.
float score_of(uint key) {
  return uintBitsToFloat(key >= 0x80000000u ? key - 0x80000000u : 0x80000000u + (0x80000000u - key));
}

/// The sum of its two largest, which is what a group is chosen by.
uint key_of_group(uint first, uint size) {
  uint best = 0;
  uint second = 0;
  for (uint e = first; e < first + size; ++e) {
    second = max(second, min(best, keys[e]));
    best = max(best, keys[e]);
  }
  return key_of(score_of(best) + score_of(second));
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  Floats scores = Floats(pc.scores);
  // Where they do not, scores choose as they would; then what a softmax is divided by cancels.
  bool probabilities_choose = false;
  if (choice == ROUTE_BY_BIASED_SCORE || kGrouped) probabilities_choose = true;
  bool needs_total = false;
  if (kSoftmax) needs_total = probabilities_choose || choice == ROUTE_GIVEN || !kRenormalised;
  const uint first = row * pc.n_experts;
  for (uint e = lane; e < pc.n_experts; e += workgroup_size) keys[e] = key_of(scores.v[first + e]);
  barrier();

  float most = 0.0;
  if (kSoftmax) {
    uint best = 0;
    for (uint e = 0; e < pc.n_experts; ++e) best = max(best, keys[e]);
    most = score_of(best);
  }
  for (uint e = lane; e < pc.n_experts; e += workgroup_size) {
    const float score = scores.v[first + e];
    numerators[e] = kSoftmax ? exp(score - most) : sigmoid(score);
  }
  barrier();
  float total = 1.0;
  if (needs_total) {
    total = 0.0;
    for (uint e = 0; e < pc.n_experts; ++e) total += numerators[e];
  }

  if (probabilities_choose) {
    for (uint e = lane; e < pc.n_experts; e += workgroup_size) {
      const float bias = choice == ROUTE_BY_BIASED_SCORE ? Floats(pc.bias).v[e] : 0.0;
      keys[e] = key_of(numerators[e] / total + bias);
    }
    barrier();
  }
  if (kGrouped) {
    const uint size = pc.n_experts / pc.n_groups;
    for (uint g = lane; g < pc.n_groups; g += workgroup_size) {
      group_keys[g] = key_of_group(g * size, size);
    }
    barrier();
    for (uint e = lane; e < pc.n_experts; e += workgroup_size) {
      const uint own = e / size;
      uint rank = 0;
      for (uint g = 0; g < pc.n_groups; ++g) {
        if (group_keys[g] > group_keys[own] || (group_keys[g] == group_keys[own] && g < own)) ++rank;
      }
      if (rank >= pc.n_used_groups) keys[e] = 0;
    }
    barrier();
  }

  if (choice == ROUTE_GIVEN) {
    for (uint i = lane; i < pc.n_used; i += workgroup_size) {
      chosen[i] = min(ExpertRoutes(pc.routes).v[row * pc.n_used + i].expert, pc.n_experts - 1);
    }
  } else {
    for (uint e = lane; e < pc.n_experts; e += workgroup_size) {
      const uint own = keys[e];
      uint rank = 0;
      for (uint other = 0; other < pc.n_experts; ++other) {
        const uint key = keys[other];
        if (key > own || (key == own && other < e)) ++rank;
      }
      if (rank < pc.n_used) chosen[rank] = e;
    }
  }
  barrier();
  for (uint i = lane; i < pc.n_used; i += workgroup_size) {
    float sum = total;
    if (kRenormalised) {
      sum = 0.0;
      for (uint other = 0; other < pc.n_used; ++other) sum += numerators[chosen[other]];
      if (!kSoftmax || needs_total) sum = max(sum, kLeastSum * total);
    }
    ExpertRoute route;
    route.expert = chosen[i];
    route.weight = pc.scale * (numerators[chosen[i]] / sum);
    if (has_gains != 0) route.weight *= Floats(pc.gains).v[chosen[i]];
    ExpertRoutes(pc.routes).v[row * pc.n_used + i] = route;
  }
}
