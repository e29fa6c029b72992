// A window on the screen, if this program was built with SDL2 (libsdl2-dev).
#pragma once

#include <cstdint>
#include <vector>

#include "vulkan_table.hpp"

struct SDL_Window;

/// Errors are thrown as std::runtime_error; that there is no SDL2 is one.
class Window {
 public:
  Window(uint32_t width, uint32_t height);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  /// What an instance needs to draw into it; valid as long as this.
  std::vector<const char*> instance_extensions() const;
  /// The caller's to destroy, before this.
  VkSurfaceKHR create_surface(VkInstance instance) const;
  /// Takes what was typed and clicked; whether somebody closed the window.
  bool is_closed();

 private:
  SDL_Window* window_ = nullptr;
  bool is_closed_ = false;
};
