// SHA-256, libmd's, for checksums of downloads.
#pragma once

#include <sha2.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pumice {

/// The hash of what was added, in any pieces. Copyable; one thread at a time.
class Sha256 {
 public:
  Sha256() { SHA256Init(&context_); }
  void add(std::span<const std::byte> bytes) {
    SHA256Update(&context_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  /// 64 lower-case hexadecimal digits. The last call.
  std::string finish() {
    std::string digits(SHA256_DIGEST_STRING_LENGTH, '\0');
    SHA256End(&context_, digits.data());
    digits.pop_back();  // the zero at its end
    return digits;
  }

 private:
  SHA2_CTX context_;
};

}  // namespace pumice
