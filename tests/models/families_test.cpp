#include "models/families.hpp"

#include <gtest/gtest.h>

#include "tests/format/test_files.hpp"

namespace pumice {
namespace {

TEST(Families, AnUnknownArchitectureIsAnErrorOfOnePlainLine) {
  test::GgufBytes bytes(0, 1);
  bytes.key("general.architecture", GgufValueType::kString).text("ma\nmba").pad();
  const test::TemporaryFile temporary(bytes.str());
  const Result<GgufFile> file = GgufFile::open(temporary.path());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Result<ModelDescription> model = describe_model(*file);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().message, "architecture 'ma\\x0amba' is not supported yet (known: llama)");
}

}  // namespace
}  // namespace pumice
