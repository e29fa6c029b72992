# The weight types that have shaders: `-DWEIGHT_<name>=1` picks one in shaders/common/weights.glsl.
set(PUMICE_WEIGHT_TYPES F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K Q4_K Q5_K Q6_K
  IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_XS TQ2_0 MXFP4)
# Those whose weights are not integers with scales (shaders/common/weights_int8.glsl is for the others).
set(PUMICE_FLOAT_WEIGHT_TYPES F32 F16 BF16)
# Those whose bytes are made by shifts and masks, for products with planes of x (shaders/common/x_planes.glsl).
set(PUMICE_PLANES_WEIGHT_TYPES Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K TQ2_0)
# Those that hold numbers of points of a grid (shaders/common/weight_grid.glsl).
set(PUMICE_GRID_WEIGHT_TYPES IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S)
