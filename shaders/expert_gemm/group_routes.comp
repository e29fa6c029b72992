#version 460

#include "common/buffers.glsl"
#include "expert_gemm/expert_groups.h"
#include "expert_gemm/group_routes.h"

// Routes sorted by expert, in their order within one. A workgroup takes an expert: it counts the pairs of
// those before, which is where its own begin, and writes its own and its tiles. So no workgroup waits
// for another, and every pair and every tile is written by one of them.

shared uint before[workgroup_size];  // a lane's pairs of experts before this one
shared uint own[workgroup_size];     // and of this one

uint expert_of(uint pair) {
  // Ids are below n_experts; the bound keeps what is written within the list all the same.
  return min(ExpertRoutes(pc.routes).v[pair].expert, pc.n_experts - 1);
}

void main() {
  const uint expert = pc.first_expert + gl_WorkGroupID.x;
  const uint lane = gl_LocalInvocationIndex;
  const uint share = (pc.n_pairs + workgroup_size - 1) / workgroup_size;
  const uint begin = min(lane * share, pc.n_pairs);
  const uint end = min(begin + share, pc.n_pairs);
  uint n_before = 0;
  uint n_own = 0;
  for (uint pair = begin; pair < end; ++pair) {
    const uint other = expert_of(pair);
    n_before += uint(other < expert);
    n_own += uint(other == expert);
  }
  before[lane] = n_before;
  own[lane] = n_own;
  barrier();

  uint first = 0;  // of the expert's
  uint at = 0;     // of the lane's among them
  uint n = 0;
  for (uint i = 0; i < workgroup_size; ++i) {
    first += before[i];
    at += i < lane ? own[i] : 0;
    n += own[i];
  }
  at += first;
  for (uint pair = begin; pair < end; ++pair) {
    if (expert_of(pair) != expert) continue;
    const uint token = pair / pc.n_used;
    Uints(pc.pairs).v[at++] = token << PAIR_RANK_BITS | (pair - token * pc.n_used);
  }

  const uint first_tile = first / pc.tile_rows + expert;
  const uint end_tile = (first + n) / pc.tile_rows + expert + 1;
  for (uint t = first_tile + lane; t < end_tile; t += workgroup_size) {
    const uint done = min((t - first_tile) * pc.tile_rows, n);
    ExpertTile tile;
    tile.first = min(first + done, pc.n_pairs - 1);
    tile.n = min(n - done, pc.tile_rows);
    tile.expert = expert;
    ExpertTiles(pc.tiles).v[t] = tile;
  }
}
