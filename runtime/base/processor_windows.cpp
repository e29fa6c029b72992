#include <windows.h>

#include "base/processor.hpp"

namespace pumice {

// Clocks, who chooses them and the load are not told without libraries of their own.
ProcessorState read_processor_state(const std::filesystem::path& /*root*/) {
  ProcessorState state;
  state.n_cores = ::GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
  constexpr wchar_t kKey[] = L"HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0";
  char name[128] = {};
  wchar_t wide[128] = {};
  DWORD n_bytes = sizeof wide - sizeof *wide;
  if (::RegGetValueW(HKEY_LOCAL_MACHINE, kKey, L"ProcessorNameString", RRF_RT_REG_SZ, nullptr, wide,
                     &n_bytes) == ERROR_SUCCESS) {
    ::WideCharToMultiByte(CP_UTF8, 0, wide, -1, name, sizeof name - 1, nullptr, nullptr);
    state.name = name;
  }
  return state;
}

}  // namespace pumice
