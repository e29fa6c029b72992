#include "hub/selection.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pumice {
namespace {

std::vector<ModelFiles> models(const std::vector<std::string>& paths) {
  std::vector<RemoteFile> files;
  for (const std::string& path : paths) files.push_back({.path = path, .size_bytes = 1});
  return models_of(files);
}

/// The first file of what "u/r:tag" selects, or the error's message.
std::string selected(const std::vector<std::string>& paths, const std::string& tag) {
  const Result<ModelFiles> model =
      select_model(models(paths), {.user = "u", .repo = "r", .tag = tag});
  return model.ok() ? model->files[0].path : model.error().message;
}

std::string quant(const std::string& path) { return models({path})[0].quant; }

TEST(Quant, is_read_from_names_as_people_give_them) {
  EXPECT_EQ(quant("Llama-3.2-1B-Instruct-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(quant("qwen3-8b-q8_0.gguf"), "Q8_0");
  EXPECT_EQ(quant("model.IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(quant("x-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quant("bitnet-TQ1_0.gguf"), "TQ1_0");
  EXPECT_EQ(quant("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(quant("x-BF16/x-BF16-00001-of-00001.gguf"), "BF16");
  EXPECT_EQ(quant("model_q5_1.gguf"), "Q5_1");
  EXPECT_EQ(quant("Q8_0/stories.gguf"), "");
  EXPECT_EQ(quant("stories260K.gguf"), "");
  EXPECT_EQ(quant("IQ-test.gguf"), "");
}

TEST(Models, are_ggufs_with_all_their_parts) {
  const std::vector<ModelFiles> found = models(
      {"b-Q8_0-00002-of-00002.gguf", "README.md", "a.gguf", "mmproj-a-f16.gguf", "x.imatrix.gguf",
       "b-Q8_0-00001-of-00002.gguf", "c-00001-of-00003.gguf", "c-00003-of-00003.gguf", "../e.gguf",
       "d-00000-of-00001.gguf", "sub/F.GGUF", ".hidden.gguf"});
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].files[0].path, "a.gguf");
  EXPECT_EQ(found[1].label, "b-Q8_0");
  ASSERT_EQ(found[1].files.size(), 2);
  EXPECT_EQ(found[1].files[0].path, "b-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(found[1].size_bytes(), 2);
  EXPECT_EQ(found[2].files[0].path, "sub/F.GGUF");
}

TEST(Selection, without_a_tag_prefers_q4_k_m_then_q8_0_then_the_first) {
  EXPECT_EQ(selected({"x-Q2_K.gguf", "x-Q4_K_M.gguf", "x-Q8_0.gguf"}, ""), "x-Q4_K_M.gguf");
  EXPECT_EQ(selected({"x-Q2_K.gguf", "x-Q8_0.gguf"}, ""), "x-Q8_0.gguf");
  EXPECT_EQ(selected({"x-f16.gguf", "x-Q2_K.gguf"}, ""), "x-Q2_K.gguf");
  EXPECT_EQ(selected({"only.gguf"}, ""), "only.gguf");
}

TEST(Selection, takes_the_tag_for_a_word_of_the_name_in_any_case) {
  const std::vector<std::string> paths = {"M-IQ4_XS.gguf", "M-Q4_0.gguf",      "M-Q4_0_4_4.gguf",
                                          "M-Q4_K.gguf",   "M-Q4_K_M.gguf",    "M-UD-Q4_K_M.gguf",
                                          "M-Q4_K_S.gguf", "M-UD-Q4_K_XL.gguf"};
  EXPECT_EQ(selected(paths, "q4_0"), "M-Q4_0.gguf");
  EXPECT_EQ(selected(paths, "Q4_K"), "M-Q4_K.gguf");
  EXPECT_EQ(selected(paths, "q4_k_m"), "M-Q4_K_M.gguf");
  EXPECT_EQ(selected(paths, "ud-q4_k_m"), "M-UD-Q4_K_M.gguf");
  EXPECT_EQ(selected(paths, "Q4_K_XL"), "M-UD-Q4_K_XL.gguf");
  EXPECT_EQ(selected(paths, "iq4_xs"), "M-IQ4_XS.gguf");
  EXPECT_EQ(selected(paths, "m-q4_0_4_4.GGUF"), "M-Q4_0_4_4.gguf");
  EXPECT_EQ(selected({"Q8_0/a.gguf", "Q2_K/b.gguf"}, "q8_0"), "Q8_0/a.gguf");
}

TEST(Selection, says_what_there_is_where_nothing_or_too_much_fits) {
  EXPECT_EQ(
      selected({"README.md"}, ""),
      "u/r has no GGUF model; look for a repository that has, often one with GGUF in its name");
  EXPECT_EQ(selected({"a-Q8_0.gguf", "a-Q2_K.gguf", "b.gguf"}, "Q4_K_M"),
            "u/r has no 'Q4_K_M'; it has Q2_K, Q8_0, b.gguf");
  EXPECT_EQ(
      selected({"1b-Q8_0.gguf", "8b-Q8_0.gguf"}, "Q8_0"),
      "u/r:Q8_0 has several such models; name one as u/r:FILE, of 1b-Q8_0.gguf, 8b-Q8_0.gguf");
  EXPECT_EQ(selected({"1b-Q8_0.gguf", "8b-Q8_0.gguf"}, "8b-q8_0"), "8b-Q8_0.gguf");
  EXPECT_EQ(selected({"a-Q4_K_M.gguf"}, "Q4_K"), "u/r has no 'Q4_K'; it has Q4_K_M");
  EXPECT_EQ(selected({"1b-Q8_0.gguf", "8b-Q8_0.gguf"}, "1b-Q8_0.gguf"), "1b-Q8_0.gguf");
}

TEST(Selection, lists_a_crowd_in_a_line) {
  std::vector<std::string> paths;
  for (int i = 0; i < 500; ++i)
    paths.push_back(std::to_string(i) + std::string(150, 'x') + "-Q8_0.gguf");
  EXPECT_LT(selected(paths, "").size(), 600u);
  EXPECT_LT(selected(paths, "Q3_K").size(), 600u);
}

}  // namespace
}  // namespace pumice
