#version 460

#include "common/buffers.glsl"
#include "sampling/fixed_point.glsl"
#include "sampling/sampling.h"

// One workgroup chooses the token of one row, as sampling/reference_sampler.hpp defines.
//
// Everything after the best token is one search, run for up to five stages: the smallest code (the
// complemented key, or the id) up to which the tokens still kept have at least a target mass. The
// search reads all tokens once per 8 bits of the code and histograms their mass by the next 8 bits,
// in integers, so neither the order of the additions nor that of the tokens matters.

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer SamplingRows {
  SamplingRow v[];
};
// Written by one invocation and read by others of the workgroup: keys, and counts where rows follow one another.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Keys { uint v[]; };

const uint kStageTopK = 0;      // by key, counting tokens
const uint kStageTopKTies = 1;  // by id, among the last key kept
const uint kStageTopP = 2;      // by key, adding weights
const uint kStageTopPTies = 3;
const uint kStageDraw = 4;  // by id, adding weights at the temperature

const uint kBins = 256;
const uint kGroup = 16;  // bins are summed in groups of as many
const uint kListSize = 512;

shared uint best_key[workgroup_size];
shared uint best_id[workgroup_size];
shared uint mass_low[kBins], mass_high[kBins];
shared uvec2 group_mass[kBins / kGroup];
shared uint list_key[kListSize], list_id[kListSize];
shared uint list_size;

SamplingRow row;
uint first;     // index of the row's token 0 in logits and scratch
bool adjusted;  // keys are in scratch
bool listed;    // the tokens kept are in the list
bool counts_change;  // while the workgroup runs

uint raw_key(uint id) { return score_key(canonical_bits(Uints(pc.logits).v[first + id])); }

uint key_of(uint id) { return adjusted ? Keys(pc.scratch).v[first + id] : raw_key(id); }

uint adjusted_key(uint id, float bias) {
  if (row.mask != uvec2(0) && (Uints(row.mask).v[id / 32] >> (id % 32) & 1u) == 0) {
    return kKeyOfMasked;
  }
  precise float score = canonical_bits(Uints(pc.logits).v[first + id]);
  score = canonical(score + bias);
  uint count = 0;
  if (row.counts != uvec2(0)) count = counts_change ? Keys(row.counts).v[id] : Uints(row.counts).v[id];
  if (count != 0) {
    score = canonical(score * (score > 0.0 ? row.inverse_repeat : row.repeat));
    const uint in_output = min(count & 0x7FFFFFFFu, 1u << 24);
    if (in_output != 0) {
      precise const float frequency = canonical(row.frequency * float(in_output));
      score = canonical(score - frequency);
      score = canonical(score - row.presence);
    }
  }
  return score_key(score);
}

/// Keys of all tokens to scratch; then again of those that have a bias.
void write_adjusted_keys(uint lane) {
  for (uint pass = 0; pass < 2; ++pass) {
    const uint n = pass == 0 ? pc.n_vocab : row.n_bias;
    for (uint i = lane; i < n; i += workgroup_size) {
      const uvec2 entry = pass == 0 ? uvec2(i, 0) : Uvec2s(row.bias).v[i];
      Keys(pc.scratch).v[first + entry.x] = adjusted_key(entry.x, uintBitsToFloat(entry.y));
    }
    memoryBarrierBuffer();
    barrier();
  }
}

