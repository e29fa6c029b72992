// Every way in which a header can be wrong is an error that names the field.
#include <algorithm>
#include <cstring>

#include "format/gguf_writer.hpp"
#include "test_files.hpp"

namespace pumice {
namespace {

using test::error_of;
using test::GgufBytes;
using enum GgufValueType;

constexpr uint64_t kHuge = ~uint64_t{0};

TEST(GgufHeader, SmallestFileHasNothingInIt) { EXPECT_EQ(error_of(GgufBytes(0, 0)), ""); }

TEST(GgufHeader, VersionsTwoAndThreeOnly) {
  EXPECT_EQ(error_of(GgufBytes(0, 0, 2)), "");
  EXPECT_EQ(error_of(GgufBytes(0, 0, 1)), "version: 1 is not supported, only 2 and 3 are");
  EXPECT_EQ(error_of(GgufBytes(0, 0, 4)), "version: 4 is not supported, only 2 and 3 are");
  EXPECT_EQ(error_of(GgufBytes(0, 0, 0x03000000)),
            "version: this is a big-endian file, which is not supported");
  EXPECT_EQ(error_of("GGML0000"), "magic: not a GGUF file (it does not begin with \"GGUF\")");
  EXPECT_EQ(error_of("G"), "magic: not a GGUF file (it does not begin with \"GGUF\")");
  EXPECT_EQ(error_of("GGUF\3"), "version: the file ends too early (5 bytes)");
}

TEST(GgufHeader, OpeningWhatIsNoFileIsAnError) {
  EXPECT_EQ(error_of(""), "the file is empty");
  EXPECT_EQ(GgufFile::open("/nowhere/x.gguf").error().message,
            "/nowhere/x.gguf: No such file or directory");
  EXPECT_EQ(GgufFile::open("/").error().message, "/: not a regular file");
}

TEST(GgufHeader, CountsAreCheckedAgainstTheFileBeforeAllocating) {
  EXPECT_EQ(error_of(GgufBytes(0, kHuge)),
            "metadata count: 18446744073709551615 do not fit in a file of 24 bytes");
  EXPECT_EQ(error_of(GgufBytes(kHuge, 0)),
            "tensor count: 18446744073709551615 do not fit in a file of 24 bytes");
  EXPECT_EQ(error_of(GgufBytes(0, GgufFile::kMaxMetadata + 1).zeros(2 << 20)),
            "metadata count: 65537 is more than the supported 65536");
  EXPECT_EQ(error_of(GgufBytes(GgufFile::kMaxTensors + 1, 0).zeros(10 << 20)),
            "tensor count: 262145 is more than the supported 262144");
}

TEST(GgufHeader, KeysAreUniqueUtf8AndNotEmpty) {
  EXPECT_EQ(error_of(GgufBytes(0, 2).key("a", kUint8).raw('1').key("a", kUint8).raw('1')),
            "a: the key appears twice");
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("", kUint8).raw('1').zeros(9)),
            "metadata key 0: is empty");
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("a\xFF", kUint8).raw('1')),
            "metadata key 0: 'a\\xff' is not valid UTF-8");
  EXPECT_EQ(error_of(GgufBytes(0, 1).u64(kHuge).zeros(8)),
            "metadata key 0: a string of 18446744073709551615 bytes, but 8 are left in the file");
  EXPECT_EQ(error_of(GgufBytes(0, 1).key(std::string(65536, 'k'), kUint8).raw('1')),
            "metadata key 0: 65536 bytes long, at most 65535 are allowed");
}

TEST(GgufHeader, ValuesEndInsideTheFile) {
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("a", kUint64).u32(1)),
            "a: the file ends too early (41 bytes)");
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("a", kString).u64(3).raw('x')),
            "a: a string of 3 bytes, but 1 are left in the file");
  EXPECT_EQ(error_of(GgufBytes(0, 1).array("a", kUint64, kHuge / 8 + 2).zeros(8)),
            "a: the file ends too early (57 bytes)");
  EXPECT_EQ(error_of(GgufBytes(0, 1).array("a", kString, kHuge).text("x")),
            "a: the file ends too early (58 bytes)");
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("a\nb", GgufValueType{13}).u64(0)),
            "a\\x0ab: unknown value type 13");
}

TEST(GgufHeader, NestedArraysAreFollowedToABoundedDepth) {
  GgufBytes nested(0, 1);
  nested.array("a", kArray, 2).u32(4).u64(1).u32(7).u32(8).u64(1).text("x");
  EXPECT_EQ(error_of(nested), "");
  GgufBytes deep(0, 1);
  deep.array("a", kArray, 1);
  for (int i = 0; i < 1000; ++i) deep.u32(9).u64(1);
  EXPECT_EQ(error_of(deep), "a: arrays nested deeper than 4");
}

