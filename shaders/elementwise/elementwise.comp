#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "elementwise/elementwise.h"

// y = f(a, b). A workgroup takes 4 * workgroup_size columns of one row, a lane four of them.

const bool kHasB = kind == ELEMENTWISE_ADD || kind == ELEMENTWISE_MUL;
const bool kHasGroups = kind == ELEMENTWISE_MUL_GROUPS;

/// cap tanh(a / cap). The exponential of a negative exponent cannot overflow; a small argument, where
/// 1 - exp(-2z) would cancel, takes a polynomial instead: tanh(z) = z + z s p(s) with s = z², p
/// interpolated at Chebyshev points of s in [0, 0.36], relative error 1.1e-8 before rounding.
float soft_cap(float a, float cap) {
  const float z = a / cap;
  const float s = z * z;
  float p = -0.00626911973;
  p = fma(p, s, 0.0211109591);
  p = fma(p, s, -0.0538739489);
  p = fma(p, s, 0.133329154);
  p = fma(p, s, -0.333333303);
  const float small = fma(z * s, p, z);
  const float e = exp(-2.0 * min(abs(z), 0.5 * kMostExponent));
  const float large = (1.0 - e) / (1.0 + e);
  return cap * (s < 0.36 ? small : z < 0.0 ? -large : large);
}

float value_of(float a, float b) {
  precise float value = a;
  if (kind == ELEMENTWISE_ADD) {
    value = a + b;
  } else if (kind == ELEMENTWISE_MUL || kHasGroups) {
    value = a * b;
  } else if (kind == ELEMENTWISE_AT_MOST) {
    value = a > pc.factor ? pc.factor : a;
  } else if (kind == ELEMENTWISE_WITHIN) {
    value = a > pc.factor ? pc.factor : a < -pc.factor ? -pc.factor : a;
  } else if (kind == ELEMENTWISE_SCALE) {
    value = a * pc.factor;
  } else if (kind == ELEMENTWISE_SOFT_CAP) {
    value = soft_cap(a, pc.factor);
  } else if (kind == ELEMENTWISE_XIELU) {
    const float curved = a > 0.0 ? pc.alpha_p * a * a : pc.alpha_n * (exp(min(a, pc.eps)) - 1.0 - a);
    value = fma(pc.factor, a, curved);
  } else if (kind != ELEMENTWISE_COPY && kind != ELEMENTWISE_COPY_GROUPS) {
    value = activation(kind, a);
  }
  return value;
}

/// Of a, for a column of y.
uint column_of_group(uint col) { return col / pc.group * pc.a_group + col % pc.group; }

void main() {
  const uint col = 4 * (gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex);
  if (col >= pc.n) return;
  const uint row = gl_WorkGroupID.y;
  const uint source = pc.gather != 0 ? Uints(pc.row_index).v[row] : row;
  // What is read side by side lies in one group: quads do not cross groups, single columns are found
  // one by one.
  const uint a_row = source * pc.a_stride;
  const uint a_first = a_row + (kind == ELEMENTWISE_COPY_GROUPS ? column_of_group(col) : col);
  const uint b_row = source * pc.b_stride;
  const uint y_first = row * pc.y_stride + col;
  if (pc.quads != 0) {
    const vec4 a = Vec4s(pc.a).v[a_first / 4];
    vec4 b = vec4(0.0);
    if (kHasB) b = Vec4s(pc.b).v[(b_row + col) / 4];
    if (kHasGroups) b = vec4(Floats(pc.b).v[b_row + col / pc.group]);
    Vec4s(pc.y).v[y_first / 4] = vec4(value_of(a.x, b.x), value_of(a.y, b.y), value_of(a.z, b.z),
                                      value_of(a.w, b.w));
  } else {
    for (uint i = 0; i < min(4u, pc.n - col); ++i) {
      float b = 0.0;
      if (kHasB) b = Floats(pc.b).v[b_row + col + i];
      if (kHasGroups) b = Floats(pc.b).v[b_row + (col + i) / pc.group];
      const uint a_at = kind == ELEMENTWISE_COPY_GROUPS ? a_row + column_of_group(col + i) : a_first + i;
      Floats(pc.y).v[y_first + i] = value_of(Floats(pc.a).v[a_at], b);
    }
  }
}
