# The weight types that shaders can read: `-DWEIGHT_<name>=1` picks one in shaders/common/weights.glsl.
set(PUMICE_WEIGHT_TYPES F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL Q2_K Q3_K Q4_K Q5_K Q6_K)
# Those whose weights are not integers with scales (shaders/common/weights_int8.glsl is for the others).
set(PUMICE_FLOAT_WEIGHT_TYPES F32 F16 BF16)