TEST(GgufHeader, AlignmentIsAPowerOfTwo) {
  const auto aligned = [](uint32_t alignment) {
    GgufBytes bytes(1, 1);
    bytes.key("general.alignment", kUint32).u32(alignment).tensor("t", {8}, 0, 0);
    return bytes.pad(alignment == 0 ? 1 : alignment).zeros(32).pad(alignment == 0 ? 1 : alignment);
  };
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) EXPECT_EQ(error_of(aligned(alignment)), "");
  for (const uint32_t alignment : {0u, 13u, 48u}) {
    EXPECT_EQ(error_of(aligned(alignment)),
              fmt::format("general.alignment: {} is not a power of two", alignment));
  }
  EXPECT_EQ(error_of(GgufBytes(0, 1).key("general.alignment", kString).text("32")),
            "general.alignment: expected an unsigned integer, found string");
}

TEST(GgufTensors, DimensionsMustBePossible) {
  const auto with = [](const std::vector<uint64_t>& dims, uint32_t type = 0) {
    return error_of(GgufBytes(1, 0).tensor("t", dims, type, 0).pad().zeros(1024));
  };
  EXPECT_EQ(with({4, 4}), "");
  EXPECT_EQ(with({4, 4, 2, 2}), "");
  EXPECT_EQ(with({}), "tensor 't': 0 dimensions, expected 1 to 4");
  EXPECT_EQ(with({1, 1, 1, 1, 1}), "tensor 't': 5 dimensions, expected 1 to 4");
  EXPECT_EQ(with({4, 0}), "tensor 't': dimension 1 is zero");
  EXPECT_EQ(with({uint64_t{1} << 32, uint64_t{1} << 32}), "tensor 't': the dimensions overflow");
  EXPECT_EQ(with({uint64_t{1} << 63}), "tensor 't': the dimensions overflow");
  // Products that are small again when they have wrapped: 2^33 and 2^32.
  EXPECT_EQ(with({uint64_t{1} << 33, (uint64_t{1} << 31) + 1}),
            "tensor 't': the dimensions overflow");
  EXPECT_EQ(with({uint64_t{1} << 32, 1, (uint64_t{1} << 32) + 1}),
            "tensor 't': the dimensions overflow");
  EXPECT_EQ(with({100}, 12), "tensor 't': rows of 100 values are not whole blocks of 256 (Q4_K)");
  EXPECT_EQ(with({4}, 4), "tensor 't': unknown type number 4");
  EXPECT_EQ(with({4}, ~0u), "tensor 't': unknown type number 4294967295");
}

TEST(GgufTensors, TypesWithoutACodecAreListed) {
  const test::TemporaryFile file(GgufBytes(1, 0).tensor("t", {64}, 40, 0).pad().zeros(64).str());
  const Result<GgufFile> opened = GgufFile::open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->tensors()[0].type->name, "NVFP4");
  EXPECT_EQ(opened->tensors()[0].n_bytes, 36u);
  EXPECT_FALSE(opened->tensors()[0].type->has_codec());
}

TEST(GgufTensors, NamesAreUniqueUtf8AndNotEmpty) {
  EXPECT_EQ(
      error_of(GgufBytes(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).pad().zeros(64)),
      "tensor 't': the name appears twice");
  EXPECT_EQ(error_of(GgufBytes(1, 0).tensor("", {8}, 0, 0).zeros(64)), "tensor name 0: is empty");
  EXPECT_EQ(error_of(GgufBytes(1, 0).tensor("\xC0\x80", {8}, 0, 0).zeros(64)),
            "tensor name 0: '\\xc0\\x80' is not valid UTF-8");
  // The specification allows 64 bytes.
  const std::string longest(64, 'n');
  EXPECT_EQ(error_of(GgufBytes(1, 0).tensor(longest, {8}, 0, 0).pad().zeros(64)), "");
  EXPECT_EQ(error_of(GgufBytes(1, 0).tensor(longest + "n", {8}, 0, 0).pad().zeros(64)),
            "tensor name 0: 65 bytes long, at most 64 are allowed");
}

