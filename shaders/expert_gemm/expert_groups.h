// Pairs of a token and one of its experts, expert by expert, and the tiles that they are multiplied
// in: what expert_groups.comp gives and gemm's kernels read.
#ifndef PUMICE_SHADERS_EXPERT_GROUPS_H
#define PUMICE_SHADERS_EXPERT_GROUPS_H

#include "common/interface.h"
#include "experts/routes.h"

// A tile is of one expert. Expert e, whose pairs begin at `first`, has the tiles from
// first / tile_rows + e on: no fewer than it needs wherever its pairs begin, so that it need not be
// known how many other experts have. Those it does not need have no pairs, but name one.
#define EXPERT_TILE(FIELD)                                 \
  FIELD(uint, first) /* of its pairs, in the list */       \
  FIELD(uint, n)     /* of its pairs, at most tile_rows */ \
  FIELD(uint, expert)
PUMICE_STRUCT(ExpertTile, EXPERT_TILE)

// A pair is a token and a rank below MOST_USED in one word.
#define PAIR_RANK_BITS 4

#ifndef __cplusplus
layout(buffer_reference, std430, buffer_reference_align = 4) buffer ExpertTiles { ExpertTile v[]; };
uint pair_token(uint pair) { return pair >> PAIR_RANK_BITS; }
uint pair_rank(uint pair) { return bitfieldExtract(pair, 0, PAIR_RANK_BITS); }
#endif

#endif
