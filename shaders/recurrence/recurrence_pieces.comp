#version 460

#include "common/activation.glsl"
#include "common/buffers.glsl"
#include "common/state_item.h"
#include "recurrence/recurrence_pieces.h"
#include "recurrence/softplus.glsl"

// recurrence.comp's sums for many rows, where all of a head or a key's column of it decays alike. A
// workgroup takes some columns of one head's state through the rows of one sequence, a piece of them
// at a time. With S what is before a piece, g(i, j) what the rows behind j up to i leave, and g(i)
// what all up to i do,
//
//   y_i = g(i) S q_i + sum over j <= i of g(i, j) (k_j q_i) u_j
//   S'  = g(n) S + sum over j of g(n, j) u_j k_j^T
//   u_i = beta_i (v_i - g(i) S k_i - sum over j < i of g(i, j) (k_j k_i) u_j)    if delta
//
// (Dao and Gu 2024; Yang et al. 2024): products of matrices, and of each column a triangle that is
// solved row by row. Each g is an exponential of a sum of its own, so nothing is ever divided. Where
// keys decay by themselves (Kimi Team 2025) there is a g for each key, which multiplies k_j, q_i and
// the columns of S: the product of what each row between them leaves of it, one exponential a row
// and key. Neither is ever above 1, so what is too small becomes zero and nothing overflows.
// Pieces begin at a sequence's first row, wherever dispatches do: the bits are the same.
//
// Loops that need not be are not unrolled: compiling a delta net's of 128 keys takes lavapipe 25.0
// 2 s of CPU time so, 10 s with those that its compiler would unroll.

const uint kLanes = RECURRENCE_PIECES_LANES;
const uint kLaneColumns = RECURRENCE_PIECES_LANE_COLUMNS;
const uint kGroups = workgroup_size / kLanes;
const uint kColumns = kGroups * kLaneColumns;
/// Rows of which each invocation adds up one sum.
const uint kRoundRows = kLanes / kLaneColumns;
const uint kKeyQuads = (key_dim + 3) / 4;
const uint kLaneQuads = (kKeyQuads + kLanes - 1) / kLanes;
// Strides are odd in units of what is read at once, so that lanes reach different banks.
const uint kRowQuads = kKeyQuads | 1;
const uint kPartialStride = workgroup_size + 1;
const uint kPairStride = piece_rows + 1;

// Where keys decay by themselves so many invocations share a row's keys for its pairs.
const bool kKeysDecay = decay == RECURRENCE_DECAY_KEY;
const uint kSlices = workgroup_size / piece_rows;
const uint kSliceQuads = (kKeyQuads + kSlices - 1) / kSlices;
const uint kSliceStride = piece_rows * piece_rows + 1;
const uint kSlicePartials = kKeysDecay ? kSlices * kSliceStride : 0;
const uint kLanePartials = kLanes * kPartialStride;

// Where parts of `rows` begin. If a head decays as one its keys are what the state is asked of too;
// else those have a part, in which what each row leaves of each key is first, and behind it is what
// all of them leave.
const uint kKeys = piece_rows;
const uint kAskedKeys = kKeysDecay ? 2 * piece_rows : piece_rows;
const uint kLeftOfKeys = 3 * piece_rows;

/// Queries, then keys: zero behind the last row and the last key.
shared vec4 rows[(kKeysDecay ? 3 * piece_rows + 1 : 2 * piece_rows) * kRowQuads];
/// [row][row]: from the diagonal down of queries with keys, above it of keys with keys.
shared float pairs[piece_rows * kPairStride];
/// [row][column]: what the state takes in, u.
shared float taken[piece_rows * kColumns];
/// [row][column]: what the state before answers, decayed.
shared float asked[piece_rows * kColumns];
shared float partial[kSlicePartials > kLanePartials ? kSlicePartials : kLanePartials];
shared float log_left[piece_rows];
shared float factor[piece_rows];  // the size of a step, or beta
shared float since_start[piece_rows];
shared float until_end[piece_rows];

vec4 quad_of(uvec2 address, uint first, uint key, float scale) {
  vec4 quad;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const float one = Floats(address).v[first + min(key + i, key_dim - 1)];
    quad[i] = key + i < key_dim ? one * scale : 0.0;
  }
  return quad;
}

