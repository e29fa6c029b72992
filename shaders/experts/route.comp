#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "experts/route.h"
#include "experts/routes.h"

// The n_used highest scores of a row, which a workgroup takes, highest first and ties to the lowest id,
// with the softmax over them. An expert's rank is the number of those before it, which with keys that
// are totally ordered gives every rank to exactly one, whatever the scores are.
layout(local_size_x_id = 0) in;

shared uint keys[MOST_EXPERTS];
shared uint chosen[MOST_USED];
shared float exponentials[MOST_USED];

/// Rises with the score, from NaN, which is below all, to infinity; both zeros have the same.
uint key_of(float score) {
  const uint bits = floatBitsToUint(score);
  const uint magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0;
  return bits == magnitude ? 0x80000000u + magnitude : 0x80000000u - magnitude;
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  Floats scores = Floats(pc.scores);
  const uint first = row * pc.n_experts;
  for (uint e = lane; e < pc.n_experts; e += workgroup_size) keys[e] = key_of(scores.v[first + e]);
  barrier();
  for (uint e = lane; e < pc.n_experts; e += workgroup_size) {
    const uint own = keys[e];
    uint rank = 0;
    for (uint other = 0; other < pc.n_experts; ++other) {
      const uint key = keys[other];
      if (key > own || (key == own && other < e)) ++rank;
    }
    if (rank < pc.n_used) chosen[rank] = e;
  }
  barrier();
  for (uint i = lane; i < pc.n_used; i += workgroup_size) {
    exponentials[i] = exp(scores.v[first + chosen[i]] - scores.v[first + chosen[0]]);
  }
  barrier();
  for (uint i = lane; i < pc.n_used; i += workgroup_size) {
    float sum = 0.0;
    for (uint other = 0; other < pc.n_used; ++other) sum += exponentials[other];
    ExpertRoute route;
    route.expert = chosen[i];
    route.weight = exponentials[i] / sum;
    ExpertRoutes(pc.routes).v[row * pc.n_used + i] = route;
  }
}
