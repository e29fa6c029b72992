#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "flash_attention/attention_reduce.h"
#include "flash_attention/online_softmax.glsl"

// One workgroup per (reduce item, head): y = sum of 2^(m - max m) * partial y / sum of 2^(m - max m) * l, in one pass.
// Groups of lanes, a lane for four columns, share the splits among them, each with a softmax of its own; what they
// have is merged at the end. A round loads `flight` splits of a group, none waiting for another.
//
// Which group has a split, and which are of one round, is decided by the split's place in the context. What a row's item
// has besides, splits of which the row sees no key, leaves its bits alone: their weight is 0, and where the maximum
// stays, it is rescaled by exactly 1.
layout(local_size_x_id = 0) in;

const uint column_quads = head_dim / 4;
const uint n_groups = workgroup_size > column_quads ? workgroup_size / column_quads : 1;

shared vec2 group_stats[n_groups];
shared vec4 group_y[n_groups > 1 ? workgroup_size : 1];

void main() {
  const uint head = gl_WorkGroupID.y;
  Uints words = Uints(pc.items);
  const uint item = gl_WorkGroupID.x * 5;
  const uint row = words.v[item];
  const uint first = words.v[item + 1] * pc.n_heads + head;
  const uint n_partials = words.v[item + 2];
  const uint stride = words.v[item + 3] * pc.n_heads;
  const uint first_split = words.v[item + 4];
  const float sink = has_sinks != 0 ? Floats(pc.sinks).v[head] : 0.0;

  const uint group = gl_LocalInvocationIndex / column_quads;
  const uint group_end = group < n_groups ? first_split + n_partials : 0;  // lanes that are left over have none
  const uint round_splits = n_groups * flight;
  for (uint column = gl_LocalInvocationIndex % column_quads; column < column_quads; column += workgroup_size) {
    float maximum = kNoKey;
    float sum = 0.0;
    vec4 y = vec4(0.0);
    for (uint i = first_split / round_splits * round_splits + group; i < group_end; i += round_splits) {
      uint slot_head[flight];
      vec2 stats[flight];
      vec4 partial_y[flight];
      [[unroll]] for (uint j = 0; j < flight; ++j) {
        const uint split = clamp(i + j * n_groups, first_split, first_split + n_partials - 1);
        slot_head[j] = first + (split - first_split) * stride;
        stats[j] = Vec2s(pc.partial_stats).v[slot_head[j]];
      }
      [[unroll]] for (uint j = 0; j < flight; ++j) {
        partial_y[j] = Vec4s(pc.partial_y).v[slot_head[j] * column_quads + column];
      }
      float next = maximum;
      [[unroll]] for (uint j = 0; j < flight; ++j) {
        if (i + j * n_groups - first_split >= n_partials) stats[j].x = kNoKey;
        next = max(next, stats[j].x);
      }
      const float rescale = softmax_weight(maximum, next);
      maximum = next;
      sum *= rescale;
      y *= rescale;
      [[unroll]] for (uint j = 0; j < flight; ++j) {
        const float weight = softmax_weight(stats[j].x, maximum);
        sum = fma(weight, stats[j].y, sum);
        y = fma(vec4(weight), partial_y[j], y);
      }
    }

    if (n_groups > 1) {  // then all columns are in hand
      if (column == 0 && group < n_groups) group_stats[group] = vec2(maximum, sum);
      group_y[gl_LocalInvocationIndex] = y;
      barrier();
      if (group > 0) return;
      for (uint g = 1; g < n_groups; ++g) maximum = max(maximum, group_stats[g].x);
      sum = 0.0;
      y = vec4(0.0);
      for (uint g = 0; g < n_groups; ++g) {
        const float weight = softmax_weight(group_stats[g].x, maximum);
        sum = fma(weight, group_stats[g].y, sum);
        y = fma(vec4(weight), group_y[g * column_quads + column], y);
      }
    }
    if (has_sinks != 0) sum += sink_weight(sink, maximum);
    Vec4s(pc.y).v[(row * pc.n_heads + head) * column_quads + column] = sum > 0.0 ? y / sum : vec4(0.0);
  }
}