void load_rows(uint row, uint n, uint key_head) {
  [[dont_unroll]] for (uint at = gl_LocalInvocationIndex; at < 2 * piece_rows * kKeyQuads;
                       at += workgroup_size) {
    const uint i = at / kKeyQuads;
    const uint quad = at % kKeyQuads;
    const bool is_key = i >= piece_rows;
    const uint r = is_key ? i - piece_rows : i;
    vec4 value = vec4(0.0);
    if (r < n) {
      const uint head_first = key_head * key_dim;
      value = is_key
                  ? quad_of(pc.k, (row + r) * pc.k_stride + head_first, 4 * quad, pc.k_scale)
                  : quad_of(pc.q, (row + r) * pc.q_stride + head_first, 4 * quad, pc.q_scale);
    }
    rows[i * kRowQuads + quad] = value;
  }
}

void load_steps(uint row, uint n, uint head) {
  for (uint r = gl_LocalInvocationIndex; r < piece_rows; r += workgroup_size) {
    float left = 0.0, f = 0.0;
    if (r < n) {
      if (!kKeysDecay) {
        const float step = Floats(pc.step).v[(row + r) * pc.step_stride + head];
        f = softplus(step + Floats(pc.bias).v[head]);
        left = Floats(pc.a).v[head] * f;
      }
      if (delta != 0) f = sigmoid(Floats(pc.beta).v[(row + r) * pc.beta_stride + head]);
    }
    log_left[r] = left;
    factor[r] = f;
  }
}

/// What each row leaves of each key.
void load_decays(uint row, uint n, uint head) {
  const float a = Floats(pc.a).v[head];
  [[dont_unroll]] for (uint at = gl_LocalInvocationIndex; at < piece_rows * kKeyQuads;
                       at += workgroup_size) {
    const uint r = at / kKeyQuads;
    const uint quad = at % kKeyQuads;
    vec4 left = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      const uint key = 4 * quad + i;
      if (r < n && key < key_dim) {
        const uint own = head * key_dim + key;
        const float step = Floats(pc.step).v[(row + r) * pc.step_stride + own];
        left[i] = exp(a * softplus(step + Floats(pc.bias).v[own]));
      }
    }
    rows[(kAskedKeys + r) * kRowQuads + quad] = left;
  }
}

/// What rows `first` to before `end` leave together.
float left_by(uint first, uint end) {
  float sum = 0.0;
  for (uint r = first; r < end; ++r) sum += log_left[r];
  return exp(sum);
}

void find_pairs(uint n) {
  [[dont_unroll]] for (uint at = gl_LocalInvocationIndex; at < piece_rows * piece_rows;
                       at += workgroup_size) {
    const uint i = at / piece_rows;
    const uint j = at % piece_rows;
    const bool with_query = j <= i;
    if (max(i, j) >= n || (!with_query && delta == 0)) continue;
    const uint first = ((with_query ? 0 : kKeys) + i) * kRowQuads;
    const uint second = (kKeys + j) * kRowQuads;
    vec4 sum = vec4(0.0);
    [[dont_unroll]] for (uint quad = 0; quad < kKeyQuads; ++quad) {
      sum = fma(rows[first + quad], rows[second + quad], sum);
    }
    const float product = (sum.x + sum.y) + (sum.z + sum.w);
    const float left = left_by(min(i, j) + 1, max(i, j) + 1);
    pairs[i * kPairStride + j] = product * left * (with_query ? 1.0 : factor[j]);
  }
  for (uint r = gl_LocalInvocationIndex; r < n; r += workgroup_size) {
    since_start[r] = left_by(0, r + 1);
    until_end[r] = left_by(r + 1, n);
  }
}

