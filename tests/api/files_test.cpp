// Models that a host reads by its own functions, or has in memory, and hosts whose functions lie.
#include <cstddef>
#include <cstdint>
#include <string>

#include "format/gguf.hpp"
#include "format/gguf_writer.hpp"
#include "tests/api/api_fixture.hpp"
#include "tests/api/archive.hpp"
#include "tests/paths.hpp"

namespace pumice {
namespace {

using test::Archive;
using test::Bytes;
using test::options_of;
using test::stories;

Bytes number(auto value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

/// The bundled model in two parts, of which the second has all tensors.
void split(Archive& archive, const std::string& name) {
  const auto whole = GgufFile::open(test::source_path("models/pumice-stories.gguf"));
  ASSERT_TRUE(whole.ok());
  GgufHeader second;
  second.set("split.no", uint16_t{1});
  second.set("split.count", uint16_t{2});
  Bytes data;
  for (const GgufTensor& tensor : whole->tensors()) {
    second.add_tensor(tensor.name, *tensor.type,
                      {tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims});
    data += stories().substr(whole->header_bytes() + tensor.offset, tensor.n_bytes);
    data.resize((data.size() + 31) / 32 * 32);
  }
  GgufHeader more;
  more.set("split.no", uint16_t{0});
  more.set("split.count", uint16_t{2});
  more.set("split.tensors.count", static_cast<int32_t>(whole->tensors().size()));
  constexpr size_t kFirstKey = 24;
  // Each begins with the eight bytes of its name's length.
  const char* const metadata = whole->metadata()[0].key.data() - 8;
  const char* const tensors = whole->tensors()[0].name.data() - 8;
  archive.files[name + "-00001-of-00002.gguf"] =
      "GGUF" + number(uint32_t{3}) + number(uint64_t{0}) +
      number(uint64_t{whole->metadata().size() + 3}) + Bytes(metadata, tensors) +
      more.to_bytes().value().substr(kFirstKey);
  archive.files[name + "-00002-of-00002.gguf"] = second.to_bytes().value() + data;
}

class ApiFiles : public test::ApiTest {
 protected:
  static std::string answer_of(pumice_model* model) {
    pumice_engine* engine = test::create_engine(model);
    const std::string text = test::ask(engine, 0, test::request_of("Once upon a time", 12)).text;
    pumice_engine_close(engine);
    return text;
  }
  static std::string expected() { return answer_of(model_); }

  std::string loaded_answer(const pumice_model_options& options) {
    pumice_model* model = nullptr;
    EXPECT_OK(pumice_model_load(device_, &options, &model));
    const std::string answer = model != nullptr ? answer_of(model) : "";
    pumice_model_close(model);
    return answer;
  }
  /// Why it cannot be loaded; nothing stays open.
  std::string error_of(Archive& archive, pumice_status expected = PUMICE_BAD_FILE) {
    const pumice_files files = archive.functions();
    const pumice_model_options options = options_of("pak/a.gguf", files);
    pumice_model* model = nullptr;
    EXPECT_STATUS(expected, pumice_model_load(device_, &options, &model));
    EXPECT_EQ(model, nullptr);
    EXPECT_EQ(archive.n_opened, archive.n_closed);
    return pumice_last_error();
  }
};

TEST_F(ApiFiles, AModelIsReadByTheHostsFunctions) {
  Archive archive{.files = {{"pak/a.gguf", stories()}}};
  const pumice_files files = archive.functions();
  const pumice_model_options options = options_of("pak/a.gguf", files);
  EXPECT_EQ(loaded_answer(options), expected());
  EXPECT_EQ(archive.n_opened, 1);
  EXPECT_EQ(archive.n_closed, 1);
}

TEST_F(ApiFiles, ShortReadsAreContinued) {
  Archive archive{.files = {{"pak/a.gguf", stories()}}, .most_at_once = 1000};
  const pumice_files files = archive.functions();
  EXPECT_EQ(loaded_answer(options_of("pak/a.gguf", files)), expected());
  EXPECT_GT(archive.n_reads, static_cast<int>(stories().size() / 1000));
}

TEST_F(ApiFiles, PartsAreOpenedByTheirNames) {
  Archive archive;
  split(archive, "pak/s");
  const pumice_files files = archive.functions();
  EXPECT_EQ(loaded_answer(options_of("pak/s-00001-of-00002.gguf", files)), expected());
  EXPECT_EQ(archive.n_opened, 2);
  EXPECT_EQ(archive.n_closed, 2);
  archive.files.erase("pak/s-00002-of-00002.gguf");
  const pumice_model_options options = options_of("pak/s-00001-of-00002.gguf", files);
  pumice_model* model = nullptr;
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_load(device_, &options, &model));
  EXPECT_NE(std::string(pumice_last_error()).find("pak/s-00002-of-00002.gguf"), std::string::npos);
  EXPECT_EQ(archive.n_opened, archive.n_closed);
}

TEST_F(ApiFiles, AnEstimateReadsTheDescriptionAlone) {
  Archive archive{.files = {{"pak/a.gguf", stories()}}, .unreadable_from = stories().size() / 2};
  const pumice_files files = archive.functions();
  const pumice_model_options options = options_of("pak/a.gguf", files);
  pumice_memory_estimate estimate{sizeof estimate};
  EXPECT_OK(pumice_model_estimate(device_, &options, &estimate));
  EXPECT_EQ(estimate.fits, 1u);
  EXPECT_EQ(archive.n_closed, 1);
}

TEST_F(ApiFiles, FunctionsThatFailOrLieAreErrors) {
  Archive none{};
  EXPECT_NE(
      error_of(none).find("pak/a.gguf: the host's function cannot open it (PUMICE_NOT_FOUND)"),
      std::string::npos);
  Archive cut{.files = {{"pak/a.gguf", stories()}}, .unreadable_from = stories().size() / 2};
  EXPECT_NE(error_of(cut).find("reads nothing at byte"), std::string::npos);
  Archive unreadable{.files = {{"pak/a.gguf", stories()}}, .unreadable_from = 0};
  EXPECT_NE(error_of(unreadable).find("reads nothing at byte 0"), std::string::npos);
  Archive boasting{.files = {{"pak/a.gguf", stories()}}, .claims_too_much = true};
  EXPECT_NE(error_of(boasting).find("says it read"), std::string::npos);
  Archive other{.files = {{"pak/a.gguf", "not a model at all"}}};
  EXPECT_NE(error_of(other).find("not a GGUF file"), std::string::npos);
}

TEST_F(ApiFiles, SizesThatLieAreErrors) {
  for (const uint64_t claimed :
       {uint64_t{0}, uint64_t{1}, uint64_t{100}, uint64_t{stories().size() - 100}}) {
    Archive small{.files = {{"pak/a.gguf", stories()}}, .claimed_bytes = {{"pak/a.gguf", claimed}}};
    EXPECT_NE(error_of(small), "") << claimed;
  }
  // More than there is hurts only where something would have to lie there.
  const Bytes half = stories().substr(0, stories().size() / 2);
  for (const uint64_t claimed : {uint64_t{stories().size()}, UINT64_MAX}) {
    Archive large{.files = {{"pak/a.gguf", half}}, .claimed_bytes = {{"pak/a.gguf", claimed}}};
    EXPECT_NE(error_of(large).find("reads nothing at byte"), std::string::npos) << claimed;
  }
}

TEST_F(ApiFiles, AModelIsReadFromMemory) {
  pumice_model_options options{sizeof options};
  options.memory = stories().data();
  options.memory_bytes = stories().size();
  EXPECT_EQ(loaded_answer(options), expected());
  pumice_model* model = nullptr;
  options.memory_bytes /= 2;
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_load(device_, &options, &model));
  EXPECT_EQ(std::string(pumice_last_error()).find("model in memory: "), 0u);
  Archive archive;
  split(archive, "s");
  const Bytes& first = archive.files["s-00001-of-00002.gguf"];
  options.path = pumice_str("s-00001-of-00002.gguf");
  options.memory = first.data();
  options.memory_bytes = first.size();
  EXPECT_STATUS(PUMICE_BAD_FILE, pumice_model_load(device_, &options, &model));
  EXPECT_NE(std::string(pumice_last_error()).find("needs `files`"), std::string::npos);
}

TEST_F(ApiFiles, WhatIsContradictoryIsRefused) {
  Archive archive{.files = {{"pak/a.gguf", stories()}}};
  pumice_files files = archive.functions();
  pumice_model* model = nullptr;
  const auto refused = [&](const pumice_model_options& options, const char* message) {
    EXPECT_STATUS(PUMICE_INVALID_ARGUMENT, pumice_model_load(device_, &options, &model));
    EXPECT_STREQ(pumice_last_error(), message);
    EXPECT_EQ(archive.n_opened, 0);
  };
  pumice_model_options options = options_of("pak/a.gguf", files);
  options.memory = stories().data();
  refused(options, "memory_bytes is not set, but memory is");
  options.memory_bytes = 1;
  refused(options, "give files or memory, only one of them");
  options.files = nullptr;
  options.memory = nullptr;
  refused(options, "memory is not set, but memory_bytes is");
  refused(options_of("", files), "path is empty");
  files.read_at = nullptr;
  refused(options_of("pak/a.gguf", files), "files: open or read_at is NULL");
  files = archive.functions();
  files.struct_size = 3;
  refused(options_of("pak/a.gguf", files), "struct_size of files is 3, expected 40");
}

}  // namespace
}  // namespace pumice
