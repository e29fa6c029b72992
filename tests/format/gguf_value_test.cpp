#include "format/gguf_value.hpp"

#include <string>

#include "base/utf8.hpp"
#include "format/gguf_writer.hpp"
#include "test_files.hpp"

namespace pumice {
namespace {

GgufFile open(const test::TemporaryFile& file) {
  Result<GgufFile> opened = GgufFile::open(file.path());
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return std::move(opened).value();
}

/// A file holding only what `fill` sets.
template <typename Fill>
GgufFile with_metadata(const test::TemporaryFile& file, Fill fill) {
  GgufHeader header;
  fill(header);
  Result<GgufWriter> writer = GgufWriter::create(file.path(), header);
  EXPECT_TRUE(writer.ok() && writer->finish().ok());
  return open(file);
}

TEST(GgufValue, ConvertsNumbersThatFit) {
  const test::TemporaryFile path;
  const GgufFile file = with_metadata(path, [](GgufHeader& header) {
    header.set("u8", uint8_t{200});
    header.set("i64", int64_t{-3});
    header.set("u64", ~uint64_t{0});
    header.set("f32", 0.5f);
    header.set("f64", 1e300);
    header.set("yes", true);
  });
  EXPECT_EQ(*file.get<uint32_t>("u8"), 200u);
  EXPECT_EQ(*file.get<int32_t>("i64"), -3);
  EXPECT_EQ(*file.get<uint64_t>("u64"), ~uint64_t{0});
  EXPECT_EQ(*file.get<float>("f32"), 0.5f);
  EXPECT_EQ(*file.get<double>("f64"), 1e300);
  EXPECT_EQ(*file.get<float>("u8"), 200.0f);
  EXPECT_EQ(*file.get<bool>("yes"), true);
}

TEST(GgufValue, ErrorsNameTheKeyAndWhatWasFound) {
  const test::TemporaryFile path;
  const GgufFile file = with_metadata(path, [](GgufHeader& header) {
    header.set("llama.block_count", "two");
    header.set("negative", -3);
    header.set("real", 2.0f);
    header.set("list", std::string("x"));
    header.set_array("numbers", std::span<const float>(std::vector<float>{1, 2}));
    header.set("flag", true);
  });
  EXPECT_EQ(file.get<uint32_t>("llama.block_count").error().message,
            "llama.block_count: expected an unsigned integer, found string");
  EXPECT_EQ(file.get<uint32_t>("negative").error().message,
            "negative: -3 is out of range (expected an unsigned integer of 32 bits)");
  EXPECT_EQ(file.get<int32_t>("real").error().message, "real: expected an integer, found float32");
  EXPECT_EQ(file.get<uint32_t>("flag").error().message,
            "flag: expected an unsigned integer, found bool");
  EXPECT_EQ(file.get<bool>("real").error().message, "real: expected a bool, found float32");
  EXPECT_EQ(file.get<float>("numbers").error().message,
            "numbers: expected a number, found an array of float32");
  EXPECT_EQ(file.get<std::string_view>("numbers").error().message,
            "numbers: expected a string, found an array of float32");
  EXPECT_EQ(file.get_strings("numbers").error().message,
            "numbers: expected an array of strings, found an array of float32");
  EXPECT_EQ(file.get<float>("absent").error().message, "absent: the key is missing");
  EXPECT_EQ(file.get_vector<float>("numbers", 1).error().message,
            "numbers: holds 2 values, expected at most 1");
}

TEST(GgufValue, FallbacksAreForAbsentKeysNotForWrongTypes) {
  const test::TemporaryFile path;
  const GgufFile file =
      with_metadata(path, [](GgufHeader& header) { header.set("rope.freq_base", "high"); });
  EXPECT_EQ(*file.get_or<float>("rope.scale", 2.0f), 2.0f);
  EXPECT_FALSE(file.get_or<float>("rope.freq_base", 1e4f).ok());
}

TEST(GgufValue, AScalarIsAVectorOfOne) {
  const test::TemporaryFile path;
  const GgufFile file = with_metadata(path, [](GgufHeader& header) {
    header.set("one", 8u);
    header.set_array("two", std::span<const int32_t>(std::vector<int32_t>{8, 4}));
  });
  EXPECT_EQ(*file.get_vector<uint32_t>("one", 100), std::vector<uint32_t>{8});
  EXPECT_EQ(*file.get_vector<uint32_t>("two", 100), (std::vector<uint32_t>{8, 4}));
}

TEST(GgufValue, StringArraysAreWalkedInPlaceAndMayHoldAnyBytes) {
  const test::TemporaryFile path;
  const std::vector<std::string> tokens = {"", "a", "\xFF\xFE", std::string(300, 'x'), "end"};
  const GgufFile file = with_metadata(path, [&](GgufHeader& header) {
    header.set_array("tokens", tokens);
    header.set("bytes", "\xFF");
  });
  const GgufStrings found = *file.get_strings("tokens");
  EXPECT_EQ(found.size(), 5u);
  EXPECT_EQ(std::vector<std::string>(found.begin(), found.end()), tokens);
  EXPECT_EQ(file.get<std::string_view>("bytes").error().message,
            "bytes: the string is not valid UTF-8");
}

TEST(GgufValue, BoolsAreZeroOrOne) {
  const test::TemporaryFile path(
      test::GgufBytes(0, 1).key("b", GgufValueType::kBool).raw(uint8_t{2}).str());
  EXPECT_EQ(open(path).get<bool>("b").error().message, "b: a bool must be 0 or 1, found 2");
}

TEST(GgufValue, DescribesItselfOnOneShortLine) {
  const test::TemporaryFile path;
  const GgufFile file = with_metadata(path, [](GgufHeader& header) {
    header.set("text", "line\nbreak");
    header.set("number", 0.1f);
    header.set_array("list", std::span<const uint32_t>(std::vector<uint32_t>(1000, 77)));
    header.set_array("words", std::vector<std::string>{"a", "b"});
  });
  EXPECT_EQ(file.find("text")->describe(), "\"line\\x0abreak\"");
  EXPECT_EQ(file.find("number")->describe(), "0.1");
  EXPECT_EQ(file.find("words")->describe(), "string[2] [\"a\", \"b\"]");
  EXPECT_LT(file.find("list")->describe(80).size(), 100u);
}

TEST(Utf8, AcceptsWhatUnicodeAllowsAndNothingElse) {
  for (const char* text : {"", "a", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "x\xE2\x82\xACy"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << printable(text);
  }
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                           "\xE2\x28\xA1", "\xF0\x90\x80"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << printable(text);
  }
}

}  // namespace
}  // namespace pumice
