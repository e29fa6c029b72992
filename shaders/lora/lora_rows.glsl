// The rows of a workgroup and their adapters. A row's sums are the same whatever is beside it.
#ifndef PUMICE_SHADERS_LORA_ROWS_GLSL
#define PUMICE_SHADERS_LORA_ROWS_GLSL

#include "common/buffers.glsl"
#include "lora/lora_rows.h"

uint adapters[LORA_ROWS];  // 0: none, as of rows behind the last
bool alike = true;         // all rows have the same, or there are no more

void read_adapters(uvec2 address, uint first_row, uint n_rows) {
  for (uint r = 0; r < LORA_ROWS; ++r) {
    adapters[r] = r < n_rows ? Uints(address).v[first_row + r] : 0;
    alike = alike && (r >= n_rows || adapters[r] == adapters[0]);
  }
}

#endif
