#version 460

#include "common/buffers.glsl"
#include "sampling/fixed_point.glsl"
#include "log_probs/log_probs.h"

// One workgroup per row of logits: log p(t) = (x(t) - max) - log sum exp(x - max), of one token and of the best. Logits
// are taken as sampling takes them (canonical), and ordered as it orders them: by falling value, equal ones by rising id.

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer LogProbsRows {
  LogProbsRow v[];
};

const uint kBitsOfMinusInfinity = 0xFF800000u;

shared uint best_key[workgroup_size];
shared uint best_id[workgroup_size];
shared float sums[workgroup_size];

uint first;  // index of the row's token 0 among the logits

uint key_of(uint id) { return score_key(canonical_bits(Uints(pc.logits).v[first + id])); }

/// Leaves the token that comes next behind that one in best_key[0] and best_id[0]; key 0: there is none.
void find_next(uint lane, uint last_key, uint last_id) {
  uint key = 0;
  uint id = 0;
  for (uint i = lane; i < pc.n_vocab; i += workgroup_size) {
    const uint its = key_of(i);
    const bool is_behind = its < last_key || (its == last_key && i > last_id);
    if (is_behind && its > key) {
      key = its;
      id = i;
    }
  }
  barrier();  // what the last call left has been read
  best_key[lane] = key;
  best_id[lane] = id;
  barrier();
  [[dont_unroll]] for (uint width = workgroup_size / 2; width > 0; width /= 2) {
    if (lane < width) {
      const uint other = lane + width;
      if (best_key[other] > best_key[lane] ||
          (best_key[other] == best_key[lane] && best_id[other] < best_id[lane])) {
        best_key[lane] = best_key[other];
        best_id[lane] = best_id[other];
      }
    }
    barrier();
  }
}

/// Of exp(x - most), each lane's terms with what rounding lost of them.
float sum_of_exp(uint lane, float most) {
  precise float sum = 0.0;
  precise float lost = 0.0;
  for (uint i = lane; i < pc.n_vocab; i += workgroup_size) {
    const uint key = key_of(i);
    precise const float term = key > kKeyOfMinusInfinity ? exp(score_of_key(key) - most) : 0.0;
    precise const float mended = term - lost;
    precise const float next = sum + mended;
    lost = (next - sum) - mended;
    sum = next;
  }
  sums[lane] = sum;
  barrier();
  [[dont_unroll]] for (uint width = workgroup_size / 2; width > 0; width /= 2) {
    if (lane < width) sums[lane] += sums[lane + width];
    barrier();
  }
  return sums[0];
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const LogProbsRow row = LogProbsRows(pc.rows).v[gl_WorkGroupID.x];
  if (row.n_results == 0) return;
  first = gl_WorkGroupID.x * pc.n_vocab;
  uint token = row.token;
  if ((token & 0x80000000u) != 0) token = Uints(pc.sampled).v[token & 0x7FFFFFFFu];
  token = min(token, pc.n_vocab - 1);

  float most = 0.0;
  float log_sum = 0.0;
  Uvec2s results = Uvec2s(pc.results);
  for (uint i = 0; i < row.n_results; ++i) {
    // One call: drivers inline each, and take long for barriers in loops. The best token is the second result.
    if (i != 1) find_next(lane, i == 0 ? ~0u : best_key[0], i == 0 ? 0 : best_id[0]);
    if (i == 0) {
      most = score_of_key(best_key[0]);
      if (best_key[0] > kKeyOfMinusInfinity) log_sum = log(sum_of_exp(lane, most));
    }
    const uint id = i == 0 ? token : best_id[0];
    const uint key = i == 0 ? key_of(token) : best_key[0];
    const float value = (score_of_key(key) - most) - log_sum;
    const uint bits = key > kKeyOfMinusInfinity ? floatBitsToUint(value) : kBitsOfMinusInfinity;
    if (lane == 0) results.v[gl_WorkGroupID.x * pc.stride + i] = uvec2(id, bits);
  }
}
