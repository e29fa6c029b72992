#include "renderer.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace {

constexpr VkFormat kFormat = VK_FORMAT_R8G8B8A8_UNORM;

constexpr uint32_t kVertexShader[] =
#include "scene.vert.inc"
    ;
constexpr uint32_t kFragmentShader[] =
#include "scene.frag.inc"
    ;

void check(VkResult result, const char* what) {
  if (result == VK_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " failed: VkResult " + std::to_string(result));
}

void check(pumice_status status) {
  if (status != PUMICE_OK) throw std::runtime_error(pumice_last_error());
}

/// The feature structures of Vulkan's versions, with members found by name.
struct Features {
  VkPhysicalDeviceVulkan13Features v13{.sType =
                                           VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceVulkan12Features v12{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &v13};
  VkPhysicalDeviceVulkan11Features v11{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
  VkPhysicalDeviceFeatures2 core{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                 .pNext = &v11};

  Features() = default;
  Features(const Features&) = delete;
  Features& operator=(const Features&) = delete;

  /// False: this program does not know the structure.
  bool enable(const std::string& name) {
    const std::pair<const char*, VkBool32*> members[] = {
        {"shaderInt16", &core.features.shaderInt16},
        {"shaderInt64", &core.features.shaderInt64},
        {"storageBuffer16BitAccess", &v11.storageBuffer16BitAccess},
        {"storageBuffer8BitAccess", &v12.storageBuffer8BitAccess},
        {"shaderFloat16", &v12.shaderFloat16},
        {"shaderInt8", &v12.shaderInt8},
        {"bufferDeviceAddress", &v12.bufferDeviceAddress},
        {"timelineSemaphore", &v12.timelineSemaphore},
        {"hostQueryReset", &v12.hostQueryReset},
        {"vulkanMemoryModel", &v12.vulkanMemoryModel},
        {"vulkanMemoryModelDeviceScope", &v12.vulkanMemoryModelDeviceScope},
        {"synchronization2", &v13.synchronization2},
        {"subgroupSizeControl", &v13.subgroupSizeControl},
        {"computeFullSubgroups", &v13.computeFullSubgroups},
        {"maintenance4", &v13.maintenance4},
        {"shaderIntegerDotProduct", &v13.shaderIntegerDotProduct},
    };
    for (const auto& [known, member] : members) {
      if (name == known) *member = VK_TRUE;
      if (name == known) return true;
    }
    return false;
  }
};

}  // namespace

Renderer::Renderer(Window* window) : window_(window) {
  load();
  create_instance();
  create_device();
  if (window_ != nullptr) {
    swapchain_ = std::make_unique<Swapchain>(vk_, instance_, physical_device_, device_, surface_,
                                             VkExtent2D{kWidth, kHeight});
  }
  create_target();
  create_pipeline();
  create_frame();
}

Renderer::~Renderer() {
  vk_.vkDeviceWaitIdle(device_);
  swapchain_.reset();
  for (const Mapped& mapped : {vertices_, pixels_}) {
    vk_.vkDestroyBuffer(device_, mapped.buffer, nullptr);
    vk_.vkFreeMemory(device_, mapped.memory, nullptr);
  }
  vk_.vkDestroySemaphore(device_, timeline_, nullptr);
  vk_.vkDestroyCommandPool(device_, pool_, nullptr);
  vk_.vkDestroyPipeline(device_, pipeline_, nullptr);
  vk_.vkDestroyPipelineLayout(device_, layout_, nullptr);
  vk_.vkDestroyImageView(device_, view_, nullptr);
  vk_.vkDestroyImage(device_, image_, nullptr);
  vk_.vkFreeMemory(device_, image_memory_, nullptr);
  vk_.vkDestroyDevice(device_, nullptr);
  vk_.vkDestroyInstance(instance_, nullptr);
}

/// The loader stays open until the program ends: drivers do not like to be unloaded.
void Renderer::load() {
  library_ = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error("no Vulkan loader (libvulkan.so.1)");
  vk_.vkGetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library_, "vkGetInstanceProcAddr"));
  vk_.vkCreateInstance = reinterpret_cast<PFN_vkCreateInstance>(
      vk_.vkGetInstanceProcAddr(VK_NULL_HANDLE, "vkCreateInstance"));
}

