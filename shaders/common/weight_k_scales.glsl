// Unit 0 of Q4_K and Q5_K: d and dmin, scales and minima of eight sub-blocks. Included by their files of
// shaders/weights.
#ifndef PUMICE_SHADERS_COMMON_WEIGHT_K_SCALES_GLSL
#define PUMICE_SHADERS_COMMON_WEIGHT_K_SCALES_GLSL

void read_weight_header(inout WeightTile t) {
  t.header = whole_unit(weight_unit(t, 0));
  t.scale = exact_halves(t.header.x);
}

void read_weight_scales(WeightTile t, uint block, out vec2 scale, out vec2 offset) {
  const uvec4 fields = t.header >> (4 * block);
  const vec2 both = t.scale * vec2(float((fields.y & 15u) | ((fields.w & 3u) << 4)),
                                   float((fields.z & 15u) | ((fields.w & 12u) << 2)));
  scale = both.xx;
  offset = -both.yy;
}

#endif
