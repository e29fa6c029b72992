/* What newer Turnip asks the kernel beyond Mesa 25.0's freedreno shim, and any GPU by its chip id
   (FD_CHIP_ID, hexadecimal): the driver knows the chip, the kernel need not. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

static int shim_vm_bind(int fd, unsigned long request, void* arg) {
  (void)fd, (void)request;
  ((int32_t*)arg)[2] = -1; /* no fence */
  return 0;
}

/* 0 if the parameter is one of those, else -1. */
static int shim_newer_param(struct drm_msm_param* param) {
  switch (param->param) {
    case MSM_PARAM_HIGHEST_BANK_BIT:
      param->value = 15;
      return 0;
    case MSM_PARAM_RAYTRACING:
      param->value = 1;
      return 0;
    case MSM_PARAM_UBWC_SWIZZLE:
      param->value = 6;
      return 0;
    case MSM_PARAM_MACROTILE_MODE:
      param->value = 0;
      return 0;
    case 0x14 /* UCHE_TRAP_BASE */:
      param->value = 0x1fffffffff000;
      return 0;
    case 0x15 /* HAS_PRR */:
      param->value = 1;
      return 0;
    case 0x17 /* AQE */:
      param->value = 0;
      return 0;
    default:
      return -1;
  }
}

static const struct msm_device_info* shim_by_chip_id(void) {
  static struct msm_device_info gpu = {.gmem_size = 3 << 20};
  const char* const chip = getenv("FD_CHIP_ID");
  if (chip == NULL) return NULL;
  gpu.chip_id = strtoull(chip, NULL, 16);
  return &gpu;
}