void Renderer::create_instance() {
  VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                .pApplicationName = "npc",
                                .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                            .pApplicationInfo = &application};
  std::vector<const char*> extensions;
  if (window_ != nullptr) extensions = window_->instance_extensions();
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  check(vk_.vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
#define NPC_LOAD(name) \
  vk_.name = reinterpret_cast<PFN_##name>(vk_.vkGetInstanceProcAddr(instance_, #name));
  NPC_INSTANCE_FUNCTIONS(NPC_LOAD)
#undef NPC_LOAD
  if (window_ != nullptr) surface_ = window_->create_surface(instance_);
}

/// With what this program needs, what the library requires, and what helps it and is known here.
void Renderer::create_device() {
  uint32_t n_devices = 1;  // the loader's first
  const VkResult listed = vk_.vkEnumeratePhysicalDevices(instance_, &n_devices, &physical_device_);
  if (listed < VK_SUCCESS || n_devices == 0) throw std::runtime_error("no Vulkan device");

  size_t n = 0;
  const auto ask = [&](pumice_vulkan_requirement* out) {
    return pumice_vulkan_requirements(vk_.vkGetInstanceProcAddr, instance_, physical_device_, out,
                                      n, &n, nullptr);
  };
  check(ask(nullptr));
  std::vector<pumice_vulkan_requirement> wanted(n);
  wanted[0].struct_size = sizeof wanted[0];
  check(ask(wanted.data()));
  Features features;
  features.v13.dynamicRendering = VK_TRUE;  // this program's own
  for (const pumice_vulkan_requirement& item : wanted) {
    if (item.structure == nullptr) {
      if (item.required) extensions_.push_back(item.name);
    } else if (features.enable(item.name)) {
      features_.push_back(item.name);
    } else if (item.required) {
      throw std::runtime_error(std::string("this program cannot enable ") + item.name);
    }
  }

  if (window_ != nullptr) extensions_.push_back(VK_KHR_SWAPCHAIN_EXTENSION_NAME);
  queue_family_ = choose_queue_family();
  const float priority = 1;
  VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                .queueFamilyIndex = queue_family_,
                                .queueCount = 1,
                                .pQueuePriorities = &priority};
  VkDeviceCreateInfo info{.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                          .pNext = &features.core,
                          .queueCreateInfoCount = 1,
                          .pQueueCreateInfos = &queue,
                          .enabledExtensionCount = static_cast<uint32_t>(extensions_.size()),
                          .ppEnabledExtensionNames = extensions_.data()};
  check(vk_.vkCreateDevice(physical_device_, &info, nullptr, &device_), "vkCreateDevice");
#define NPC_LOAD(name) \
  vk_.name = reinterpret_cast<PFN_##name>(vk_.vkGetDeviceProcAddr(device_, #name));
  NPC_DEVICE_FUNCTIONS(NPC_LOAD)
#undef NPC_LOAD
  vk_.vkGetDeviceQueue(device_, queue_family_, 0, &queue_);
}

/// One queue for pictures and characters: most devices have one, and nothing else is needed.
uint32_t Renderer::choose_queue_family() const {
  uint32_t n_families = 0;
  vk_.vkGetPhysicalDeviceQueueFamilyProperties(physical_device_, &n_families, nullptr);
  std::vector<VkQueueFamilyProperties> families(n_families);
  vk_.vkGetPhysicalDeviceQueueFamilyProperties(physical_device_, &n_families, families.data());
  constexpr VkQueueFlags kBoth = VK_QUEUE_GRAPHICS_BIT | VK_QUEUE_COMPUTE_BIT;
  for (uint32_t i = 0; i < n_families; ++i) {
    VkBool32 shows = VK_TRUE;
    if (window_ != nullptr) {
      check(vk_.vkGetPhysicalDeviceSurfaceSupportKHR(physical_device_, i, surface_, &shows),
            "vkGetPhysicalDeviceSurfaceSupportKHR");
    }
    if ((families[i].queueFlags & kBoth) == kBoth && shows == VK_TRUE) return i;
  }
  throw std::runtime_error("no queue that draws, computes and, if asked for, shows");
}

/// No lock: the thread that draws is the one that polls.
pumice_vulkan_device Renderer::lent() const {
  pumice_vulkan_device host{};
  host.struct_size = sizeof host;
  host.get_instance_proc_addr = vk_.vkGetInstanceProcAddr;
  host.instance = instance_;
  host.physical_device = physical_device_;
  host.device = device_;
  host.queue = queue_;
  host.queue_family = queue_family_;
  host.extensions = extensions_.data();
  host.n_extensions = extensions_.size();
  host.features = features_.data();
  host.n_features = features_.size();
  return host;
}

