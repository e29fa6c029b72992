// Which rows of x, y and the weights a workgroup's tile has, for kernels that compute tiles of y.
//
// Of a matrix they are neighbours. With EXPERT_PAIRS (expert_gemm) a tile's rows are pairs of one
// expert, gathered from x and scattered to y by the list that GroupRoutes made, and its weights are
// the expert's, of which a part of the experts' rows may hold some: those of other parts are left to
// their dispatches. The sums of a pair are those of a matrix's row, whatever the tile's other pairs are.
//
// A kernel says for each place that a lane reads x for which row of the tile that is,
//
//   uint row_of_slot(uint slot) { … }
//   HOLD_X_ROWS(number of slots)
//
// and then has x_row_of_slot(slot), where in x that row starts in units of 4 floats.
#ifndef PUMICE_SHADERS_GEMM_ROWS_GLSL
#define PUMICE_SHADERS_GEMM_ROWS_GLSL

#include "common/buffers.glsl"

uint first_tile_col;

#ifdef EXPERT_PAIRS

#include "expert_gemm/expert_gemm.h"
#include "expert_gemm/expert_groups.h"

ExpertTile expert_tile;

/// Whether the tile has anything to compute, which is the same for the whole workgroup. Tiles are
/// of so many rows and columns.
bool open_tile(uint rows, uint cols) {
  first_tile_col = (pc.first_col_tile + gl_WorkGroupID.y) * cols;
  expert_tile = ExpertTiles(pc.tiles).v[pc.first_tile + gl_WorkGroupID.x];
  const uint first = expert_tile.expert * pc.n + first_tile_col;
  const uint end = expert_tile.expert * pc.n + min(first_tile_col + cols, pc.n);
  return expert_tile.n != 0 && first < pc.first_row + pc.part_rows && end > pc.first_row;
}

bool has_row(uint row) { return row < expert_tile.n; }
uint pair_of(uint row) {  // some pair in any case: see "Traps" in docs/ADDING_AN_OP.md
  return Uints(pc.pairs).v[expert_tile.first + min(row, max(expert_tile.n, 1) - 1)];
}
uint x_row(uint row) {
  const uint pair = pair_of(row);
  return pair_token(pair) * (pc.x_stride / 4) + pair_rank(pair) * (pc.x_rank_stride / 4);
}
uint y_row(uint row) {
  const uint pair = pair_of(row);
  return (pair_token(pair) * pc.n_used + pair_rank(pair)) * pc.y_stride;
}

// Weights past the last row, and those that other parts hold, are the part's last ones.
uint row_in_part(uint col) { return expert_tile.expert * pc.n + col - pc.first_row; }
bool has_col(uint col) { return col < pc.n && row_in_part(col) < pc.part_rows; }
uint weight_row(uint col) { return min(row_in_part(col), pc.part_rows - 1); }
float biased(float sum, uint col) {
  // Without a bias, nothing past what lies at its address in any case.
  const uint at = pc.has_bias != 0 ? expert_tile.expert * pc.n + col : 0;
  if (pc.has_bias != 0) sum += Floats(pc.bias).v[at];
  return sum;
}

// Read once: it takes a load to know.
#define HOLD_X_ROWS(n_slots)                                                          \
  uint held_x_rows[n_slots];                                                          \
  void hold_x_rows() {                                                                \
    [[unroll]] for (uint s = 0; s < n_slots; ++s) held_x_rows[s] = x_row(row_of_slot(s)); \
  }                                                                                   \
  uint x_row_of_slot(uint slot) { return held_x_rows[slot]; }

#else

uint first_row;

bool open_tile(uint rows, uint cols) {
  first_row = pc.first_row + gl_WorkGroupID.x * rows;
  first_tile_col = gl_WorkGroupID.y * cols;
  return true;
}

bool has_row(uint row) { return first_row + row < pc.rows; }
uint y_row(uint row) { return (first_row + row) * pc.y_stride; }
bool has_col(uint col) { return col < pc.n; }
uint weight_row(uint col) { return min(col, pc.n - 1); }
float biased(float sum, uint col) { return sum; }

#define HOLD_X_ROWS(n_slots)                                                    \
  void hold_x_rows() {}                                                         \
  uint x_row_of_slot(uint slot) {                                               \
    return min(first_row + row_of_slot(slot), pc.rows - 1) * (pc.x_stride / 4); \
  }

#endif

#endif
