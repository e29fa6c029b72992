// What gemv's kernels, and what adds partial sums, do with sums besides (gemv_finish.glsl,
// gemv_broadcast.comp): bits of `finish`. A norm is shared out among the products around it: the one before it adds its
// sums to the stream, multiplies that with the norm's weights and leaves squares; those behind it scale their sums.
#ifndef PUMICE_SHADERS_GEMV_FINISH_H
#define PUMICE_SHADERS_GEMV_FINISH_H

#define GEMV_ADDED 1u   // to y, which times `norm` is `normed`; its squares are added up
#define GEMV_SCALED 2u  // divided by the root of x's mean square
#define GEMV_GATED 4u   // the weights are gates, and `ups` bytes further ups: activation(gate) * up
#define GEMV_ACTIVATION_SHIFT 3  // the activation (common/activation.h) in the bits above

#define GEMV_SQUARES 32u  // columns whose squares are added up together

#endif
