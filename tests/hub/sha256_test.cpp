#include "hub/sha256.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace pumice {
namespace {

std::string hash_of(std::string_view text, size_t piece) {
  Sha256 hash;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    const std::string_view next = text.substr(0, piece);
    hash.add(std::as_bytes(std::span(next.data(), next.size())));
  }
  return hash.finish();
}

// The examples of FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, gives_the_standards_examples_in_any_pieces) {
  const std::string million(1000000, 'a');
  for (const size_t piece : {1, 3, 55, 56, 63, 64, 65, 1000, 1000000}) {
    EXPECT_EQ(hash_of("", piece),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hash_of("abc", piece),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(hash_of(million, piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

}  // namespace
}  // namespace pumice