VkDeviceMemory Renderer::allocate(const VkMemoryRequirements& requirements,
                                  VkMemoryPropertyFlags wanted) {
  VkPhysicalDeviceMemoryProperties memory{};
  vk_.vkGetPhysicalDeviceMemoryProperties(physical_device_, &memory);
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    const bool is_allowed = (requirements.memoryTypeBits >> i & 1) != 0;
    if (!is_allowed || (memory.memoryTypes[i].propertyFlags & wanted) != wanted) continue;
    VkMemoryAllocateInfo info{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                              .allocationSize = requirements.size,
                              .memoryTypeIndex = i};
    VkDeviceMemory allocated = VK_NULL_HANDLE;
    check(vk_.vkAllocateMemory(device_, &info, nullptr, &allocated), "vkAllocateMemory");
    return allocated;
  }
  throw std::runtime_error("no memory of the type wanted");
}

Renderer::Mapped Renderer::create_mapped(VkDeviceSize bytes, VkBufferUsageFlags usage) {
  Mapped mapped;
  VkBufferCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = bytes, .usage = usage};
  check(vk_.vkCreateBuffer(device_, &info, nullptr, &mapped.buffer), "vkCreateBuffer");
  VkMemoryRequirements requirements{};
  vk_.vkGetBufferMemoryRequirements(device_, mapped.buffer, &requirements);
  mapped.memory = allocate(
      requirements, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  check(vk_.vkBindBufferMemory(device_, mapped.buffer, mapped.memory, 0), "vkBindBufferMemory");
  check(vk_.vkMapMemory(device_, mapped.memory, 0, VK_WHOLE_SIZE, 0, &mapped.data), "vkMapMemory");
  return mapped;
}

void Renderer::create_target() {
  VkImageCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
      .imageType = VK_IMAGE_TYPE_2D,
      .format = kFormat,
      .extent = {kWidth, kHeight, 1},
      .mipLevels = 1,
      .arrayLayers = 1,
      .samples = VK_SAMPLE_COUNT_1_BIT,
      .usage = VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT};
  check(vk_.vkCreateImage(device_, &info, nullptr, &image_), "vkCreateImage");
  VkMemoryRequirements requirements{};
  vk_.vkGetImageMemoryRequirements(device_, image_, &requirements);
  image_memory_ = allocate(requirements, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  check(vk_.vkBindImageMemory(device_, image_, image_memory_, 0), "vkBindImageMemory");
  VkImageViewCreateInfo view{.sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
                             .image = image_,
                             .viewType = VK_IMAGE_VIEW_TYPE_2D,
                             .format = kFormat,
                             .subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1}};
  check(vk_.vkCreateImageView(device_, &view, nullptr, &view_), "vkCreateImageView");
}

VkShaderModule Renderer::create_shader(const uint32_t* code, size_t bytes) {
  VkShaderModuleCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = bytes, .pCode = code};
  VkShaderModule module = VK_NULL_HANDLE;
  check(vk_.vkCreateShaderModule(device_, &info, nullptr, &module), "vkCreateShaderModule");
  return module;
}

