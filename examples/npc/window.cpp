#include "window.hpp"

#include <SDL2/SDL.h>
#include <SDL2/SDL_vulkan.h>

#include <stdexcept>
#include <string>

namespace {

void check(bool is_done, const char* what) {
  if (!is_done) throw std::runtime_error(std::string(what) + ": " + SDL_GetError());
}

}  // namespace

Window::Window(uint32_t width, uint32_t height) {
  check(SDL_Init(SDL_INIT_VIDEO) == 0, "SDL_Init");
  window_ = SDL_CreateWindow("npc", SDL_WINDOWPOS_CENTERED, SDL_WINDOWPOS_CENTERED,
                             static_cast<int>(width), static_cast<int>(height), SDL_WINDOW_VULKAN);
  check(window_ != nullptr, "SDL_CreateWindow");
}

Window::~Window() {
  SDL_DestroyWindow(window_);
  SDL_Quit();
}

std::vector<const char*> Window::instance_extensions() const {
  unsigned n = 0;
  check(SDL_Vulkan_GetInstanceExtensions(window_, &n, nullptr) == SDL_TRUE, "extensions");
  std::vector<const char*> names(n);
  check(SDL_Vulkan_GetInstanceExtensions(window_, &n, names.data()) == SDL_TRUE, "extensions");
  return names;
}

VkSurfaceKHR Window::create_surface(VkInstance instance) const {
  VkSurfaceKHR surface = VK_NULL_HANDLE;
  check(SDL_Vulkan_CreateSurface(window_, instance, &surface) == SDL_TRUE, "a surface");
  return surface;
}

bool Window::is_closed() {
  SDL_Event event;
  while (SDL_PollEvent(&event) != 0) {
    const bool is_escape = event.type == SDL_KEYDOWN && event.key.keysym.sym == SDLK_ESCAPE;
    is_closed_ = is_closed_ || event.type == SDL_QUIT || is_escape;
  }
  return is_closed_;
}
