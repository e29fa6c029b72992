#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#ifdef PEAK_BF16
#extension GL_EXT_bfloat16 : require
#endif

#include "common/buffers.glsl"
#include "peak/peak_matrix.h"

// Four chains of c = a * b + c a subgroup, in registers: the products of two a and two b, as in a GEMM, so that
// no two chains are alike and none can be derived from another. FACTOR and SUM are the elements' types; factors
// come from memory and sums go there, so no compiler can leave any out.

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Factors { FACTOR v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer Sums { SUM v[]; };

#define A coopmat<FACTOR, gl_ScopeSubgroup, matrix_m, matrix_k, gl_MatrixUseA>
#define B coopmat<FACTOR, gl_ScopeSubgroup, matrix_k, matrix_n, gl_MatrixUseB>
#define C coopmat<SUM, gl_ScopeSubgroup, matrix_m, matrix_n, gl_MatrixUseAccumulator>

void main() {
  A a0, a1;
  B b0, b1;
  Factors factors = Factors(pc.factors);
  const uint a_elements = matrix_m * matrix_k, b_elements = matrix_k * matrix_n;
  coopMatLoad(a0, factors.v, 0, matrix_k, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(a1, factors.v, a_elements, matrix_k, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b0, factors.v, 2 * a_elements, matrix_n, gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b1, factors.v, 2 * a_elements + b_elements, matrix_n, gl_CooperativeMatrixLayoutRowMajor);
  C c0 = C(SUM(0)), c1 = C(SUM(1)), c2 = C(SUM(2)), c3 = C(SUM(3));
  for (uint i = 0; i < pc.n_iterations; ++i) {
    [[unroll]] for (uint step = 0; step < 4; ++step) {
      c0 = coopMatMulAdd(a0, b0, c0);
      c1 = coopMatMulAdd(a0, b1, c1);
      c2 = coopMatMulAdd(a1, b0, c2);
      c3 = coopMatMulAdd(a1, b1, c3);
    }
  }
  const uint subgroup = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
  coopMatStore((c0 + c1) + (c2 + c3), Sums(pc.y).v, subgroup * matrix_m * matrix_n, matrix_n,
               gl_CooperativeMatrixLayoutRowMajor);
}
