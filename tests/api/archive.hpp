// An archive of a host's, as a model is read from it by the host's functions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include "pumice/pumice.h"
#include "tests/api/api_fixture.hpp"
#include "tests/paths.hpp"

namespace pumice::test {

using Bytes = std::string;

inline Bytes bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The bundled model.
inline const Bytes& stories() {
  static const Bytes bytes = bytes_of_file(source_path("models/pumice-stories.gguf"));
  return bytes;
}

/// An archive of the host's, with whatever is wrong with it.
struct Archive {
  std::map<std::string, Bytes> files;
  std::map<std::string, uint64_t> claimed_bytes = {};  ///< instead of the true size
  size_t most_at_once = SIZE_MAX;
  uint64_t unreadable_from = UINT64_MAX;  ///< reads nothing there
  bool claims_too_much = false;           ///< of what it read
  std::function<void()> before_read = {};
  std::atomic<int> n_opened = 0;
  std::atomic<int> n_closed = 0;
  std::atomic<int> n_reads = 0;

  static pumice_status open(void* user, const char* name, void** file, uint64_t* n_bytes) {
    auto& archive = *static_cast<Archive*>(user);
    const auto found = archive.files.find(name);
    if (found == archive.files.end()) return PUMICE_NOT_FOUND;
    ++archive.n_opened;
    *file = &found->second;
    const auto claimed = archive.claimed_bytes.find(name);
    *n_bytes = claimed != archive.claimed_bytes.end() ? claimed->second : found->second.size();
    return PUMICE_OK;
  }
  static size_t read_at(void* user, void* file, uint64_t offset, void* bytes, size_t n_bytes) {
    auto& archive = *static_cast<Archive*>(user);
    ++archive.n_reads;
    if (archive.before_read) archive.before_read();
    const Bytes& all = *static_cast<const Bytes*>(file);
    if (archive.claims_too_much) return n_bytes + 1;
    if (offset >= all.size() || offset >= archive.unreadable_from) return 0;
    const size_t n = std::min({n_bytes, archive.most_at_once, all.size() - offset});
    std::memcpy(bytes, all.data() + offset, n);
    return n;
  }
  static void close(void* user, void* file) {
    EXPECT_NE(file, nullptr);
    ++static_cast<Archive*>(user)->n_closed;
  }

  pumice_files functions() { return {sizeof(pumice_files), this, open, read_at, close}; }
};

inline pumice_model_options options_of(const char* path, const pumice_files& files) {
  pumice_model_options options{sizeof options};
  options.path = pumice_str(path);
  options.files = &files;
  return options;
}

}  // namespace pumice::test
