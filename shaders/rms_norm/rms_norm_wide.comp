#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "common/buffers.glsl"
#include "rms_norm/rms_norm_push.h"
#include "rms_norm/rms_norm_wide.h"
#include "common/x_planes_store.glsl"

// One workgroup per row and group, which it holds in registers, so that x is read once:
// x += residual; y = x / sqrt(mean(x^2) + eps) * weight. n and the strides are multiples of 4, and n
// fits the workgroup's `quads`; lanes past the end load the last quad again and use nothing of it.
// Products of few rows may want y in planes, which costs another pass less here.

shared float partial[512];  // a subgroup; there may be subgroups of one invocation

void main() {
  const uint row = gl_WorkGroupID.x;
  const uint source_row = pc.gather != 0 ? Uints(pc.row_index).v[row] : row;
  const uint n_quads = pc.n / 4;
  const uint group = gl_WorkGroupID.y * n_quads;
  const uint weights = gl_WorkGroupID.y * (pc.weight_stride / 4);
  const uint first = source_row * (pc.x_stride / 4) + group;
  const uint y_first = row * (pc.y_stride / 4) + group;
  Vec4s x = Vec4s(pc.x);

  vec4 held[quads];
  [[unroll]] for (uint i = 0; i < quads; ++i) {
    held[i] = x.v[first + min(gl_LocalInvocationIndex + i * workgroup_size, n_quads - 1)];
  }
  if (pc.add_residual != 0) {
    Vec4s residual = Vec4s(pc.residual);
    [[unroll]] for (uint i = 0; i < quads; ++i) {
      held[i] += residual.v[first + min(gl_LocalInvocationIndex + i * workgroup_size, n_quads - 1)];
    }
  }
  float sum = 0.0;
  [[unroll]] for (uint i = 0; i < quads; ++i) {
    if (gl_LocalInvocationIndex + i * workgroup_size < n_quads) sum += dot(held[i], held[i]);
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) partial[gl_SubgroupID] = sum;
  barrier();
  float total = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) total += partial[i];

  const float scale = 1.0 / sqrt(total / float(pc.n) + pc.eps);
  Vec4s weight = Vec4s(pc.weight);
  Vec4s y = Vec4s(pc.y);
  [[unroll]] for (uint i = 0; i < quads; ++i) {
    const uint quad = gl_LocalInvocationIndex + i * workgroup_size;
    if (quad < n_quads) {
      if (pc.add_residual != 0) x.v[first + quad] = held[i];
      held[i] *= scale * (pc.weighted != 0 ? weight.v[weights + quad] : vec4(1.0));
      y.v[y_first + quad] = held[i];
    }
  }
  if (pc.to_planes != 0) {
    [[unroll]] for (uint i = 0; i < quads; ++i) {
      const uint quad = gl_LocalInvocationIndex + i * workgroup_size;
      store_planes(pc.planes, (row * n_quads + quad) / kPlanesLanes, held[i], quad < n_quads);
    }
  }
}