void Renderer::create_pipeline() {
  const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  check(vk_.vkCreatePipelineLayout(device_, &layout, nullptr, &layout_), "vkCreatePipelineLayout");
  std::array<VkPipelineShaderStageCreateInfo, 2> stages{};
  stages[0].stage = VK_SHADER_STAGE_VERTEX_BIT;
  stages[0].module = create_shader(kVertexShader, sizeof kVertexShader);
  stages[1].stage = VK_SHADER_STAGE_FRAGMENT_BIT;
  stages[1].module = create_shader(kFragmentShader, sizeof kFragmentShader);
  for (VkPipelineShaderStageCreateInfo& stage : stages) {
    stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    stage.pName = "main";
  }
  const VkVertexInputBindingDescription binding{0, sizeof(Vertex), VK_VERTEX_INPUT_RATE_VERTEX};
  const VkVertexInputAttributeDescription attributes[] = {
      {0, 0, VK_FORMAT_R32G32_SFLOAT, offsetof(Vertex, position)},
      {1, 0, VK_FORMAT_R32G32B32A32_SFLOAT, offsetof(Vertex, color)},
  };
  VkPipelineVertexInputStateCreateInfo input{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_VERTEX_INPUT_STATE_CREATE_INFO,
      .vertexBindingDescriptionCount = 1,
      .pVertexBindingDescriptions = &binding,
      .vertexAttributeDescriptionCount = 2,
      .pVertexAttributeDescriptions = attributes};
  VkPipelineInputAssemblyStateCreateInfo assembly{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_INPUT_ASSEMBLY_STATE_CREATE_INFO,
      .topology = VK_PRIMITIVE_TOPOLOGY_TRIANGLE_LIST};
  const VkViewport viewport{0, 0, kWidth, kHeight, 0, 1};
  const VkRect2D scissor{{0, 0}, {kWidth, kHeight}};
  VkPipelineViewportStateCreateInfo view{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_VIEWPORT_STATE_CREATE_INFO,
      .viewportCount = 1,
      .pViewports = &viewport,
      .scissorCount = 1,
      .pScissors = &scissor};
  VkPipelineRasterizationStateCreateInfo raster{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_RASTERIZATION_STATE_CREATE_INFO, .lineWidth = 1};
  VkPipelineMultisampleStateCreateInfo samples{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_MULTISAMPLE_STATE_CREATE_INFO,
      .rasterizationSamples = VK_SAMPLE_COUNT_1_BIT};
  VkPipelineColorBlendAttachmentState attachment{
      .colorWriteMask = VK_COLOR_COMPONENT_R_BIT | VK_COLOR_COMPONENT_G_BIT |
                        VK_COLOR_COMPONENT_B_BIT | VK_COLOR_COMPONENT_A_BIT};
  VkPipelineColorBlendStateCreateInfo blend{
      .sType = VK_STRUCTURE_TYPE_PIPELINE_COLOR_BLEND_STATE_CREATE_INFO,
      .attachmentCount = 1,
      .pAttachments = &attachment};
  VkPipelineRenderingCreateInfo rendering{.sType = VK_STRUCTURE_TYPE_PIPELINE_RENDERING_CREATE_INFO,
                                          .colorAttachmentCount = 1,
                                          .pColorAttachmentFormats = &kFormat};
  VkGraphicsPipelineCreateInfo info{.sType = VK_STRUCTURE_TYPE_GRAPHICS_PIPELINE_CREATE_INFO,
                                    .pNext = &rendering,
                                    .stageCount = 2,
                                    .pStages = stages.data(),
                                    .pVertexInputState = &input,
                                    .pInputAssemblyState = &assembly,
                                    .pViewportState = &view,
                                    .pRasterizationState = &raster,
                                    .pMultisampleState = &samples,
                                    .pColorBlendState = &blend,
                                    .layout = layout_};
  check(vk_.vkCreateGraphicsPipelines(device_, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline_),
        "vkCreateGraphicsPipelines");
  for (const VkPipelineShaderStageCreateInfo& stage : stages) {
    vk_.vkDestroyShaderModule(device_, stage.module, nullptr);
  }
}

void Renderer::create_frame() {
  VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                               .queueFamilyIndex = queue_family_};
  check(vk_.vkCreateCommandPool(device_, &pool, nullptr, &pool_), "vkCreateCommandPool");
  VkCommandBufferAllocateInfo buffer{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                     .commandPool = pool_,
                                     .commandBufferCount = 1};
  check(vk_.vkAllocateCommandBuffers(device_, &buffer, &commands_), "vkAllocateCommandBuffers");
  VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                 .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
  const VkSemaphoreCreateInfo semaphore{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
  check(vk_.vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_), "vkCreateSemaphore");
  vertices_ = create_mapped(kMaxVertices * sizeof(Vertex), VK_BUFFER_USAGE_VERTEX_BUFFER_BIT);
  pixels_ = create_mapped(VkDeviceSize{4} * kWidth * kHeight, VK_BUFFER_USAGE_TRANSFER_DST_BIT);
}

/// Waits for the frame before.
void Renderer::begin() {
  VkSemaphoreWaitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                           .semaphoreCount = 1,
                           .pSemaphores = &timeline_,
                           .pValues = &n_submitted_};
  check(vk_.vkWaitSemaphores(device_, &wait, UINT64_MAX), "vkWaitSemaphores");
  check(vk_.vkResetCommandPool(device_, pool_, 0), "vkResetCommandPool");
  VkCommandBufferBeginInfo info{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  check(vk_.vkBeginCommandBuffer(commands_, &info), "vkBeginCommandBuffer");
}

