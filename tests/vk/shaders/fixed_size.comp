#version 450
layout(local_size_x = 64, local_size_y = 4, local_size_z = 2) in;
layout(binding = 0) buffer Result { float at[]; } result;
layout(push_constant) uniform Push {
  mat3 m;   // three columns 16 bytes apart
  vec3 v;   // 48
} pc;
void main() {
  result.at[gl_LocalInvocationIndex] = dot(pc.m * pc.v, vec3(1.0));
}
