// Types of cached keys and values, as kernels and the host number them (KvType). Those from KV_Q8_0
// on are quantised.
#ifndef PUMICE_SHADERS_COMMON_KV_TYPES_H
#define PUMICE_SHADERS_COMMON_KV_TYPES_H

#define KV_F32 0
#define KV_F16 1
#define KV_BF16 2
#define KV_Q8_0 3
#define KV_Q4_0 4

#endif
