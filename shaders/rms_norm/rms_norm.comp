#version 460

#include "common/buffers.glsl"
#include "rms_norm/rms_norm.h"

// One workgroup per row and group: x += residual; y = x / sqrt(mean(x^2) + eps) * weight.

shared float partial[workgroup_size];

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  const uint source_row = pc.gather != 0 ? Uints(pc.row_index).v[row] : row;
  Floats x = Floats(pc.x);
  Floats residual = Floats(pc.residual);
  const uint group = gl_WorkGroupID.y * pc.n;
  const uint weights = gl_WorkGroupID.y * pc.weight_stride;
  const uint first = source_row * pc.x_stride + group;
  const uint y_first = row * pc.y_stride + group;

  float sum = 0.0;
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    float value = x.v[first + i];
    if (pc.add_residual != 0) {
      value += residual.v[first + i];
      x.v[first + i] = value;  // read back below by this same invocation
    }
    sum = fma(value, value, sum);
  }
  partial[lane] = sum;
  barrier();
  // A tree in shared memory rather than subgroup arithmetic: one path for every subgroup size.
  [[dont_unroll]] for (uint width = workgroup_size / 2; width > 0; width /= 2) {
    if (lane < width) partial[lane] += partial[lane + width];
    barrier();
  }

  const float scale = 1.0 / sqrt(partial[0] / float(pc.n) + pc.eps);
  Floats weight = Floats(pc.weight);
  Floats y = Floats(pc.y);
  for (uint i = lane; i < pc.n; i += workgroup_size) {
    y.v[y_first + i] = x.v[first + i] * scale * (pc.weighted != 0 ? weight.v[weights + i] : 1.0);
  }
}
