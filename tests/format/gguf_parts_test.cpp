// Models in several files: opening the first opens all, and what does not belong together is an
// error that names the file.
#include "format/gguf_parts.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "tests/format/test_files.hpp"

namespace pumice {
namespace {

/// One part, right unless something is made wrong. Its tensors are 8 floats, whose bytes are all
/// the first character of its name.
struct PartFile {
  std::vector<std::string> tensors;
  std::optional<uint16_t> index;
  std::optional<uint16_t> count = 3;
  std::optional<int32_t> n_tensors = 4;
  uint32_t alignment = 32;
};

class GgufParts : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(uint32_t number, uint32_t count = 3) const {
    return folder_ / ("model" + part_suffix({.number = number, .count = count}));
  }
  static void write(const std::filesystem::path& path, const PartFile& part) {
    GgufHeader header(part.alignment);
    header.set("general.name", path.filename().string());
    if (part.index) header.set("split.no", *part.index);
    if (part.count) header.set("split.count", *part.count);
    if (part.n_tensors) header.set("split.tensors.count", *part.n_tensors);
    std::string data;
    for (const std::string& name : part.tensors) {
      header.add_tensor(name, weight_type("F32"), {8});
      data += std::string(32, name[0]);
      data.resize((data.size() + part.alignment - 1) / part.alignment * part.alignment);
    }
    std::ofstream(path, std::ios::binary) << header.to_bytes().value() << data;
  }
  void write_all() {
    for (uint32_t i = 0; i < 3; ++i) {
      parts_[i].index = static_cast<uint16_t>(i);
      write(path(i + 1), parts_[i]);
    }
  }
  std::string error(const std::filesystem::path& opened) const {
    const Result<GgufFile> file = GgufFile::open(opened);
    if (file.ok()) return "";
    EXPECT_EQ(file.error().code, ErrorCode::kBadFile);
    std::string message = file.error().message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const std::string prefix = (folder_ / "").string();
    for (size_t at; (at = message.find(prefix)) != std::string::npos;) {
      message.erase(at, prefix.size());
    }
    return message;
  }
  /// Of the model, when the file of part `number` is `part`.
  std::string error_with(uint32_t number, const PartFile& part) {
    write_all();
    write(path(number), part);
    return error(path(1));
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("pumice-parts-" + std::to_string(::getpid()));
  // As llama.cpp's tool cuts them: the first may have no tensors, and alignments may differ.
  PartFile parts_[3] = {
      {.tensors = {}}, {.tensors = {"a", "b"}}, {.tensors = {"d", "c"}, .alignment = 64}};
};

TEST_F(GgufParts, TheFirstOpensAllAndReadsEachTensorFromItsFile) {
  write_all();
  const Result<GgufFile> file = GgufFile::open(path(1));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->n_parts(), 3u);
  EXPECT_EQ(file->get<std::string_view>("general.name").value(), path(1).filename().string());
  uint64_t n_bytes = 0;
  for (uint32_t i = 1; i <= 3; ++i) n_bytes += std::filesystem::file_size(path(i));
  EXPECT_EQ(file->size_bytes(), n_bytes);
  std::string order;
  for (const GgufTensor& tensor : file->tensors()) {
    order += tensor.name;
    EXPECT_EQ(file->find_tensor(tensor.name), &tensor);
    EXPECT_EQ(test::bytes_of(*file, tensor),
              std::vector<std::byte>(32, static_cast<std::byte>(tensor.name[0])));
  }
  EXPECT_EQ(order, "abdc");
}

TEST_F(GgufParts, TensorsMayLieInTheFirst) {
  parts_[0].tensors = {"z"};
  parts_[1].tensors = {"y"};
  for (PartFile& part : parts_) part.n_tensors = 4;
  write_all();
  const GgufFile file = GgufFile::open(path(1)).value();
  EXPECT_EQ(test::bytes_of(file, *file.find_tensor("z"))[0], std::byte{'z'});
  EXPECT_EQ(test::bytes_of(file, *file.find_tensor("y"))[0], std::byte{'y'});
}

TEST_F(GgufParts, AFileThatSaysItIsTheOnlyPartMayHaveAnyName) {
  write(folder_ / "x.gguf", {.tensors = {"a"}, .index = 0, .count = 1});
  EXPECT_EQ(error(folder_ / "x.gguf"), "");
  write(folder_ / "x.gguf", {.tensors = {"a"}, .index = 0, .count = 0});
  EXPECT_EQ(error(folder_ / "x.gguf"), "");
}

TEST_F(GgufParts, AnotherPartSaysWhichToOpen) {
  write_all();
  EXPECT_EQ(error(path(2)),
            "model-00002-of-00003.gguf: is part 2 of 3 of a model; open the first, "
            "model-00001-of-00003.gguf");
}

TEST_F(GgufParts, ANameThatDoesNotSayItsPartIsAnError) {
  write_all();
  std::filesystem::rename(path(1), folder_ / "model.gguf");
  EXPECT_EQ(error(folder_ / "model.gguf"),
            "model.gguf: is part 1 of 3 of a model, so its name must end in "
            "-00001-of-00003.gguf for the other parts to be found");
}

TEST_F(GgufParts, AMissingOrDamagedPartIsNamed) {
  write_all();
  std::filesystem::remove(path(3));
  EXPECT_EQ(error(path(1)),
            "model-00003-of-00003.gguf: No such file or directory (part 3 of "
            "model-00001-of-00003.gguf)");
  std::ofstream(path(3)) << "not a model";
  EXPECT_EQ(error(path(1)),
            "model-00003-of-00003.gguf: magic: not a GGUF file (it does not begin with \"GGUF\") "
            "(part 3 of model-00001-of-00003.gguf)");
}

TEST_F(GgufParts, PartsThatDoNotBelongTogetherAreErrors) {
  const std::string two = "model-00002-of-00003.gguf: ";
  const std::string part_two = " (part 2 of model-00001-of-00003.gguf)";
  EXPECT_EQ(error_with(2, {.tensors = {"a", "b"}, .index = 2}),
            two + "is part 3 of 3 by its metadata, not by its name" + part_two);
  EXPECT_EQ(error_with(2, {.tensors = {"a", "b"}, .index = 1, .count = 4}),
            two + "is part 2 of 4 by its metadata, not by its name" + part_two);
  EXPECT_EQ(error_with(2, {.tensors = {"a", "b"}, .index = 1, .count = {}}),
            two + "is part 1 of 1 by its metadata, not by its name" + part_two);
  EXPECT_EQ(error_with(2, {.tensors = {"a", "b"}}),
            two + "split.no: the key is missing" + part_two);
  EXPECT_EQ(error_with(2, {.tensors = {"a", "b"}, .index = 3}),
            two + "split.no: there is no part 3 of 3 (the first is 0)" + part_two);
  EXPECT_EQ(error_with(3, {.tensors = {"d", "a"}, .index = 2}),
            "model-00003-of-00003.gguf: tensor 'a': an earlier part has a tensor of that name");
  const std::string one = "model-00001-of-00003.gguf: ";
  EXPECT_EQ(error_with(3, {.tensors = {"d"}, .index = 2}),
            one + "split.tensors.count: 4, but the 3 parts have 3");
  EXPECT_EQ(
      error_with(1, {.tensors = {}, .index = 0, .n_tensors = -1}),
      one + "split.tensors.count: -1 is out of range (expected an unsigned integer of 64 bits)");
  EXPECT_EQ(error_with(1, {.tensors = {}, .index = 0, .n_tensors = {}}),
            one + "split.tensors.count: the key is missing");
  EXPECT_EQ(error_with(1, {.tensors = {}, .index = 0, .count = 513}),
            one + "split.count: 513 is more than the supported 512");
}

}  // namespace
}  // namespace pumice
