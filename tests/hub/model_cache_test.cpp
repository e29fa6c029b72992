#include "hub/model_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "hub/download.hpp"
#include "tests/temporary_folder.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const ModelName kRepository{.user = "u", .repo = "r", .tag = {}};
const std::string kSha256(64, 'a');

RemoteFile file(const std::string& path, uint64_t size_bytes = 4) {
  return {.path = path, .size_bytes = size_bytes, .sha256 = kSha256};
}

class ModelCacheTest : public testing::Test {
 protected:
  fs::path models() const { return folder_.path() / "models"; }
  ModelCache cache() const { return ModelCache(models()); }

  void put(const std::string& path, const std::string& content = "GGUF") const {
    fs::create_directories((models() / path).parent_path());
    std::ofstream(models() / path) << content;
  }
  Names names() const {
    Names names;
    for (const CachedModel& model : cache().list()) names.push_back(model.name.text());
    return names;
  }
  static ModelName tagged(const std::string& tag) { return {.user = "u", .repo = "r", .tag = tag}; }

  test::TemporaryFolder folder_;
};

TEST_F(ModelCacheTest, lists_what_is_there_by_names_that_find_it) {
  EXPECT_TRUE(cache().list().empty());
  put("u/r/x-Q4_K_M.gguf", "12345");
  put("u/r/one-Q8_0.gguf");
  put("u/r/two-Q8_0.gguf");
  put("u/r/split-Q2_K-00001-of-00002.gguf");
  put("u/r/split-Q2_K-00002-of-00002.gguf");
  put("a/b/stories.gguf");
  put("a/b/notes.txt");
  put("u/.hidden/z.gguf");
  EXPECT_EQ(names(), (Names{"a/b:stories.gguf", "u/r:Q2_K", "u/r:Q4_K_M", "u/r:one-Q8_0.gguf",
                            "u/r:two-Q8_0.gguf"}));
  const CachedModel split = cache().find(tagged("q2_k")).value();
  EXPECT_EQ(split.files.size(), 2);
  EXPECT_EQ(split.size_bytes, 8);
  EXPECT_TRUE(split.complete);
  EXPECT_EQ(split.files[0], models() / "u/r/split-Q2_K-00001-of-00002.gguf");
  EXPECT_FALSE(cache().find(tagged("Q6_K")).ok());
}

TEST_F(ModelCacheTest, lists_unfinished_downloads_as_the_model_they_are_of) {
  const RemoteFile part = file("s-Q2_K-00002-of-00002.gguf", 100);
  put("u/r/s-Q2_K-00001-of-00002.gguf");
  put("u/r/" + unfinished_path("s-Q2_K-00002-of-00002.gguf", part).string(), "123");
  const std::vector<CachedModel> all = cache().list();
  ASSERT_EQ(all.size(), 1);
  EXPECT_EQ(all[0].name.text(), "u/r:Q2_K");
  EXPECT_FALSE(all[0].complete);
  EXPECT_EQ(all[0].size_bytes, 7);
  EXPECT_FALSE(cache().find(tagged("Q2_K")).ok());
  EXPECT_EQ(cache().remove(tagged("Q2_K")).value().size(), 1);
  EXPECT_FALSE(fs::exists(models() / "u"));
}

TEST_F(ModelCacheTest, notes_say_what_a_name_meant_and_what_came) {
  put("u/r/x-Q4_K_M.gguf");
  EXPECT_FALSE(cache().noted(kRepository));
  const RemoteFile remote = file("x-Q4_K_M.gguf");
  EXPECT_FALSE(cache().has(kRepository, remote));
  ASSERT_TRUE(cache().note_file(kRepository, remote).ok());
  ASSERT_TRUE(cache().note(kRepository, {.label = {}, .quant = {}, .files = {remote}}).ok());
  ASSERT_TRUE(cache().noted(kRepository));
  EXPECT_EQ(cache().noted(kRepository)->files[0], models() / "u/r/x-Q4_K_M.gguf");
  EXPECT_FALSE(cache().noted(tagged("Q8_0")));
  EXPECT_TRUE(cache().has(kRepository, remote));
  RemoteFile newer = remote;
  newer.sha256 = std::string(64, 'b');
  EXPECT_FALSE(cache().has(kRepository, newer));
  put("u/r/x-Q4_K_M.gguf", "longer than it was");
  EXPECT_FALSE(cache().has(kRepository, remote));
  fs::remove(models() / "u/r/x-Q4_K_M.gguf");
  EXPECT_FALSE(cache().noted(kRepository));
}

