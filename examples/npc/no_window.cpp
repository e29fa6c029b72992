// In the place of window.cpp where there is no SDL2.
#include <stdexcept>

#include "window.hpp"

Window::Window(uint32_t, uint32_t) {
  throw std::runtime_error("--window: this program was built without SDL2 (libsdl2-dev)");
}
Window::~Window() = default;
std::vector<const char*> Window::instance_extensions() const { return {}; }
VkSurfaceKHR Window::create_surface(VkInstance) const { return VK_NULL_HANDLE; }
bool Window::is_closed() { return true; }
