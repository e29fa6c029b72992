// What the fuzzers share: promises that end the program where they are broken, and how much memory
// an input may cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace pumice::fuzz {

/// libFuzzer keeps the input of a program that aborts.
inline void promise(bool kept, std::string_view what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// What every error message promises: one line, of bounded length, without control characters.
inline void check_error(const Error& error) {
  promise(!error.message.empty(), "an error says something");
  promise(error.message.size() < 1000, "an error is short: " + error.message);
  for (const char c : error.message) {
    promise(static_cast<unsigned char>(c) >= ' ' && c != '\x7F', "an error is one plain line");
  }
}

/// The heap's growth beyond what it was when the meter was made; one at a time.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  size_t peak_bytes() const;
};

}  // namespace pumice::fuzz
