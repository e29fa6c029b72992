#include "tests/host_faults.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/vk_faults.hpp"

namespace pumice::test {
namespace {

std::atomic<bool> armed = false;
std::atomic<uint64_t> nth_call = 0;
std::atomic<uint64_t> calls = 0;
std::atomic<bool> has_struck = false;
thread_local int paused = 0;
thread_local bool counts = false;  // of the thread that armed; drivers have threads too

bool fails() {
  if (!armed || !counts || paused > 0 || VulkanFaults::in_driver()) return false;
  if (calls++ != nth_call) return false;
  has_struck = true;
  return true;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void HostFaults::arm(uint64_t nth) {
  armed = false;
  nth_call = nth;
  calls = 0;
  has_struck = false;
  counts = true;
  armed = true;
}
void HostFaults::disarm() { armed = false; }
bool HostFaults::struck() { return has_struck; }
uint64_t HostFaults::n_calls() { return calls; }

HostFaultsPaused::HostFaultsPaused() { ++paused; }
HostFaultsPaused::~HostFaultsPaused() { --paused; }

}  // namespace pumice::test

using pumice::test::allocate;
using pumice::test::allocate_or_throw;

// The standard's forms with arrays and sizes call these.
void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
