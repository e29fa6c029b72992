#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "attention_reference/attention_softmax.h"
#include "flash_attention/online_softmax.glsl"

// A workgroup turns the scores of one row (x) and head (y) into weights: read twice, written once.
// workgroup_size is a power of two.
layout(local_size_x_id = 0) in;

shared float lane_max[workgroup_size];
shared float lane_sum[workgroup_size];

void main() {
  const uint lane = gl_LocalInvocationIndex;
  Floats scores = Floats(address_add(pc.scores, gl_WorkGroupID.y * pc.n_rows * pc.n_keys * 4));
  const uint first = gl_WorkGroupID.x * pc.n_keys;

  float maximum = kNoKey;
  float sum = 0.0;
  for (uint key = lane; key < pc.n_keys; key += workgroup_size) {
    const float score = scores.v[first + key];
    const float larger = max(maximum, score);
    sum = sum * softmax_weight(maximum, larger) + softmax_weight(score, larger);
    maximum = larger;
  }
  lane_max[lane] = maximum;
  lane_sum[lane] = sum;
  barrier();
  for (uint half_size = workgroup_size / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) {
      const float larger = max(lane_max[lane], lane_max[lane + half_size]);
      lane_sum[lane] = lane_sum[lane] * softmax_weight(lane_max[lane], larger) +
                       lane_sum[lane + half_size] *
                           softmax_weight(lane_max[lane + half_size], larger);
      lane_max[lane] = larger;
    }
    barrier();
  }
  maximum = lane_max[0];
  sum = lane_sum[0];
  for (uint key = lane; key < pc.n_keys; key += workgroup_size) {
    scores.v[first + key] = softmax_weight(scores.v[first + key], maximum) / sum;
  }
}
