#include "hub/model_name.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pumice {
namespace {

TEST(ModelName, is_user_and_repository_and_perhaps_a_tag) {
  const ModelName plain = ModelName::parse("ggml-org/gemma-3-1b-it-GGUF").value();
  EXPECT_EQ(plain.user, "ggml-org");
  EXPECT_EQ(plain.repo, "gemma-3-1b-it-GGUF");
  EXPECT_EQ(plain.tag, "");
  EXPECT_EQ(plain.text(), "ggml-org/gemma-3-1b-it-GGUF");
  const ModelName quant = ModelName::parse("a/b_1.5:Q4_K_M").value();
  EXPECT_EQ(quant.tag, "Q4_K_M");
  EXPECT_EQ(quant.repository(), "a/b_1.5");
  EXPECT_EQ(quant.text(), "a/b_1.5:Q4_K_M");
  EXPECT_EQ(ModelName::parse("a/b:sub/x.gguf").value().tag, "sub/x.gguf");
}

TEST(ModelName, refuses_what_could_leave_the_folder_or_is_none) {
  const std::string long_part(97, 'x');
  for (const std::string& text : {std::string(),
                                  std::string("a"),
                                  std::string("a/"),
                                  std::string("/b"),
                                  std::string("a/b/c"),
                                  std::string("../b"),
                                  std::string("a/.."),
                                  std::string("a/.hidden"),
                                  std::string("a/b:"),
                                  std::string("a/b:../x"),
                                  std::string("a/b:/x"),
                                  std::string("a b/c"),
                                  std::string("a/b?x"),
                                  std::string("a/b\n"),
                                  std::string("-a/b"),
                                  std::string("a/b:x:y"),
                                  std::string("http://a/b"),
                                  "a/" + long_part,
                                  long_part + "/b",
                                  std::string("a/b:") + std::string(301, 'x')}) {
    const Result<ModelName> name = ModelName::parse(text);
    ASSERT_FALSE(name.ok()) << text;
    EXPECT_EQ(name.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(SafePath, stays_below_a_folder_under_plain_names) {
  for (const std::string& path : {std::string("a.gguf"), std::string("Q4/a b(1).gguf"),
                                  std::string("ü.gguf"), std::string(200, 'x')}) {
    EXPECT_TRUE(is_safe_path(path)) << path;
  }
  for (const std::string& path :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string(".."), std::string("a/../b"), std::string("../a"), std::string(".lock"),
        std::string("a/.b"), std::string("a\\b"), std::string("c:x"), std::string("a\n"),
        std::string("a\0b", 3), std::string("\xFF.gguf"), std::string("\x1B[2J"),
        std::string(201, 'x')}) {
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
  std::string deep = "x";
  while (deep.size() <= 1024) deep += "/x";
  EXPECT_FALSE(is_safe_path(deep));
}

}  // namespace
}  // namespace pumice
