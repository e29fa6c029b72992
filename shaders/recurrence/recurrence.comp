#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "common/state_item.h"
#include "recurrence/recurrence.h"
#include "recurrence/softplus.glsl"

// A workgroup takes workgroup_size / kLanes columns of one head's state through the rows of one
// sequence, one row after the other; kLanes invocations share a column, each with every kLanes-th of
// its keys. A row's sums are the same wherever its sequence is cut: by steps, or by dispatches of one
// step, of which each goes on with what the one before it has left.
// States whose numbers decay each by itself are recurrence_states.comp's.

const uint kLanes = 16;
const uint kPerLane = (key_dim + kLanes - 1) / kLanes;

// By turns, so that one barrier parts a row's sums from the next one's.
shared float partial_u[2 * workgroup_size];
shared float partial_y[2 * workgroup_size];
// What a row leaves of each key's column, where those decay by themselves.
shared float key_decay[kPerLane * kLanes];

/// Written by the whole workgroup. Nobody reads columns beyond the keys but as factors of zero.
void find_key_decays(uint row, uint head, float a) {
  for (uint key = gl_LocalInvocationIndex; key < kPerLane * kLanes; key += workgroup_size) {
    float left = 0.0;
    if (key < key_dim) {
      const uint at = head * key_dim + key;
      const float step = Floats(pc.step).v[row * pc.step_stride + at];
      left = exp(a * softplus(step + Floats(pc.bias).v[at]));
    }
    key_decay[key] = left;
  }
}

/// Of a column's invocations, in their order.
float sum_u(uint first) {
  float sum = 0.0;
  for (uint i = 0; i < kLanes; ++i) sum += partial_u[first + i];
  return sum;
}
float sum_y(uint first) {
  float sum = 0.0;
  for (uint i = 0; i < kLanes; ++i) sum += partial_y[first + i];
  return sum;
}

void main() {
  const uint lane = gl_LocalInvocationIndex % kLanes;
  const uint in_group = gl_LocalInvocationIndex / kLanes;
  const uint column = gl_WorkGroupID.x * (workgroup_size / kLanes) + in_group;
  const bool in_range = column < value_dim;
  const uint head = pc.first_head + gl_WorkGroupID.y;
  const uint key_head = by_remainder != 0 ? head % key_heads : head / heads_per_key;
  const StateItem item = StateItems(pc.items).v[gl_WorkGroupID.z];
  if (pc.first_row != 0 && pc.first_row >= item.n_rows) return;  // its last row is behind it
  const uvec2 source = pc.first_row == 0 ? item.before : item.after;
  const bool begins = pc.first_row == 0 && item.begins != 0;
  const uint state = (head * value_dim + column) * key_dim;
  const float a = Floats(pc.a).v[head];
  const float bias = Floats(pc.bias).v[head];
  const float d = has_d != 0 ? Floats(pc.d).v[head] : 0.0;

  float s[kPerLane];
  for (uint i = 0; i < kPerLane; ++i) {
    const uint key = i * kLanes + lane;
    s[i] = 0.0;
    if (in_range && key < key_dim && !begins) {
      s[i] = Floats(address_add(source, pc.state_offset)).v[state + key];
    }
  }

  if (decay == RECURRENCE_DECAY_KEY) {
    find_key_decays(item.first_row + pc.first_row, head, a);
    barrier();
  }

  const uint end = min(item.n_rows, pc.first_row + pc.n_rows);
  for (uint r = pc.first_row; r < end; ++r) {
    const uint row = item.first_row + r;
    const uint turn = (r & 1) * workgroup_size;
    float dt = 0.0;
    float left = 1.0;  // of a state
    if (decay != RECURRENCE_DECAY_KEY) {
      dt = softplus(Floats(pc.step).v[row * pc.step_stride + head] + bias);
      left = exp(a * dt);
    }
    const uint k_first = row * pc.k_stride + key_head * key_dim;
    const uint q_first = row * pc.q_stride + key_head * key_dim;
    const uint v_at = row * pc.v_stride + head * value_dim + (in_range ? column : 0);
    const float v = Floats(pc.v).v[v_at];

    float k[kPerLane];
    float known = 0.0;
    for (uint i = 0; i < kPerLane; ++i) {
      const uint key = i * kLanes + lane;
      k[i] = key < key_dim ? Floats(pc.k).v[k_first + key] * pc.k_scale : 0.0;
      if (decay == RECURRENCE_DECAY_KEY) left = key_decay[key];
      s[i] *= left;
      known = fma(s[i], k[i], known);
    }
    float u = dt * v;
    if (delta != 0) {
      partial_u[turn + gl_LocalInvocationIndex] = known;
      barrier();
      const float beta = sigmoid(Floats(pc.beta).v[row * pc.beta_stride + head]);
      u = beta * (v - sum_u(turn + in_group * kLanes));
      // All have multiplied by the row's own; the next barrier parts these from who reads them.
      if (decay == RECURRENCE_DECAY_KEY && r + 1 < end) find_key_decays(row + 1, head, a);
    }
    float y = 0.0;
    for (uint i = 0; i < kPerLane; ++i) {
      const uint key = i * kLanes + lane;
      const float q = key < key_dim ? Floats(pc.q).v[q_first + key] * pc.q_scale : 0.0;
      s[i] = fma(u, k[i], s[i]);
      y = fma(s[i], q, y);
    }
    partial_y[turn + gl_LocalInvocationIndex] = y;
    barrier();
    if (in_range && lane == 0) {
      const float sum = sum_y(turn + in_group * kLanes);
      Floats(pc.y).v[row * pc.y_stride + head * value_dim + column] = fma(d, v, sum);
    }
  }

  for (uint i = 0; i < kPerLane; ++i) {
    const uint key = i * kLanes + lane;
    if (in_range && key < key_dim) {
      Floats(address_add(item.after, pc.state_offset)).v[state + key] = s[i];
    }
  }
}
