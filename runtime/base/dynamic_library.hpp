// Libraries of the system that are opened at run time, so that a program starts without them.
#pragma once

#include <initializer_list>
#include <utility>

namespace pumice {

/// Closed with its owner. Move-only; any number of threads may look up functions.
class DynamicLibrary {
 public:
  /// Not open.
  DynamicLibrary() = default;
  /// The first of these file names that the system finds where it looks for libraries, with its
  /// functions seen by nobody else. Names of other systems among them are found on those.
  static DynamicLibrary open(std::initializer_list<const char*> names);
  DynamicLibrary(DynamicLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)) {}
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~DynamicLibrary();

  bool is_open() const { return handle_ != nullptr; }

  /// Null where the library has no such function, or is not open.
  template <typename Signature>
  Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(address(name));
  }

  /// It stays open to the end of the process: what it started may need it there.
  void keep_open() { handle_ = nullptr; }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
};

}  // namespace pumice
