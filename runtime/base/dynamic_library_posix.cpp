#include <dlfcn.h>

#include "base/dynamic_library.hpp"

namespace pumice {

DynamicLibrary DynamicLibrary::open(std::initializer_list<const char*> names) {
  DynamicLibrary library;
  for (const char* const name : names) {
    if (!library.is_open()) library.handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  return library;
}

DynamicLibrary::~DynamicLibrary() {
  if (is_open()) ::dlclose(handle_);
}

void* DynamicLibrary::address(const char* name) const {
  return is_open() ? ::dlsym(handle_, name) : nullptr;
}

}  // namespace pumice