/// The pairs where keys decay by themselves, and then rows as the state meets them: queries and
/// asked keys decayed from the piece's start, keys that it takes in until the piece's end. An
/// invocation takes some of row j's keys through the rows behind it.
void find_pairs_of_keys(uint n) {
  const uint slice = gl_LocalInvocationIndex % kSlices;
  const uint j = gl_LocalInvocationIndex / kSlices;
  vec4 key[kSliceQuads];  // as rows up to i leave it
  if (j < n) {
    [[unroll]] for (uint s = 0; s < kSliceQuads; ++s) {
      const uint quad = s * kSlices + slice;
      key[s] = quad < kKeyQuads ? rows[(kKeys + j) * kRowQuads + quad] : vec4(0.0);
    }
    [[dont_unroll]] for (uint i = j; i < n; ++i) {
      vec4 with_query = vec4(0.0), with_key = vec4(0.0);
      [[unroll]] for (uint s = 0; s < kSliceQuads; ++s) {
        const uint quad = min(s * kSlices + slice, kKeyQuads - 1);
        if (i != j) key[s] *= rows[(kAskedKeys + i) * kRowQuads + quad];
        with_query = fma(rows[i * kRowQuads + quad], key[s], with_query);
        with_key = fma(rows[(kKeys + i) * kRowQuads + quad], key[s], with_key);
      }
      const uint first = slice * kSliceStride;
      partial[first + i * piece_rows + j] =
          (with_query.x + with_query.y) + (with_query.z + with_query.w);
      if (i != j) {
        partial[first + j * piece_rows + i] =
            (with_key.x + with_key.y) + (with_key.z + with_key.w);
      }
    }
  }
  barrier();
  for (uint quad = gl_LocalInvocationIndex; quad < kKeyQuads; quad += workgroup_size) {
    vec4 left = vec4(1.0);
    [[dont_unroll]] for (uint r = 0; r < n; ++r) {
      const uint at = r * kRowQuads + quad;
      left *= rows[kAskedKeys * kRowQuads + at];
      rows[kAskedKeys * kRowQuads + at] = rows[kKeys * kRowQuads + at] * left;
      rows[at] *= left;
    }
    rows[kLeftOfKeys * kRowQuads + quad] = left;
  }
  for (uint at = gl_LocalInvocationIndex; at < piece_rows * piece_rows; at += workgroup_size) {
    const uint first = at / piece_rows;
    const uint second = at % piece_rows;
    if (max(first, second) >= n) continue;
    float sum = 0.0;
    [[dont_unroll]] for (uint s = 0; s < kSlices; ++s) sum += partial[s * kSliceStride + at];
    pairs[first * kPairStride + second] = second <= first ? sum : sum * factor[second];
  }
  barrier();
  if (j < n) {
    [[unroll]] for (uint s = 0; s < kSliceQuads; ++s) {
      const uint quad = s * kSlices + slice;
      if (quad < kKeyQuads) rows[(kKeys + j) * kRowQuads + quad] = key[s];
    }
  }
}

/// (I + B) u = what is there, with B the keys' products below the diagonal: each column by itself.
void solve_taken(uint n) {
  for (uint column = gl_LocalInvocationIndex; column < kColumns; column += workgroup_size) {
    for (uint i = 1; i < n; ++i) {
      float u = taken[i * kColumns + column];
      for (uint j = 0; j < i; ++j) {
        u = fma(-pairs[j * kPairStride + i], taken[j * kColumns + column], u);
      }
      taken[i * kColumns + column] = u;
    }
  }
}

vec4 s[kLaneColumns * kLaneQuads];

/// The state before the piece times its queries, and times its keys if what it takes in is a delta.
/// One round's sums are added up, a row's column by an invocation, before the next one's come.
void ask_state(uint row, uint n, uint value) {
  const uint group = gl_LocalInvocationIndex % kGroups;
  const uint lane = gl_LocalInvocationIndex / kGroups;
  const uint own_row = gl_LocalInvocationIndex / kColumns;
  const uint own_column = gl_LocalInvocationIndex % kColumns;
  const uint n_rounds = (n + kRoundRows - 1) / kRoundRows;
  for (uint round = 0; round < (delta != 0 ? 2 : 1) * n_rounds; ++round) {
    const bool of_keys = round >= n_rounds;
    const uint first = (of_keys ? round - n_rounds : round) * kRoundRows;
    [[dont_unroll]] for (uint r = 0; r < kRoundRows; ++r) {
      const uint at = ((of_keys ? kAskedKeys : 0) + first + r) * kRowQuads;
      vec4 sum[kLaneColumns];
      [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) sum[c] = vec4(0.0);
      [[unroll]] for (uint i = 0; i < kLaneQuads; ++i) {
        const uint quad = i * kLanes + lane;
        const vec4 x = quad < kKeyQuads ? rows[at + quad] : vec4(0.0);
        [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
          sum[c] = fma(s[c * kLaneQuads + i], x, sum[c]);
        }
      }
      [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
        partial[lane * kPartialStride + r * kColumns + group * kLaneColumns + c] =
            (sum[c].x + sum[c].y) + (sum[c].z + sum[c].w);
      }
    }
    barrier();
    const uint own = first + own_row;
    if (own < n) {
      float sum = 0.0;
      [[dont_unroll]] for (uint i = 0; i < kLanes; ++i) {
        sum += partial[i * kPartialStride + gl_LocalInvocationIndex];
      }
      if (!kKeysDecay) sum *= since_start[own];
      const uint at = own * kColumns + own_column;
      if (!of_keys) asked[at] = sum;
      if (of_keys || delta == 0) {
        const float v = Floats(pc.v).v[(row + own) * pc.v_stride + value];
        taken[at] = factor[own] * (delta != 0 ? v - sum : v);
      }
    }
    barrier();
  }
}

