#include <windows.h>

#include "base/dynamic_library.hpp"

namespace pumice {

DynamicLibrary DynamicLibrary::open(std::initializer_list<const char*> names) {
  DynamicLibrary library;
  for (const char* const name : names) {
    // Of the program's folder and the system's, never of the one where it was started.
    if (!library.is_open())
      library.handle_ = ::LoadLibraryExA(name, nullptr, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  }
  return library;
}

DynamicLibrary::~DynamicLibrary() {
  if (is_open()) ::FreeLibrary(static_cast<HMODULE>(handle_));
}

void* DynamicLibrary::address(const char* name) const {
  if (!is_open()) return nullptr;
  return reinterpret_cast<void*>(::GetProcAddress(static_cast<HMODULE>(handle_), name));
}

}  // namespace pumice