void Renderer::end(bool is_shown) {
  check(vk_.vkEndCommandBuffer(commands_), "vkEndCommandBuffer");
  VkCommandBufferSubmitInfo commands{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO,
                                     .commandBuffer = commands_};
  std::array<VkSemaphoreSubmitInfo, 2> signals{};
  for (VkSemaphoreSubmitInfo& signal : signals) {
    signal.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  }
  signals[0].semaphore = timeline_;
  signals[0].value = n_submitted_ + 1;
  VkSemaphoreSubmitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                             .stageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT};
  if (is_shown) {
    signals[1].semaphore = swapchain_->drawn();
    wait.semaphore = swapchain_->acquired();
  }
  VkSubmitInfo2 submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                       .waitSemaphoreInfoCount = is_shown ? 1u : 0u,
                       .pWaitSemaphoreInfos = &wait,
                       .commandBufferInfoCount = 1,
                       .pCommandBufferInfos = &commands,
                       .signalSemaphoreInfoCount = is_shown ? 2u : 1u,
                       .pSignalSemaphoreInfos = signals.data()};
  check(vk_.vkQueueSubmit2(queue_, 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit2");
  ++n_submitted_;
  if (is_shown) swapchain_->present(queue_);
}

void Renderer::transition(VkImageLayout from, VkImageLayout to) {
  VkImageMemoryBarrier2 barrier{.sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER_2};
  barrier.srcStageMask = barrier.dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.oldLayout = from;
  barrier.newLayout = to;
  barrier.srcQueueFamilyIndex = barrier.dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED;
  barrier.image = image_;
  barrier.subresourceRange = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};
  VkDependencyInfo info{.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                        .imageMemoryBarrierCount = 1,
                        .pImageMemoryBarriers = &barrier};
  vk_.vkCmdPipelineBarrier2(commands_, &info);
}

void Renderer::draw(const std::vector<Vertex>& vertices) {
  begin();
  const size_t n = std::min(vertices.size(), kMaxVertices);
  std::memcpy(vertices_.data, vertices.data(), n * sizeof(Vertex));
  transition(VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL);
  VkRenderingAttachmentInfo attachment{.sType = VK_STRUCTURE_TYPE_RENDERING_ATTACHMENT_INFO,
                                       .imageView = view_,
                                       .imageLayout = VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL,
                                       .loadOp = VK_ATTACHMENT_LOAD_OP_CLEAR,
                                       .storeOp = VK_ATTACHMENT_STORE_OP_STORE};
  attachment.clearValue.color = {{0.09f, 0.11f, 0.16f, 1}};
  VkRenderingInfo rendering{.sType = VK_STRUCTURE_TYPE_RENDERING_INFO,
                            .renderArea = {{0, 0}, {kWidth, kHeight}},
                            .layerCount = 1,
                            .colorAttachmentCount = 1,
                            .pColorAttachments = &attachment};
  vk_.vkCmdBeginRendering(commands_, &rendering);
  vk_.vkCmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_GRAPHICS, pipeline_);
  const VkDeviceSize zero = 0;
  vk_.vkCmdBindVertexBuffers(commands_, 0, 1, &vertices_.buffer, &zero);
  vk_.vkCmdDraw(commands_, static_cast<uint32_t>(n), 1, 0, 0);
  vk_.vkCmdEndRendering(commands_);
  const bool is_shown = swapchain_ != nullptr && swapchain_->acquire();
  if (is_shown) {
    transition(VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
    swapchain_->record(commands_, image_);
    transition(VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL);
  }
  end(is_shown);
}

void Renderer::save(const std::string& path) {
  begin();
  transition(VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
  VkBufferImageCopy copy{.imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
                         .imageExtent = {kWidth, kHeight, 1}};
  vk_.vkCmdCopyImageToBuffer(commands_, image_, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                             pixels_.buffer, 1, &copy);
  transition(VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL, VK_IMAGE_LAYOUT_COLOR_ATTACHMENT_OPTIMAL);
  // For the host to read.
  VkMemoryBarrier2 barrier{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                           .srcStageMask = VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT,
                           .srcAccessMask = VK_ACCESS_2_TRANSFER_WRITE_BIT,
                           .dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT,
                           .dstAccessMask = VK_ACCESS_2_HOST_READ_BIT};
  VkDependencyInfo info{.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                        .memoryBarrierCount = 1,
                        .pMemoryBarriers = &barrier};
  vk_.vkCmdPipelineBarrier2(commands_, &info);
  end(false);
  vk_.vkDeviceWaitIdle(device_);

  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << kWidth << ' ' << kHeight << "\n255\n";
  const auto* pixel = static_cast<const char*>(pixels_.data);
  for (uint32_t i = 0; i < kWidth * kHeight; ++i, pixel += 4) file.write(pixel, 3);
  if (!file) throw std::runtime_error("cannot write " + path);
}
