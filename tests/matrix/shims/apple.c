/* A kernel driver for Honeykrisp, Mesa's Vulkan on Apple's GPUs, that does nothing: the interface
   that Linux 6.16 and Mesa from 25.1 on have (Mesa 25.0's own shim has the one before). build.sh
   includes drm_shim.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool drm_shim_driver_prefers_first_render_node = true;

/* The order of the calls, and the arguments that are answered, of drm-uapi's asahi_drm.h. */
enum {
  GET_PARAMS,
  GET_TIME,
  VM_CREATE,
  VM_DESTROY,
  VM_BIND,
  GEM_CREATE,
  GEM_MMAP_OFFSET,
  GEM_BIND_OBJECT,
  QUEUE_CREATE,
  QUEUE_DESTROY,
  SUBMIT,
  CALLS
};

struct gpu_params {
  uint64_t features;
  uint32_t generation, variant, revision, chip_id;
  uint32_t dies, clusters, cores_per_cluster, max_frequency_khz;
  uint64_t core_masks[64];
  uint64_t vm_start, vm_end, vm_kernel_min_size;
  uint32_t max_commands_per_submission, max_attachments;
  uint64_t timestamp_frequency_hz;
};
static struct gpu_params gpu = {
    .features = 1, /* soft faults */
    .generation = 13,
    .variant = 'G',
    .revision = 0x10,
    .chip_id = 0x8103,
    .dies = 1,
    .clusters = 1,
    .cores_per_cluster = 8,
    .max_frequency_khz = 1278000,
    .core_masks = {0xff},
    .vm_start = 0x4000,
    .vm_end = 0x7fffff8000,
    .vm_kernel_min_size = 0x20000000,
    .max_commands_per_submission = 64,
    .max_attachments = 16,
    .timestamp_frequency_hz = 1000000000,
};

static int nothing(int fd, unsigned long request, void* arg) {
  (void)fd, (void)request, (void)arg;
  return 0;
}

static int get_params(int fd, unsigned long request, void* arg) {
  const struct {
    uint32_t group, pad;
    uint64_t address, size;
  }* asked = arg;
  (void)fd, (void)request;
  if (asked->group != 0) return -1;
  memcpy((void*)(uintptr_t)asked->address, &gpu,
         asked->size < sizeof(gpu) ? asked->size : sizeof(gpu));
  return 0;
}

static int vm_create(int fd, unsigned long request, void* arg) {
  struct {
    uint64_t kernel_start, kernel_end;
    uint32_t vm_id, pad;
  }* vm = arg;
  (void)fd, (void)request;
  vm->vm_id = 1;
  return 0;
}

static int gem_create(int fd, unsigned long request, void* arg) {
  struct {
    uint64_t size;
    uint32_t flags, vm_id, handle, pad;
  }* create = arg;
  struct shim_bo* bo = calloc(1, sizeof(*bo));
  (void)request;
  drm_shim_bo_init(bo, create->size);
  create->handle = drm_shim_bo_get_handle(drm_shim_fd_lookup(fd), bo);
  drm_shim_bo_put(bo);
  return 0;
}

static int gem_mmap_offset(int fd, unsigned long request, void* arg) {
  struct {
    uint32_t handle, flags;
    uint64_t offset;
  }* map = arg;
  struct shim_fd* shim_fd = drm_shim_fd_lookup(fd);
  struct shim_bo* bo = drm_shim_bo_lookup(shim_fd, map->handle);
  (void)request;
  if (bo == NULL) return -1;
  map->offset = drm_shim_bo_get_mmap_offset(shim_fd, bo);
  drm_shim_bo_put(bo);
  return 0;
}

static ioctl_fn_t calls[CALLS] = {
    [GET_PARAMS] = get_params,
    [GET_TIME] = nothing,
    [VM_CREATE] = vm_create,
    [VM_DESTROY] = nothing,
    [VM_BIND] = nothing,
    [GEM_CREATE] = gem_create,
    [GEM_MMAP_OFFSET] = gem_mmap_offset,
    [GEM_BIND_OBJECT] = nothing,
    [QUEUE_CREATE] = nothing,
    [QUEUE_DESTROY] = nothing,
    [SUBMIT] = nothing,
};

void drm_shim_driver_init(void) {
  const char* chip =
      getenv("ASAHI_CHIP"); /* 13G is an M1, 13C an M1 Max, 14G an M2, 14D an M2 Ultra */
  if (chip != NULL && strlen(chip) == 3) {
    gpu.generation = (uint32_t)atoi(chip);
    gpu.variant = (uint32_t)chip[2];
  }
  shim_device.bus_type = DRM_BUS_PLATFORM;
  shim_device.driver_name = "asahi";
  shim_device.driver_ioctls = calls;
  shim_device.driver_ioctl_count = CALLS;
  drm_shim_override_file(
      "DRIVER=asahi\nOF_FULLNAME=/soc/agx\nOF_COMPATIBLE_0=apple,gpu-g13g\nOF_COMPATIBLE_N=1\n",
      "/sys/dev/char/%d:%d/device/uevent", DRM_MAJOR, render_node_minor);
}
