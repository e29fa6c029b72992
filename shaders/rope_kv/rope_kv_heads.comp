#version 460

#include "common/buffers.glsl"
#include "rope_kv/rope_kv_heads.h"
#include "rope_kv/kv_write.glsl"

// As rope_kv.comp, with biases and norms of heads before: one workgroup per row and head, of q, then of
// k, then of v. The head with its bias is kept in shared memory, since an element needs its pair's other
// one and the sum of all squares, while q is updated in place.

const uint half_dims = rope_dims / 2;

shared float kept[head_dim];
shared float partial[workgroup_size];

// A head on its way into a quantised type: it is whole when its scales are found.
const bool any_quantised = k_type >= KV_Q8_0 || v_type >= KV_Q8_0;
shared float rotated[any_quantised ? head_dim : 1];
shared float quant_scales[any_quantised ? head_dim / 32 : 1];

float normed(uint d, float scale, Floats weight) {
  return head_norms != 0 ? kept[d] * scale * weight.v[d] : kept[d];
}

/// The scale of the 32 elements from `first` on: of the first of largest magnitude in Q4_0.
float quant_scale(uint type, uint first) {
  float largest = 0.0;
  for (uint d = first; d < first + 32; ++d) {
    if (abs(rotated[d]) > abs(largest)) largest = rotated[d];
  }
  return type == KV_Q8_0 ? abs(largest) / 127.0 : largest / -8.0;
}

/// Element `d` in units of its scale.
float in_scales(uint d) {
  const float scale = quant_scales[d / 32];
  return scale != 0.0 ? rotated[d] / scale : 0.0;
}

/// `rotated` into the token's row of the head at `target`. All lanes get here.
void write_quantised(uint type, uvec2 target, uint token, bool is_v, uint lane) {
  const uint dim = is_v ? v_dim : head_dim;
  const uint quant_blocks = dim / 32;
  barrier();
  for (uint b = lane; b < quant_blocks; b += workgroup_size) {
    quant_scales[b] = quant_scale(type, b * 32);
  }
  barrier();
  Uints words = Uints(target);
  const uint row_words = kv_value_bytes(type, dim) / 4;
  for (uint w = lane; w < row_words; w += workgroup_size) {
    uint word = 0;
    if (type == KV_Q8_0) {
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        word |= (uint(int(roundEven(in_scales(w * 4 + i)))) & 0xFFu) << (8 * i);
      }
    } else {
      [[unroll]] for (uint i = 0; i < 8; ++i) {
        word |= uint(clamp(roundEven(in_scales(w * 8 + i)) + 8.0, 0.0, 15.0)) << (4 * i);
      }
    }
    words.v[is_v ? token * row_words + w : w / 4 * 64 + token * 4 + w % 4] = word;
  }
  const uint first_scale = 16 * row_words;
  const uint scale_words = kv_scale_words(dim);
  for (uint s = lane; s < scale_words; s += workgroup_size) {
    const float second = 2 * s + 1 < quant_blocks ? quant_scales[2 * s + 1] : 0.0;
    words.v[first_scale + (is_v ? token * scale_words + s : s * 16 + token)] =
        half2_bits(quant_scales[2 * s], second);
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint row = gl_WorkGroupID.x;
  const uint head = gl_WorkGroupID.y;
  const bool is_q = head < pc.n_heads;
  const uint n_keyed = pc.n_heads + pc.n_kv_heads;  // heads of head_dim numbers
  const bool is_v = head >= n_keyed;
  const uint dim = is_v ? v_dim : head_dim;
  const uint column = is_v ? n_keyed * head_dim + (head - n_keyed) * v_dim : head * head_dim;
  const uint first = row * pc.row_stride + column;
  Floats x = Floats(pc.qkv);

  float sum = 0.0;
  for (uint d = lane; d < dim; d += workgroup_size) {
    float value = x.v[first + d];
    if (biases != 0) value += Floats(pc.bias).v[column + d];
    kept[d] = value;
    sum = fma(value, value, sum);
  }
  partial[lane] = sum;
  barrier();
  float scale = 1.0;
  if (head_norms != 0) {
    for (uint width = workgroup_size / 2; width > 0; width /= 2) {
      if (lane < width) partial[lane] += partial[lane + width];
      barrier();
    }
    scale = 1.0 / sqrt(partial[0] / float(head_dim) + pc.norm_eps);
  }

  const uint position = Uints(pc.positions).v[row];
  const uint first_angle = position * half_dims;
  const uint table_index = Uints(pc.row_seq).v[row] * pc.table_stride + position / 16;
  const uvec2 block = address_add(Uvec2s(pc.block_table).v[table_index], pc.layer_offset);
  Floats weight = Floats(is_q ? pc.q_norm : pc.k_norm);
  const uint kv_head = head - pc.n_heads - (is_v ? pc.n_kv_heads : 0);
  const uint type = is_v ? v_type : k_type;
  const uvec2 target =
      address_add(block, is_v ? v_head_offset(kv_head, pc.n_kv_heads, k_type, v_type)
                              : k_head_offset(kv_head, k_type));

  for (uint d = 2 * lane; d < dim; d += 2 * workgroup_size) {
    float values[2];
    [[unroll]] for (uint i = 0; i < 2; ++i) {
      const uint e = d + i;
      if (is_v) {
        values[i] = kept[e];
        continue;
      }
      values[i] = normed(e, scale, weight);
      if (e >= rope_dims) continue;
      const uint pair = halves != 0 ? (e < half_dims ? e : e - half_dims) : e / 2;
      const bool is_second = halves != 0 ? e >= half_dims : (e & 1) != 0;
      const uint step = halves != 0 ? half_dims : 1;
      const float other = normed(is_second ? e - step : e + step, scale, weight);
      const vec2 angle = Vec2s(pc.rope_table).v[first_angle + pair];
      values[i] = fma(values[i], angle.x, other * (is_second ? angle.y : -angle.y));
    }
    if (is_q) {
      x.v[first + d] = values[0];
      x.v[first + d + 1] = values[1];
    } else if (kv_quantised(type)) {
      rotated[d] = values[0];
      rotated[d + 1] = values[1];
    } else {
      write_kv(type, target, position % 16, is_v, d, values[0], values[1]);
    }
  }
  if (!is_q && kv_quantised(type)) write_quantised(type, target, position % 16, is_v, lane);
}
