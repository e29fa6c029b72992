#version 460

#include "common/buffers.glsl"
#include "experts/combine.h"
#include "experts/routes.h"

// y = the sum of a token's rows of x, one for each rank, by their weights. A workgroup takes
// 4 * workgroup_size columns of one token, a lane four of them.

void main() {
  const uint col = 4 * (gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex);
  if (col >= pc.n) return;
  const uint token = gl_WorkGroupID.y;
  ExpertRoutes routes = ExpertRoutes(pc.routes);
  const uint route = token * pc.n_used;
  if (pc.n % 4 == 0) {  // then every row is aligned to 16 bytes
    vec4 sum = vec4(0.0);
    for (uint rank = 0; rank < pc.n_used; ++rank) {
      const vec4 four = Vec4s(pc.x).v[((route + rank) * pc.n + col) / 4];
      sum = fma(vec4(routes.v[route + rank].weight), four, sum);
    }
    Vec4s(pc.y).v[(token * pc.n + col) / 4] = sum;
  } else {
    for (uint i = 0; i < min(4u, pc.n - col); ++i) {
      float sum = 0.0;
      for (uint rank = 0; rank < pc.n_used; ++rank) {
        const float one = Floats(pc.x).v[(route + rank) * pc.n + col + i];
        sum = fma(routes.v[route + rank].weight, one, sum);
      }
      Floats(pc.y).v[token * pc.n + col + i] = sum;
    }
  }
}
