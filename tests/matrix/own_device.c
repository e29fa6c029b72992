// A host that lends Pumice a device of its own: own_device MODEL.gguf PROMPT
#define VOLK_IMPLEMENTATION
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <volk.h>

#include "pumice/pumice_vulkan.h"

enum { kMost = 64 };

typedef struct Features {
  VkPhysicalDeviceFeatures2 core;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceVulkan13Features v13;
} Features;

static const struct {
  const char* name;
  size_t offset;
} kMembers[] = {
    {"bufferDeviceAddress", offsetof(Features, v12.bufferDeviceAddress)},
    {"timelineSemaphore", offsetof(Features, v12.timelineSemaphore)},
    {"hostQueryReset", offsetof(Features, v12.hostQueryReset)},
    {"synchronization2", offsetof(Features, v13.synchronization2)},
    {"subgroupSizeControl", offsetof(Features, v13.subgroupSizeControl)},
    {"maintenance4", offsetof(Features, v13.maintenance4)},
};

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, pumice_last_error());
  return 1;
}

static int failed_of_vulkan(const char* what, VkResult result) {
  fprintf(stderr, "%s: VkResult %d\n", what, result);
  return 1;
}

static int create_instance(void) {
  VkResult result = volkInitialize();
  if (result != VK_SUCCESS) return failed_of_vulkan("loader", result);
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                         .apiVersion = VK_API_VERSION_1_3};
  const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                     .pApplicationInfo = &application};
  VkInstance instance;
  result = vkCreateInstance(&info, NULL, &instance);
  if (result != VK_SUCCESS) return failed_of_vulkan("vkCreateInstance", result);
  volkLoadInstance(instance);
  return 0;
}

// What is required and no more; `host` keeps the names.
static int create_device(pumice_vulkan_device* host) {
  static const char *extensions[kMost], *names[kMost];
  static pumice_vulkan_requirement wanted[kMost] = {{.struct_size = sizeof wanted[0]}};
  size_t n = 0;
  if (pumice_vulkan_requirements(host->get_instance_proc_addr, host->instance,
                                 host->physical_device, wanted, kMost, &n,
                                 &host->queue_family) != PUMICE_OK) {
    return failed("requirements");
  }
  Features features = {.core = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2},
                       .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES},
                       .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES},
                       .v13 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES}};
  features.core.pNext = &features.v11;
  features.v11.pNext = &features.v12;
  features.v12.pNext = &features.v13;
  for (size_t i = 0; i < n; ++i) {
    if (!wanted[i].required) continue;
    if (wanted[i].structure == NULL) {
      extensions[host->n_extensions++] = wanted[i].name;
      continue;
    }
    const size_t before = host->n_features;
    for (size_t k = 0; k < sizeof kMembers / sizeof kMembers[0]; ++k) {
      if (strcmp(kMembers[k].name, wanted[i].name) != 0) continue;
      memcpy((char*)&features + kMembers[k].offset, &(VkBool32){VK_TRUE}, sizeof(VkBool32));
      names[host->n_features++] = wanted[i].name;
    }
    if (host->n_features == before) {
      return fprintf(stderr, "this host does not know %s\n", wanted[i].name), 1;
    }
  }
  host->extensions = extensions;
  host->features = names;
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                         .queueFamilyIndex = host->queue_family,
                                         .queueCount = 1,
                                         .pQueuePriorities = &priority};
  const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                   .pNext = &features.core,
                                   .queueCreateInfoCount = 1,
                                   .pQueueCreateInfos = &queue,
                                   .enabledExtensionCount = (uint32_t)host->n_extensions,
                                   .ppEnabledExtensionNames = extensions};
  const VkResult result = vkCreateDevice(host->physical_device, &info, NULL, &host->device);
  if (result != VK_SUCCESS) return failed_of_vulkan("vkCreateDevice", result);
  volkLoadDevice(host->device);
  vkGetDeviceQueue(host->device, host->queue_family, 0, &host->queue);
  return 0;
}

static int tell(pumice_engine* engine, const char* prompt) {
  const pumice_request_options asked = {
      .struct_size = sizeof asked, .text = pumice_str(prompt), .max_new_tokens = 40};
  pumice_request request;
  if (pumice_submit(engine, 0, &asked, &request) != PUMICE_OK) return failed("submit");
  pumice_event event = {.struct_size = sizeof event};
  while (event.kind != PUMICE_EVENT_FINISHED) {
    if (pumice_next_event(engine, &event) != PUMICE_OK) return failed("next_event");
    fwrite(event.text.data, 1, event.text.length, stdout);
    if (event.kind != PUMICE_EVENT_NONE) continue;
    if (pumice_wait(engine, PUMICE_NO_LIMIT) != PUMICE_OK) return failed("wait");
    if (pumice_poll(engine, PUMICE_NO_LIMIT) != PUMICE_OK) return failed("poll");
  }
  return 0;
}

static int tell_on(const pumice_vulkan_device* host, const char* path, const char* prompt) {
  const pumice_model_options options = {.struct_size = sizeof options, .path = pumice_str(path)};
  pumice_device* device = NULL;
  pumice_model* model = NULL;
  pumice_engine* engine = NULL;
  int status = 1;
  if (pumice_vulkan_device_open(host, NULL, &device) != PUMICE_OK) {
    failed("device");
  } else if (pumice_model_load(device, &options, &model) != PUMICE_OK) {
    failed("model");
  } else if (pumice_engine_create(model, NULL, &engine) != PUMICE_OK) {
    failed("engine");
  } else {
    status = tell(engine, prompt);
  }
  pumice_engine_close(engine);
  pumice_model_close(model);
  pumice_device_close(device);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: own_device MODEL.gguf PROMPT\n"), 2;
  if (create_instance() != 0) return 1;
  pumice_vulkan_device host = {.struct_size = sizeof host,
                               .get_instance_proc_addr = vkGetInstanceProcAddr,
                               .instance = volkGetLoadedInstance()};
  uint32_t one = 1;
  const VkResult found = vkEnumeratePhysicalDevices(host.instance, &one, &host.physical_device);
  if (found < 0 || one == 0) return failed_of_vulkan("vkEnumeratePhysicalDevices", found);
  int status = create_device(&host);
  if (status != 0) return status;
  status = tell_on(&host, argv[1], argv[2]);
  // It is the host's to the end.
  const VkResult idle = vkDeviceWaitIdle(host.device);
  if (idle != VK_SUCCESS) status = failed_of_vulkan("vkDeviceWaitIdle", idle);
  vkDestroyDevice(host.device, NULL);
  vkDestroyInstance(host.instance, NULL);
  return status;
}
