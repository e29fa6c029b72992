#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x_id = 0, local_size_y = 2) in;
layout(constant_id = 3) const uint rows = 4;
layout(constant_id = 7) const float scale = 1.0;
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(push_constant) uniform Push {
  uvec2 x;       // 0
  uvec2 y;       // 8
  uint counts[3];  // 16
  float bias;    // 28
  uint n;        // 32
} pc;
void main() {
  const uint i = gl_GlobalInvocationID.x;
  if (i >= pc.n * rows) return;
  Floats(pc.y).at[i] = subgroupAdd(Floats(pc.x).at[i]) * scale + pc.bias + float(pc.counts[2]);
}