TEST_F(ModelCacheTest, damaged_notes_are_none) {
  put("u/r/x.gguf");
  put("secret.gguf");
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string("{\"names\": 1, \"files\": {}}"),
        std::string(R"({"names": {"": 1}, "files": {"x.gguf": 7}})"),
        std::string(R"({"names": {"": ["../../secret.gguf"]}, "files": {}})"),
        std::string(R"({"names": {"": [[]]}, "files": {}})"), std::string(100000, '[')}) {
    put("u/r/.notes.json", text);
    EXPECT_FALSE(cache().noted(kRepository)) << text.substr(0, 60);
    EXPECT_FALSE(cache().has(kRepository, file("x.gguf")));
  }
  ASSERT_TRUE(
      cache().note(kRepository, {.label = {}, .quant = {}, .files = {file("x.gguf")}}).ok());
  EXPECT_TRUE(cache().noted(kRepository));
}

TEST_F(ModelCacheTest, removes_what_is_named_and_nothing_else) {
  put("u/r/x-Q4_K_M.gguf");
  put("u/r/sub/x-Q8_0.gguf");
  put("u/r/mine.txt");
  put("u/other/y.gguf");
  ASSERT_TRUE(cache().lock(kRepository, [] {}).ok());
  EXPECT_FALSE(cache().remove(tagged("Q2_K")).ok());
  EXPECT_EQ(cache().remove(tagged("q8_0")).value().size(), 1);
  EXPECT_EQ(names(), (Names{"u/other:y.gguf", "u/r:Q4_K_M"}));
  EXPECT_FALSE(fs::exists(models() / "u/r/sub"));
  EXPECT_EQ(cache().remove(kRepository).value().size(), 1);
  EXPECT_TRUE(fs::exists(models() / "u/r/mine.txt"));
  EXPECT_FALSE(fs::exists(models() / "u/r/.lock"));
  EXPECT_EQ(names(), Names{"u/other:y.gguf"});
  EXPECT_FALSE(cache().remove(kRepository).ok());
}

TEST_F(ModelCacheTest, follows_no_links_out_of_its_folder) {
  put("../outside/r/x.gguf");
  fs::create_directories(models());
  fs::create_directory_symlink(folder_.path() / "outside", models() / "u");
  fs::create_directories(models() / "v/r");
  fs::create_symlink(folder_.path() / "outside/r/x.gguf", models() / "v/r/x.gguf");
  fs::create_directory_symlink(folder_.path() / "outside/r", models() / "v/r/sub");
  EXPECT_EQ(names(), Names{});
  EXPECT_FALSE(cache().remove(kRepository).ok());
  EXPECT_FALSE(cache().remove({.user = "v", .repo = "r", .tag = {}}).ok());
  EXPECT_TRUE(fs::exists(folder_.path() / "outside/r/x.gguf"));
}

TEST_F(ModelCacheTest, one_at_a_time_has_the_lock_even_if_the_folder_is_removed_meanwhile) {
  put("u/r/x.gguf");
  std::atomic<bool> waited = false;
  std::atomic<bool> released = false;
  std::thread second;
  {
    const Result<RepositoryLock> first = cache().lock(kRepository, [] { FAIL(); });
    ASSERT_TRUE(first.ok());
    second = std::thread([&] {
      const Result<RepositoryLock> lock = cache().lock(kRepository, [&] { waited = true; });
      EXPECT_TRUE(lock.ok());
      EXPECT_TRUE(released);
      EXPECT_TRUE(fs::exists(models() / "u/r/.lock"));
    });
    while (!waited) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(cache().remove(kRepository).ok());
    released = true;
  }
  second.join();
}

}  // namespace
}  // namespace pumice
