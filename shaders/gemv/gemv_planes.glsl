// What gemv_subgroup.comp multiplies where x is two planes of bytes (common/x_planes.glsl): weights as bytes
// with each plane by integer dot products, whose sums over a block are exact.

#include "common/x_planes.glsl"

XPlanes x_planes(uint row, uint block) {
  return XPlanes(address_add(pc.x, row_of_x(row) * pc.x_stride + block * kPlanesBytes));
}

void read_bytes(WeightTile t, uint block, out int q[2][4]) {
  const WeightBlock b = open_weight_block(t, block);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    [[unroll]] for (int k = 0; k < 4; ++k) q[h][k] = int(weight_codes(b, h, k));
  }
}

/// Sums of weights' bytes times x / scale of a row.
void dot_planes(int w[2][4], XPlanes x, out float sums[2]) {
  int high[2], low[2];
  [[unroll]] for (uint h = 0; h < 2; ++h) {
    const uvec4 high_bytes = x.high[h];
    const uvec4 low_bytes = x.low[h];
    high[h] = h == 0 || kHalfScales ? 0 : high[0];
    low[h] = h == 0 || kHalfScales ? 0 : low[0];
    [[unroll]] for (uint k = 0; k < 4; ++k) {
      high[h] += dotPacked4x8EXT(w[h][k], int(high_bytes[k]));
      low[h] += dotPacked4x8EXT(w[h][k], int(low_bytes[k]));
    }
    sums[h] = float(high[h] * 256 + low[h]);
  }
}

void multiply(WeightTile t, uint tile) {
  const uint last_block = pc.k / kBlock - 1;
  [[unroll]] for (uint b = 0; b < kTileBlocks; ++b) {
    vec2 scale, offset;
    read_weight_scales(t, b, scale, offset);
    int w[2][4];
    read_bytes(t, b, w);
    // Blocks past the last are of weight zero.
    const uint block = min(tile * kTileBlocks + b, last_block);
    [[unroll]] for (uint r = 0; r < tile_rows; ++r) {
      XPlanes x = x_planes(r, block);
      const vec4 scale_sums = x.scale_sums;
      float sums[2];
      dot_planes(w, x, sums);
      float sum;
      if (kHalfScales) {
        sum = fma(scale.y, sums[1], scale.x * sums[0]);
        if (kOffsets) sum = fma(offset.y, scale_sums.z, fma(offset.x, scale_sums.y, sum));
      } else {
        sum = scale.x * sums[1];
        if (kOffsets) sum = fma(offset.x, scale_sums.w, sum);
      }
      acc[r] = fma(scale_sums.x, sum, acc[r]);
    }
  }
}