TEST(GgufTensors, DataLiesInsideTheFileAndDoesNotOverlap) {
  const auto two = [](uint64_t second_offset, size_t n_data_bytes) {
    GgufBytes bytes(2, 0);
    bytes.tensor("a", {20}, 0, 0).tensor("b", {8}, 0, second_offset).pad().zeros(n_data_bytes);
    return error_of(bytes);
  };
  EXPECT_EQ(two(96, 128), "");
  EXPECT_EQ(two(128, 160), "");  // a gap does no harm
  EXPECT_EQ(two(96, 127),
            "tensor 'b': ends at byte 128 of the tensor data (with padding), of which the file has "
            "127");
  EXPECT_EQ(two(64, 128), "tensor 'b': overlaps tensor 'a'");
  EXPECT_EQ(two(0, 128).substr(0, 20), "tensor 'b': overlaps");
  EXPECT_EQ(two(100, 160), "tensor 'b': offset 100 is not a multiple of the alignment 32");
  EXPECT_EQ(two(kHuge - 31, 128), "tensor 'b': offset 18446744073709551584 overflows");
}

TEST(GgufTensors, PaddingAfterTheLastTensorIsPartOfTheFile) {
  EXPECT_EQ(error_of(GgufBytes(1, 0).tensor("t", {9}, 0, 0).pad().zeros(64)), "");
  EXPECT_NE(error_of(GgufBytes(1, 0).tensor("t", {9}, 0, 0).pad().zeros(63)), "");
}

TEST(GgufTensors, AHeaderAloneCanBeDescribedButHasNoData) {
  const test::TemporaryFile file(GgufBytes(1, 0).tensor("t", {8, 2}, 0, 0).pad().str());
  const Result<GgufFile> opened = GgufFile::open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_FALSE(opened->has_tensor_data());
  EXPECT_EQ(opened->tensors()[0].dims[1], 2u);
  EXPECT_EQ(opened->tensors()[0].n_bytes, 64u);
}

TEST(GgufTensors, HeadersOfAnySizeAreReadWhole) {
  for (const size_t n_strings : {1u, 1000u, 100'000u, 300'000u}) {  // up to 13 MB
    GgufHeader header;
    std::vector<std::string> strings;
    for (size_t i = 0; i < n_strings; ++i)
      strings.push_back(fmt::format("string number {:>20}", i));
    header.set_array("strings", strings);
    header.add_tensor("t", weight_type("F32"), {8});
    const test::TemporaryFile file(header.to_bytes().value() + std::string(32, 'd'));
    const Result<GgufFile> opened = GgufFile::open(file.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const GgufStrings read = *opened->get_strings("strings");
    EXPECT_TRUE(std::equal(read.begin(), read.end(), strings.begin(), strings.end()));
    EXPECT_EQ(test::bytes_of(*opened, opened->tensors()[0]),
              std::vector<std::byte>(32, std::byte{'d'}));
  }
}

TEST(GgufTensors, AHeaderBeyondTheLimitIsRefusedAndTakesNoMemoryFirst) {
  // Strings without end, in a file that has room for them but takes none on disk.
  GgufHeader header;
  header.set("a", "b");
  std::string bytes = header.to_bytes().value();
  const uint64_t length = uint64_t{1} << 40;
  std::memcpy(bytes.data() + bytes.find('b') - 8, &length, sizeof length);
  const test::TemporaryFile file(bytes);
  std::error_code error;
  std::filesystem::resize_file(file.path(), length * 2, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  const Result<GgufFile> opened = GgufFile::open(file.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kBadFile);
  EXPECT_NE(opened.error().message.find("the header is larger than 256 MiB"), std::string::npos)
      << opened.error().message;
}

TEST(GgufTensors, AFileCutAfterItWasOpenedIsAnErrorWhenItIsRead) {
  GgufHeader header;
  header.add_tensor("a", weight_type("F32"), {8});
  header.add_tensor("b", weight_type("F32"), {1 << 20});
  const std::string bytes = header.to_bytes().value();
  const test::TemporaryFile file(bytes + std::string(32 + (4 << 20), 'd'));
  const Result<GgufFile> opened = GgufFile::open(file.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::filesystem::resize_file(file.path(), bytes.size() + 32 + 100);
  std::vector<std::byte> out(4 << 20);
  EXPECT_TRUE(opened->read(opened->tensors()[0], 0, std::span(out).first(32)).ok());
  EXPECT_TRUE(opened->read(opened->tensors()[1], 0, std::span(out).first(100)).ok());
  for (const uint64_t first : {uint64_t{0}, uint64_t{3} << 20}) {
    const Status cut = opened->read(opened->tensors()[1], first, std::span(out).first(1 << 20));
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().code, ErrorCode::kBadFile);
    EXPECT_EQ(cut.error().message.substr(0, file.path().string().size()), file.path().string());
  }
}

}  // namespace
}  // namespace pumice