/// Leaves the largest key and the lowest id that has it in best_key[0] and best_id[0].
void find_best(uint lane) {
  uint key = 0;
  uint id = 0;
  // Four loads are under way at a time; a later token wins only with a larger key.
  for (uint base = lane; base < pc.n_vocab; base += 4 * workgroup_size) {
    uvec4 keys;
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const uint i = base + j * workgroup_size;
      keys[j] = i < pc.n_vocab ? key_of(i) : 0;
    }
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (keys[j] > key) {
        key = keys[j];
        id = base + j * workgroup_size;
      }
    }
  }
  best_key[lane] = key;
  best_id[lane] = id;
  barrier();
  for (uint width = workgroup_size / 2; width > 0; width /= 2) {
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

uint weight_of(uint key, float best_score, uint stage) {
  if (stage <= kStageTopKTies) return 1;
  const float distance = canonical(best_score - score_of_key(key));
  const uint weight = fixed_exp(distance);
  if (stage != kStageDraw) return weight;
  precise const float scaled = distance * row.inverse_temperature;
  return weight < row.min_p_q24 ? 0 : fixed_exp(scaled);
}

uint draw(uint lane) {
  const float best_score = score_of_key(best_key[0]);
  // Tokens kept: those with a larger key than last_key, and those with that key up to last_id.
  uint last_key = kKeyOfMinusInfinity + 1;
  uint last_id = ~0u;
  uint n = pc.n_vocab;
  uvec2 target = uvec2(0);
  bool ties = false;  // fewer tokens with last_key are wanted than there are
  uint code = 0;

  for (uint stage = kStageTopK; stage <= kStageDraw; ++stage) {
    if (stage == kStageTopP && row.top_k <= kListSize && row.top_k < pc.n_vocab) {
      for (uint i = lane; i < n; i += workgroup_size) {
        const uint key = key_of(i);
        if (key < last_key || (key == last_key && i > last_id)) continue;
        const uint place = atomicAdd(list_size, 1);
        list_key[place] = key;
        list_id[place] = i;
      }
      barrier();
      listed = true;
      n = list_size;
    }
    if (stage == kStageTopK && row.top_k >= pc.n_vocab) continue;
    if (stage == kStageTopP && row.top_p_q32 == ~0u) continue;
    const bool among_ties = stage == kStageTopKTies || stage == kStageTopPTies;
    if (among_ties && !ties) continue;
    const bool by_id = among_ties || stage == kStageDraw;
    const int top_shift = !by_id ? 24 : pc.n_vocab > 0x10000u ? 16 : pc.n_vocab > 0x100u ? 8 : 0;

    bool reached = true;
    uvec2 last_mass = uvec2(0);  // of the bin in which the target was reached
    code = 0;
    for (int shift = top_shift; shift >= 0; shift -= 8) {
      for (uint bin = lane; bin < kBins; bin += workgroup_size) mass_low[bin] = mass_high[bin] = 0;
      barrier();
      for (uint i = lane; i < n; i += workgroup_size) {
        const uint key = listed ? list_key[i] : key_of(i);
        const uint id = listed ? list_id[i] : i;
        if (key < last_key || (key == last_key && id > last_id)) continue;
        if (among_ties && key != last_key) continue;
        const uint item = by_id ? id : ~key;
        if (shift < top_shift && item >> (shift + 8) != code) continue;
        const uint weight = weight_of(key, best_score, stage);
        const uint bin = (item >> shift) & (kBins - 1);
        const uint before = atomicAdd(mass_low[bin], weight);
        if (before + weight < before) atomicAdd(mass_high[bin], 1);
      }
      barrier();
      for (uint group = lane; group < kBins / kGroup; group += workgroup_size) {
        uvec2 sum = uvec2(0);
        for (uint bin = group * kGroup; bin < (group + 1) * kGroup; ++bin) {
          sum = add64(sum, uvec2(mass_low[bin], mass_high[bin]));
        }
        group_mass[group] = sum;
      }
      barrier();

      if (shift == top_shift && !among_ties) {
        uvec2 total = uvec2(0);
        for (uint group = 0; group < kBins / kGroup; ++group) total = add64(total, group_mass[group]);
        if (stage == kStageTopK) {
          target = uvec2(row.top_k, 0);
          reached = !less64(total, target);
        } else if (stage == kStageTopP) {
          target = scale_ceil(row.top_p_q32, total);
          if (target == uvec2(0)) target.x = 1;  // the best token stays
        } else {
          const uvec4 counter = uvec4(row.index_low, row.index_high, 0, 0);
          const uint random = philox(counter, uvec2(row.seed_low, row.seed_high));
          target = add64(scale_floor(random, total), uvec2(1, 0));
        }
      }
      if (reached) {
        // Every invocation walks to the group and then the bin in which the target is reached.
        uint bin = 0;
        for (uvec2 mass = group_mass[0]; less64(mass, target); mass = group_mass[bin / kGroup]) {
          target = subtract64(target, mass);
          bin += kGroup;
        }
        uvec2 mass = uvec2(mass_low[bin], mass_high[bin]);
        while (less64(mass, target)) {
          target = subtract64(target, mass);
          ++bin;
          mass = uvec2(mass_low[bin], mass_high[bin]);
        }
        last_mass = mass;
        code = (code << 8) | bin;
      }
      barrier();  // the bins are cleared next
      if (!reached) break;
    }

    if (among_ties) {
      last_id = code;
      ties = false;
    } else if (stage != kStageDraw && reached) {
      if (~code != last_key) last_id = ~0u;
      last_key = ~code;
      const uvec2 one = uvec2(weight_of(last_key, best_score, stage), 0);
      ties = !less64(subtract64(last_mass, one), target);
    }
  }
  return code;
}

/// The id of the row at `index`, for all invocations.
uint choose(uint lane, uint index) {
  first = index * pc.n_vocab;
  listed = false;
  adjusted = false;
  if (greedy_only == 0) {
    if (lane == 0) list_size = 0;  // find_best has barriers before it is used
    adjusted = row.counts != uvec2(0) || row.mask != uvec2(0) || row.n_bias > 0;
    if (adjusted) write_adjusted_keys(lane);
  }
  find_best(lane);
  if (greedy_only == 0 && row.inverse_temperature != 0.0 && best_key[0] > kKeyOfMinusInfinity) {
    return draw(lane);
  }
  return best_id[0];
}

void tell(uint id) {
  Uints(pc.sampled).v[row.place] = id;
  if (greedy_only == 0 && row.counts != uvec2(0)) {
    const uint count = Keys(row.counts).v[id];
    if ((count & 0x7FFFFFFFu) != 0x7FFFFFFFu) Keys(row.counts).v[id] = count + 1;
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  uint index = gl_WorkGroupID.x;
  row = SamplingRows(pc.rows).v[index];
  if (row.skip != 0) return;
  const uint last = index + (greedy_only == 0 ? row.n_followers : 0);
  counts_change = last > index;
  while (true) {
    const uint id = choose(lane, index);
    if (lane == 0) tell(id);
    if (index == last || id != row.drafted) return;
    memoryBarrierBuffer();
    barrier();
    row = SamplingRows(pc.rows).v[++index];
  }
}
