#include "format/gguf_writer.hpp"

#include <algorithm>

#include "test_files.hpp"

namespace pumice {
namespace {

std::vector<std::byte> counting_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

size_t files_like(const std::filesystem::path& path) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    n += entry.path().string().starts_with(path.string()) ? 1 : 0;
  }
  return n;
}

TEST(GgufWriter, WhatIsWrittenInOddChunksIsReadBack) {
  for (const uint32_t alignment : {32u, 1u, 256u}) {
    const test::TemporaryFile target;
    GgufHeader header(alignment);
    header.set("general.architecture", "llama");
    header.add_tensor("a", weight_type("F32"), {3, 5});
    header.add_tensor("b", weight_type("Q4_K"), {256, 2});
    header.add_tensor("c", weight_type("F16"), {7});
    Result<GgufWriter> writer = GgufWriter::create(target.path(), std::move(header));
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const std::vector<std::byte> data = counting_bytes(60 + 288 + 14);
    for (size_t at = 0; at < data.size(); at += 11) {
      const size_t n = std::min<size_t>(11, data.size() - at);
      ASSERT_TRUE(writer->write(std::span(data).subspan(at, n)).ok());
    }
    const Status finished = writer->finish();
    ASSERT_TRUE(finished.ok()) << finished.error().message;

    const Result<GgufFile> file = GgufFile::open(target.path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->alignment(), alignment);
    EXPECT_EQ(*file->get<std::string_view>("general.architecture"), "llama");
    ASSERT_EQ(file->tensors().size(), 3u);
    std::vector<std::byte> read;
    for (const GgufTensor& tensor : file->tensors()) {
      const std::vector<std::byte> bytes = test::bytes_of(*file, tensor);
      read.insert(read.end(), bytes.begin(), bytes.end());
      EXPECT_EQ(tensor.offset % alignment, 0u);
    }
    EXPECT_EQ(read, data);
    const GgufTensor* b = file->find_tensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->type->name, "Q4_K");
    EXPECT_EQ(b->dims, (std::array<uint64_t, 4>{256, 2, 1, 1}));
    EXPECT_EQ(file->find_tensor("d"), nullptr);
  }
}

TEST(GgufWriter, AnUnfinishedFileLeavesTheOldOneAndNothingElse) {
  const test::TemporaryFile target("old");
  GgufHeader header;
  header.add_tensor("a", weight_type("F32"), {4});
  {
    Result<GgufWriter> writer = GgufWriter::create(target.path(), header);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(files_like(target.path()), 2u);
    EXPECT_EQ(writer->finish().error().message,
              target.path().string() + ": data of tensor 'a' is missing");
    EXPECT_EQ(writer->write(counting_bytes(17)).error().message,
              target.path().string() + ": more data than the tensors hold");
  }
  EXPECT_EQ(files_like(target.path()), 1u);
  EXPECT_EQ(test::read_file(target.path()), "old");
}

TEST(GgufWriter, RefusesHeadersThatCouldNotBeRead) {
  const auto error = [](auto fill) {
    const test::TemporaryFile target;
    GgufHeader header;
    fill(header);
    const Result<GgufWriter> writer = GgufWriter::create(target.path(), std::move(header));
    return writer.ok() ? "" : writer.error().message.substr(target.path().string().size() + 2);
  };
  const WeightType& q8 = weight_type("Q8_0");
  EXPECT_EQ(error([](GgufHeader& h) { h = GgufHeader(24); }), "alignment 24 is not a power of two");
  EXPECT_EQ(error([](GgufHeader& h) {
              h.set("k", 1);
              h.set("k", 2);
            }),
            "key 'k' is given twice");
  EXPECT_EQ(error([](GgufHeader& h) { h.set("\xFF", 1); }), "key '\\xff' is empty or not UTF-8");
  EXPECT_EQ(error([&](GgufHeader& h) { h.add_tensor("t", q8, {33}); }),
            "tensor 't': dimensions are not possible for type Q8_0");
  EXPECT_EQ(error([&](GgufHeader& h) {
              h.add_tensor("t", q8, {32, uint64_t{1} << 60});
            }),
            "tensor 't': dimensions are not possible for type Q8_0");
  EXPECT_EQ(error([&](GgufHeader& h) {
              h.add_tensor("t", q8, {32});
              h.add_tensor("t", q8, {32});
            }),
            "tensor 't' is given twice");
}

TEST(GgufWriter, AFolderThatDoesNotExistIsAnError) {
  EXPECT_EQ(GgufWriter::create("/nowhere/x.gguf", GgufHeader()).error().code, ErrorCode::kBadFile);
}

}  // namespace
}  // namespace pumice
