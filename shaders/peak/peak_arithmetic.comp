#version 460
#ifdef PEAK_F16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#ifdef PEAK_INT8_DOT
#extension GL_EXT_integer_dot_product : require
#endif

#include "common/buffers.glsl"
#include "peak/peak_arithmetic.h"

// Eight chains of dependent operations an invocation, in registers. The operands come from memory and the
// results go there, so no compiler can leave any out, and chains start differently in every lane, so none can
// be computed once for all. An iteration is 16 operations of each chain (peak.cpp counts them).

#if defined(PEAK_F16)
#define VALUE f16vec2
#define STEP(x) fma(x, a, b)
#define START(i) f16vec2(float16_t(float(i + lane % 8)))
#elif defined(PEAK_INT8_DOT)
#define VALUE int
#define STEP(x) (dotPacked4x8EXT(x, a) + x)
#define START(i) int(i + lane) * b
#else
#define VALUE float
#define STEP(x) fma(x, a, b)
#define START(i) float(i + lane % 8)
#endif

void main() {
  const uvec2 words = Uvec2s(pc.factors).v[0];
#if defined(PEAK_F16)
  const f16vec2 a = f16vec2(float16_t(uintBitsToFloat(words.x)));
  const f16vec2 b = f16vec2(float16_t(uintBitsToFloat(words.y)));
#elif defined(PEAK_INT8_DOT)
  const int a = int(words.x);
  const int b = int(words.y);
#else
  const float a = uintBitsToFloat(words.x);
  const float b = uintBitsToFloat(words.y);
#endif
  const uint lane = gl_LocalInvocationIndex;
  VALUE x0 = START(0), x1 = START(1), x2 = START(2), x3 = START(3);
  VALUE x4 = START(4), x5 = START(5), x6 = START(6), x7 = START(7);
  for (uint i = 0; i < pc.n_iterations; ++i) {
    [[unroll]] for (uint step = 0; step < 16; ++step) {
      x0 = STEP(x0);
      x1 = STEP(x1);
      x2 = STEP(x2);
      x3 = STEP(x3);
      x4 = STEP(x4);
      x5 = STEP(x5);
      x6 = STEP(x6);
      x7 = STEP(x7);
    }
  }
  const uint at = gl_WorkGroupID.x * workgroup_size + gl_LocalInvocationIndex;
#if defined(PEAK_INT8_DOT)
  Uints(pc.y).v[at] = uint(x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7);
#elif defined(PEAK_F16)
  const vec2 sum = vec2(x0) + vec2(x1) + vec2(x2) + vec2(x3) + vec2(x4) + vec2(x5) + vec2(x6) + vec2(x7);
  Floats(pc.y).v[at] = sum.x + sum.y;
#else
  Floats(pc.y).v[at] = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7));
#endif
}
