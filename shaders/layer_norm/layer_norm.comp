#version 460

#include "common/buffers.glsl"
#include "layer_norm/layer_norm.h"

// One workgroup per group of a row: x += residual; y = (x - mean) / sqrt(variance + eps) * weight + bias.
//
// Two passes with a correction (Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
// 1983): the second takes sums of x - mean, exact but for one rounding where the mean is large, and what
// those sums are away from zero is the error of the first pass's mean.

shared vec2 partial[workgroup_size];

/// The sum over all lanes.
vec2 total(uint lane, vec2 own) {
  barrier();  // what was in `partial` has been read
  partial[lane] = own;
  barrier();
  for (uint width = workgroup_size / 2; width > 0; width /= 2) {
    if (lane < width) partial[lane] += partial[lane + width];
    barrier();
  }
  return partial[0];
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  const uint source_row = pc.gather != 0 ? Uints(pc.row_index).v[row] : row;
  Floats x = Floats(pc.x);
  Floats residual = Floats(pc.residual);
  const uint column = gl_WorkGroupID.y * pc.n;
  const uint first = source_row * pc.x_stride + column;
  const uint y_first = row * pc.y_stride + column;
  const float n = float(pc.n);

  vec2 sums = vec2(0.0);
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    float value = x.v[first + i];
    if (pc.add_residual != 0) {
      value += residual.v[first + i];
      x.v[first + i] = value;  // read back below by this same invocation
    }
    sums.x += value;
  }
  const float mean = total(lane, sums).x / n;

  sums = vec2(0.0);
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    precise const float away = x.v[first + i] - mean;
    sums += vec2(away, away * away);
  }
  sums = total(lane, sums) / n;
  const float correction = sums.x;
  const float variance = max(fma(-correction, correction, sums.y), 0.0);
  const float scale = 1.0 / sqrt(variance + pc.eps);

  Floats weight = Floats(pc.weight);
  Floats bias = Floats(pc.bias);
  Floats y = Floats(pc.y);
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    precise const float away = x.v[first + i] - mean;
    const float normed = (away - correction) * scale * weight.v[column + i];
    y.v[y_first + i] = pc.add_bias != 0 ? normed + bias.v[column + i] : normed;
  }
}
