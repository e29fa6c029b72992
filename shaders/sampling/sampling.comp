#version 460

#include "common/buffers.glsl"
#include "sampling/fixed_point.glsl"
#include "sampling/sampling.h"

// The token of a row is chosen as sampling/reference_sampler.hpp defines, by one workgroup, or in two stages: slices of
// the vocabulary, a workgroup each, leave their best token and those that may be among the top k of all, and one
// workgroup goes on with these. Where that does not do (rows that follow one another, more than kListSize tokens),
// the second stage has all tokens before it.
//
// Everything after the best token is one search, run for up to five stages: the smallest code (the
// complemented key, or the id) up to which the tokens still kept have at least a target mass. The
// search reads all tokens once per 8 bits of the code and histograms their mass by the next 8 bits,
// in integers, so neither the order of the additions nor that of the tokens matters.
//
// Loops of few rounds say that they are not unrolled: drivers would, and CPU drivers take over twice as long to
// compile the kernel then.

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer SamplingRows {
  SamplingRow v[];
};
// Written by one invocation and read by others of the workgroup: keys, and counts where rows follow one another.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Keys { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer KeyQuads { uvec4 v[]; };

// A module for each part, and for rows that are all greedy and unadjusted: drivers translate the whole of a module
// before they leave out what constants do without.
const uint kWhole = 0;   // choose among all tokens
const uint kSlice = 1;   // leave what a choice takes
const uint kChoice = 2;  // choose among what slices left
const uint part = PART;
#ifdef GREEDY_ONLY
const bool greedy_only = true;
#else
const bool greedy_only = false;
#endif

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
bool counts_change;  // while the workgroup runs

// What find_best and the search go over, in quads:
const uint kTokens = 0;  // tokens [begin, begin + n)
const uint kLeft = 1;    // n tokens that the slices have left, top_k each, behind their best
const uint kListed = 2;  // the list, n tokens long
uint source;
uint begin;
uint n;

uint slice_begin(uint slice) { return slice * pc.n_vocab / pc.n_slices; }
/// A slice leaves tokens as (key, id) where it has its keys, once it no longer needs those.
uint left_index(uint slice, uint i) { return first + slice_begin(slice) + 2 * i; }

/// Four tokens are read at a time, wherever the row begins in a quad of its buffer.
uint n_quads() {
  const uint before = source == kTokens ? first + begin : 0;
  return (before + n - 1) / 4 - before / 4 + 1;
}

/// The logits of tokens, or their keys if `adjusted`: one load for both, as CPU drivers take long to compile each.
uvec4 token_bits(uint quad) {
  quad += (first + begin) / 4;
  return greedy_only ? Uvec4s(pc.logits).v[quad] : KeyQuads(adjusted ? pc.scratch : pc.logits).v[quad];
}

/// Of a quad whose first token is `id`. Tokens outside of the source have the least key of all, that of a masked one.
uint token_key(uint bits, uint id) {
  const uint key = adjusted ? bits : score_key(canonical_bits(bits));
  return id - begin < n ? key : kKeyOfMasked;
}

uint first_id(uint quad) { return ((first + begin) / 4 + quad) * 4 - first; }

uint component(uvec4 v, uint c) { return c < 2 ? (c == 0 ? v.x : v.y) : (c == 2 ? v.z : v.w); }

/// (key, id) of what is at `c` in a quad of the source, whose bits are needed for tokens only.
uvec2 token_at(uint quad, uint c, uvec4 bits) {
  if (source == kTokens) {
    const uint id = first_id(quad) + c;
    return uvec2(token_key(component(bits, c), id), id);
  }
  const uint i = quad * 4 + c;
  if (i >= n) return uvec2(kKeyOfMasked, 0);
  if (part != kChoice || source == kListed) return uvec2(list_key[i], list_id[i]);
  const uint at = left_index(i / row.top_k, 1 + i % row.top_k);
  return uvec2(Keys(pc.scratch).v[at], Keys(pc.scratch).v[at + 1]);
}

