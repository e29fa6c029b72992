/* What Mesa's nouveau shim lacks for NVK: chips from GA100 on, names, and answers that must not be
 * 0. */
#pragma once

#include <stdint.h>
#include <string.h>

/* Copy, 3D and compute classes of a chipset's generation: the numbers of NVIDIA's open class
 * headers. */
struct shim_classes {
  uint32_t chipset;
  uint16_t copy, graphics, compute;
};
static const struct shim_classes shim_classes[] = {
    {0x170, 0xc7b5, 0xc797, 0xc7c0}, /* GA10x */
    {0x180, 0xc8b5, 0xcb97, 0xcbc0}, /* GH100 */
    {0x190, 0xc7b5, 0xc997, 0xc9c0}, /* AD10x */
    {0x1a0, 0xc9b5, 0xcd97, 0xcdc0}, /* GB100 */
    {0x1b0, 0xcab5, 0xce97, 0xcec0}, /* GB20x */
};

/* Writes the five classes of a newer chipset, if it is one, and returns their number, else 0. */
static int shim_newer_classes(uint32_t chipset, uint16_t out[5]) {
  struct shim_classes found = {0};
  for (unsigned i = 0; i < sizeof(shim_classes) / sizeof(*shim_classes); i++) {
    if (shim_classes[i].chipset == (chipset & ~0xfu)) found = shim_classes[i];
  }
  if (chipset == 0x170) found = (struct shim_classes){0x170, 0xc6b5, 0xc697, 0xc6c0}; /* GA100 */
  if (found.chipset == 0) return 0;
  const uint16_t classes[5] = {0xa140, found.copy, 0x902d, found.graphics, found.compute};
  memcpy(out, classes, sizeof(classes));
  return 5;
}

static const char* shim_chip_name(uint32_t chipset) {
  static const struct {
    uint32_t chipset;
    const char* name;
  } names[] = {{0x124, "GM204"}, {0x132, "GP102"}, {0x140, "GV100"}, {0x162, "TU102"},
               {0x168, "TU116"}, {0x170, "GA100"}, {0x172, "GA102"}, {0x180, "GH100"},
               {0x192, "AD102"}, {0x1a0, "GB100"}, {0x1b2, "GB202"}};
  for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
    if (names[i].chipset == chipset) return names[i].name;
  }
  return "NV???";
}

/* The driver divides by parts of this: any numbers but 0 will do. */
static int shim_zcull(int fd, unsigned long request, void* arg) {
  static const uint32_t info[12] = {256,  32, 4096, 4096, 128,     256,
                                    1024, 16, 256,  64,   1 << 20, 4096};
  (void)fd, (void)request;
  memcpy(arg, info, sizeof(info));
  return 0;
}
