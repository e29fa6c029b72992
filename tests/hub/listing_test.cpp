#include "hub/listing.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pumice {
namespace {

const std::string kListedSha256(64, 'a');
const std::string kCommit(40, 'c');

TEST(Listing, has_the_commit_and_files_with_sizes_and_checksums) {
  const Listing listing = parse_listing(R"({"sha": ")" + kCommit + R"(", "siblings": [
        {"rfilename": "README.md", "size": 3, "blobId": "x"},
        {"rfilename": "m.gguf", "size": 134, "lfs": {"sha256": ")" +
                                        kListedSha256 + R"(", "size": 1000, "pointerSize": 134}},
        {"rfilename": "sub/n.gguf", "lfs": {"oid": ")" +
                                        kListedSha256 + R"(", "size": 7}}]})")
                              .value();
  EXPECT_EQ(listing.commit, kCommit);
  ASSERT_EQ(listing.files.size(), 3);
  EXPECT_EQ(listing.files[0].sha256, "");
  EXPECT_EQ(listing.files[1].path, "m.gguf");
  EXPECT_EQ(listing.files[1].size_bytes, 1000);
  EXPECT_EQ(listing.files[1].sha256, kListedSha256);
  EXPECT_EQ(listing.files[2].sha256, kListedSha256);
}

TEST(Listing, leaves_out_entries_that_make_no_sense) {
  for (const char* const entry :
       {"1", "null", "[]", "{}", R"({"rfilename": 1, "size": 1})", R"({"rfilename": "a"})",
        R"({"rfilename": "a", "size": -1})", R"({"rfilename": "a", "size": 0})",
        R"({"rfilename": "a", "size": 1.5})", R"({"rfilename": "a", "size": "1"})",
        R"({"rfilename": "a", "size": 18446744073709551615})",
        R"({"rfilename": "../a", "size": 1})", R"({"rfilename": "/a", "size": 1})"}) {
    const Result<Listing> listing = parse_listing(std::string(R"({"siblings": [)") + entry + "]}");
    ASSERT_TRUE(listing.ok()) << entry;
    EXPECT_TRUE(listing->files.empty()) << entry;
    EXPECT_EQ(listing->commit, "main");
  }
}

TEST(Listing, believes_no_checksum_or_commit_that_is_none) {
  const Listing listing = parse_listing(R"({"sha": "../../x", "siblings": [
      {"rfilename": "a", "size": 1, "lfs": {"sha256": "../x"}}]})")
                              .value();
  EXPECT_EQ(listing.commit, "main");
  ASSERT_EQ(listing.files.size(), 1);
  EXPECT_EQ(listing.files[0].sha256, "");
}

TEST(Listing, refuses_what_is_no_listing) {
  for (const std::string& text :
       {std::string(), std::string("<html>"), std::string("[]"), std::string("{}"),
        std::string("{\"siblings\": 1}"), std::string("{\"siblings\": ["), std::string(1000, '['),
        std::string(4 << 20, '['),
        R"({"siblings": [)" + std::string(1000, '[') + std::string(1000, ']') + "]}"}) {
    const Result<Listing> listing = parse_listing(text);
    ASSERT_FALSE(listing.ok()) << text.substr(0, 40);
    EXPECT_EQ(listing.error().code, ErrorCode::kBadFile);
  }
}

}  // namespace
}  // namespace pumice