uint adjusted_key(uint id, float bias) {
  if (row.mask != uvec2(0) && (Uints(row.mask).v[id / 32] >> (id % 32) & 1u) == 0) {
    return kKeyOfMasked;
  }
  precise float score = canonical_bits(Uints(pc.logits).v[first + id]);
  score = canonical(score + bias);
  const uint count = row.counts != uvec2(0) ? Keys(row.counts).v[id] : 0;
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

/// Keys of all tokens of the source to scratch; then again of those that have a bias.
void write_adjusted_keys(uint lane) {
  [[dont_unroll]] for (uint pass = 0; pass < 2; ++pass) {
    const uint n_entries = pass == 0 ? n : row.n_bias;
    for (uint i = lane; i < n_entries; i += workgroup_size) {
      const uvec2 entry = pass == 0 ? uvec2(begin + i, 0) : Uvec2s(row.bias).v[i];
      if (entry.x - begin >= n) continue;
      Keys(pc.scratch).v[first + entry.x] = adjusted_key(entry.x, uintBitsToFloat(entry.y));
    }
    memoryBarrierBuffer();
    barrier();
  }
}

/// Leaves the largest key of the tokens [begin, begin + n), or of the best of `n_left` slices, and the
/// lowest id that has it in best_key[0] and best_id[0].
void find_best(uint lane, uint n_left) {
  // A later token wins only with a larger key.
  uint key = 0;
  uint id = 0;
  for (uint slice = lane; slice < n_left; slice += workgroup_size) {
    const uint at = left_index(slice, 0);
    const uvec2 other = uvec2(Keys(pc.scratch).v[at], Keys(pc.scratch).v[at + 1]);
    if (other.x > key) {
      key = other.x;
      id = other.y;
    }
  }
  const uint end = n_left > 0 ? 0 : n_quads();
  for (uint base = lane; base < end; base += flight * workgroup_size) {
    uvec4 bits[flight];
    [[unroll]] for (uint j = 0; j < flight; ++j) {
      bits[j] = token_bits(min(base + j * workgroup_size, end - 1));
    }
    [[unroll]] for (uint j = 0; j < flight; ++j) {
      const uint first_of_quad = first_id(min(base + j * workgroup_size, end - 1));
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint other = token_key(bits[j][c], first_of_quad + c);
        if (other > key) {
          key = other;
          id = first_of_quad + c;
        }
      }
    }
  }
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

uint weight_of(uint key, float best_score, uint stage) {
  if (stage <= kStageTopKTies) return 1;
  const float distance = canonical(best_score - score_of_key(key));
  const uint weight = fixed_exp(distance);
  if (stage != kStageDraw) return weight;
  precise const float scaled = distance * row.inverse_temperature;
  return weight < row.min_p_q24 ? 0 : fixed_exp(scaled);
}

/// The token drawn; of a slice, when its top k are listed, nothing yet.
uint draw(uint lane) {
  const float best_score = score_of_key(best_key[0]);
  // Tokens kept: those with a larger key than last_key, and those with that key up to last_id.
  uint last_key = kKeyOfMinusInfinity + 1;
  uint last_id = ~0u;
  uvec2 target = uvec2(0);
  bool ties = false;  // fewer tokens with last_key are wanted than there are
  uint code = 0;

  for (uint stage = kStageTopK; stage <= kStageDraw; ++stage) {
    const bool among_ties = stage == kStageTopKTies || stage == kStageTopPTies;
    const bool lists = stage == kStageTopP && row.top_k <= kListSize && row.top_k < pc.n_vocab;
    const bool narrows = among_ties              ? ties
                         : stage == kStageTopK ? row.top_k < pc.n_vocab
                                               : stage == kStageDraw || row.top_p_q32 != ~0u;
    const bool by_id = among_ties || stage == kStageDraw;
    const int top_shift = !by_id ? 24 : pc.n_vocab > 0x10000u ? 16 : pc.n_vocab > 0x100u ? 8 : 0;

    bool reached = true;
    uvec2 last_mass = uvec2(0);  // of the bin in which the target was reached
    code = 0;
    // Beyond the top: a round that puts the tokens kept into the list. The same loop, because drivers take long to
    // translate it.
    for (int shift = lists ? top_shift + 8 : top_shift; shift >= (narrows ? 0 : top_shift + 8); shift -= 8) {
      const bool listing = shift > top_shift;
      for (uint bin = lane; bin < kBins; bin += workgroup_size) mass_low[bin] = mass_high[bin] = 0;
      barrier();
      const uint end = n_quads();
      for (uint quad = lane; quad < end; quad += workgroup_size) {
        const uvec4 bits = source == kTokens ? token_bits(quad) : uvec4(0);
        [[dont_unroll]] for (uint c = 0; c < 4; ++c) {
          const uvec2 token = token_at(quad, c, bits);
          const uint key = token.x;
          const uint id = token.y;
          if (key < last_key || (key == last_key && id > last_id)) continue;
          if (listing) {
            const uint place = atomicAdd(list_size, 1);
            list_key[place] = key;
            list_id[place] = id;
            continue;
          }
          if (among_ties && key != last_key) continue;
          const uint item = by_id ? id : ~key;
          if (shift < top_shift && item >> (shift + 8) != code) continue;
          const uint weight = weight_of(key, best_score, stage);
          const uint bin = (item >> shift) & (kBins - 1);
          const uint before = atomicAdd(mass_low[bin], weight);
          if (before + weight < before) atomicAdd(mass_high[bin], 1);
        }
      }
      barrier();
      if (listing) {
        if (part == kSlice) return 0;
        source = kListed;
        n = list_size;
        continue;
      }
      for (uint group = lane; group < kBins / kGroup; group += workgroup_size) {
        uvec2 sum = uvec2(0);
        [[dont_unroll]] for (uint bin = group * kGroup; bin < (group + 1) * kGroup; ++bin) {
          sum = add64(sum, uvec2(mass_low[bin], mass_high[bin]));
        }
        group_mass[group] = sum;
      }
      barrier();

      if (shift == top_shift && !among_ties) {
        uvec2 total = uvec2(0);
        [[dont_unroll]] for (uint group = 0; group < kBins / kGroup; ++group) total = add64(total, group_mass[group]);
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

    if (!narrows) continue;
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

bool draws() { return !greedy_only && row.inverse_temperature != 0.0; }

/// Whether slices leave all that choosing the row's token takes.
bool is_left() {
  if (greedy_only) return true;
  const bool is_short = row.top_k <= kListSize && 2 * (row.top_k + 1) <= pc.n_vocab / pc.n_slices;
  return !counts_change && (!draws() || is_short);
}

/// What a slice leaves: its best token, and where the row draws the listed ones.
void leave(uint lane, uint slice) {
  const uint n_left = draws() ? 1 + row.top_k : 1;
  for (uint i = lane; i < n_left; i += workgroup_size) {
    uvec2 token = uvec2(kKeyOfMasked, 0);
    if (i == 0) {
      token = uvec2(best_key[0], best_id[0]);
    } else if (i <= list_size) {
      token = uvec2(list_key[i - 1], list_id[i - 1]);
    }
    const uint at = left_index(slice, i);
    Keys(pc.scratch).v[at] = token.x;
    Keys(pc.scratch).v[at + 1] = token.y;
  }
}

/// The id of the row at `index`, for all invocations; with kSlice, of none.
uint choose(uint lane, uint index) {
  const uint slice = part == kSlice ? gl_WorkGroupID.x : 0;
  const bool left = part != kWhole && is_left();
  first = index * pc.n_vocab;
  adjusted = !greedy_only && (row.counts != uvec2(0) || row.mask != uvec2(0) || row.n_bias > 0);
  source = kTokens;
  begin = part == kSlice ? slice_begin(slice) : 0;
  n = part == kSlice ? slice_begin(slice + 1) - begin : pc.n_vocab;
  // Of rows that follow one another, slices have no part.
  if (adjusted && (part != kChoice || counts_change)) write_adjusted_keys(lane);
  if (part == kSlice && !left) return 0;
  const bool chooses_left = part == kChoice && left;
  if (!greedy_only && lane == 0) list_size = 0;  // find_best has barriers before it is used
  find_best(lane, chooses_left ? pc.n_slices : 0);
  uint id = best_id[0];
  if (draws() && best_key[0] > kKeyOfMinusInfinity) {
    if (chooses_left) {
      source = kLeft;
      n = pc.n_slices * row.top_k;
    }
    id = draw(lane);
  }
  if (part == kSlice) leave(lane, slice);
  return id;
}

void tell(uint id) {
  Uints(pc.sampled).v[row.place] = id;
  if (!greedy_only && row.counts != uvec2(0)) {
    const uint count = Keys(row.counts).v[id];
    if ((count & 0x7FFFFFFFu) != 0x7FFFFFFFu) Keys(row.counts).v[id] = count + 1;
  }
}

void main() {
  const uint lane = gl_LocalInvocationIndex;
  const uint leader = part == kSlice ? gl_WorkGroupID.y : gl_WorkGroupID.x;
  uint last = leader;
  for (uint index = leader; index <= last; ++index) {
    row = SamplingRows(pc.rows).v[index];
    if (index == leader) {
      if (row.skip != 0) return;
      if (!greedy_only) last += row.n_followers;
      counts_change = last > leader;
      if (part == kSlice && counts_change) return;
    }
    const uint id = choose(lane, index);
    if (part == kSlice) return;
    if (lane == 0) tell(id);
    if (id != row.drafted) return;
    memoryBarrierBuffer();
    barrier();
  }
}