/// What the piece leaves of the state, and what it has added.
void advance_state(uint n) {
  const uint group = gl_LocalInvocationIndex % kGroups;
  const uint lane = gl_LocalInvocationIndex / kGroups;
  [[unroll]] for (uint i = 0; i < kLaneQuads; ++i) {
    const uint quad = min(i * kLanes + lane, kKeyQuads - 1);
    const vec4 left =
        kKeysDecay ? rows[kLeftOfKeys * kRowQuads + quad] : vec4(since_start[n - 1]);
    [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) s[c * kLaneQuads + i] *= left;
  }
  for (uint r = 0; r < n; ++r) {
    float u[kLaneColumns];
    [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
      u[c] = taken[r * kColumns + group * kLaneColumns + c];
      if (!kKeysDecay) u[c] *= until_end[r];
    }
    [[unroll]] for (uint i = 0; i < kLaneQuads; ++i) {
      const uint quad = i * kLanes + lane;
      const vec4 k = quad < kKeyQuads ? rows[(kKeys + r) * kRowQuads + quad] : vec4(0.0);
      [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
        s[c * kLaneQuads + i] = fma(vec4(u[c]), k, s[c * kLaneQuads + i]);
      }
    }
  }
}

void main() {
  const uint group = gl_LocalInvocationIndex % kGroups;
  const uint lane = gl_LocalInvocationIndex / kGroups;
  const uint first_column = gl_WorkGroupID.x * kColumns;
  const uint head = pc.first_head + gl_WorkGroupID.y;
  const uint key_head = by_remainder != 0 ? head % key_heads : head / heads_per_key;
  const StateItem item = StateItems(pc.items).v[gl_WorkGroupID.z];
  if (pc.first_row != 0 && pc.first_row >= item.n_rows) return;  // its last row is behind it
  const uvec2 before = pc.first_row == 0 ? item.before : item.after;
  const uvec2 source = address_add(before, pc.state_offset);
  const uvec2 target = address_add(item.after, pc.state_offset);
  const bool begins = pc.first_row == 0 && item.begins != 0;

  [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
    const uint column = first_column + group * kLaneColumns + c;
    const uint state = (head * value_dim + column) * key_dim;
    [[unroll]] for (uint i = 0; i < kLaneQuads; ++i) {
      s[c * kLaneQuads + i] = column < value_dim && !begins
                                  ? quad_of(source, state, 4 * (i * kLanes + lane), 1.0)
                                  : vec4(0.0);
    }
  }

  // Of what this invocation adds up and writes: rows own_row, own_row + kRoundRows and so on.
  const uint own_row = gl_LocalInvocationIndex / kColumns;
  const uint own_column = gl_LocalInvocationIndex % kColumns;
  const uint column = first_column + own_column;
  const bool in_range = column < value_dim;
  const uint value = head * value_dim + (in_range ? column : 0);
  const float d = has_d != 0 ? Floats(pc.d).v[head] : 0.0;

  const uint end = min(item.n_rows, pc.first_row + pc.n_rows);
  for (uint r = pc.first_row; r < end; r += piece_rows) {
    const uint row = item.first_row + r;
    const uint n = min(piece_rows, end - r);
    load_rows(row, n, key_head);
    load_steps(row, n, head);
    if (kKeysDecay) load_decays(row, n, head);
    barrier();
    if (kKeysDecay) {
      find_pairs_of_keys(n);
    } else {
      find_pairs(n);
    }
    ask_state(row, n, value);  // a barrier in it comes before what reads the pairs
    if (delta != 0) {
      solve_taken(n);
      barrier();
    }
    for (uint i = own_row; i < n; i += kRoundRows) {
      float y = asked[i * kColumns + own_column];
      for (uint j = 0; j <= i; ++j) {
        y = fma(pairs[i * kPairStride + j], taken[j * kColumns + own_column], y);
      }
      if (has_d != 0) y = fma(d, Floats(pc.v).v[(row + i) * pc.v_stride + value], y);
      if (in_range) Floats(pc.y).v[(row + i) * pc.y_stride + value] = y;
    }
    advance_state(n);
    barrier();  // before the next piece's rows come
  }

  [[unroll]] for (uint c = 0; c < kLaneColumns; ++c) {
    const uint column = first_column + group * kLaneColumns + c;
    const uint state = (head * value_dim + column) * key_dim;
    [[unroll]] for (uint i = 0; i < kLaneQuads; ++i) {
      const uint key = 4 * (i * kLanes + lane);
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (column < value_dim && key + j < key_dim) {
          Floats(target).v[state + key + j] = s[c * kLaneQuads + i][j];
        }
      }
    }
  }
}
