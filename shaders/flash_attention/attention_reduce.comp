#version 460
#extension GL_GOOGLE_include_directive : require

#include "common/buffers.glsl"
#include "flash_attention/attention_reduce.h"
#include "flash_attention/online_softmax.glsl"

// One workgroup per (reduce item, head): y = sum of 2^(m - max m) * partial y / sum of 2^(m - max m) * l.
// Every lane goes over the statistics of all partials, of which there are few.
layout(local_size_x_id = 0) in;

const uint column_quads = head_dim / 4;

void main() {
  const uint head = gl_WorkGroupID.y;
  Uints words = Uints(pc.items);
  const uint item = gl_WorkGroupID.x * 4;
  const uint row = words.v[item];
  const uint first = words.v[item + 1] * pc.n_heads + head;
  const uint n_partials = words.v[item + 2];
  const uint stride = words.v[item + 3] * pc.n_heads;
  Vec2s stats = Vec2s(pc.partial_stats);

  float maximum = kNoKey;
  for (uint i = 0; i < n_partials; ++i) maximum = max(maximum, stats.v[first + i * stride].x);
  float sum = 0.0;
  for (uint i = 0; i < n_partials; ++i) {
    const vec2 partial = stats.v[first + i * stride];
    sum = fma(softmax_weight(partial.x, maximum), partial.y, sum);
  }
  if (has_sinks != 0) sum += sink_weight(Floats(pc.sinks).v[head], maximum);
  for (uint column = gl_LocalInvocationIndex; column < column_quads; column += workgroup_size) {
    vec4 y = vec4(0.0);
    for (uint i = 0; i < n_partials; ++i) {
      const uint slot_head = first + i * stride;
      const float weight = softmax_weight(stats.v[slot_head].x, maximum);
      y = fma(vec4(weight), Vec4s(pc.partial_y).v[slot_head * column_quads + column], y);
    }
    Vec4s(pc.y).v[(row * pc.n_heads + head) * column_quads + column] =
        sum > 0.0 ? y / sum : vec4(0.0);
  }
}
