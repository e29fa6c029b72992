#include <shlobj.h>
#include <windows.h>

#include <cstdlib>

#include "base/folders.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

fs::path known_folder(const KNOWNFOLDERID& id) {
  wchar_t* path = nullptr;
  const HRESULT result = ::SHGetKnownFolderPath(id, KF_FLAG_DEFAULT, nullptr, &path);
  const fs::path folder = result == S_OK ? fs::path(path) : fs::path();
  ::CoTaskMemFree(path);
  return folder;
}

/// Where programs keep what is of this user and this machine.
fs::path local_folder(const wchar_t* name) {
  const wchar_t* const variable = ::_wgetenv(L"LOCALAPPDATA");
  const fs::path local = variable != nullptr && *variable != L'\0'
                             ? fs::path(variable)
                             : known_folder(FOLDERID_LocalAppData);
  return local.empty() ? fs::path() : local / "pumice" / name;
}

}  // namespace

fs::path config_directory() { return local_folder(L"config"); }
fs::path cache_directory() { return local_folder(L"cache"); }
fs::path state_directory() { return local_folder(L"state"); }

fs::path account_home() { return known_folder(FOLDERID_Profile); }

}  // namespace pumice
