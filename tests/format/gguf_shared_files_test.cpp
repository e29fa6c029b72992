// Files made by others: malformed ones with a verdict in their name, vocabularies, models.
#include <atomic>
#include <cstdlib>
#include <new>

#include "test_files.hpp"
#include "tests/shared_data.hpp"

namespace {
std::atomic<size_t> heap_bytes{0};  // ever allocated with operator new
}

void* operator new(size_t n) {
  heap_bytes += n;
  void* memory = std::malloc(n);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace pumice {
namespace {

std::vector<std::filesystem::path> gguf_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  return files;
}

TEST(GgufSharedFiles, MalformedFilesGetTheVerdictInTheirName) {
  PUMICE_REQUIRE_SHARED(folder, "gguf-malformed");
  for (const auto& path : gguf_files(folder)) {
    const bool accept = path.stem().string().ends_with("ACCEPT");
    const Result<GgufFile> file = GgufFile::open(path);
    EXPECT_EQ(file.ok(), accept) << path.filename()
                                 << (file.ok() ? "" : ": " + file.error().message);
    if (file.ok()) {
      for (const GgufValue& value : file->metadata()) EXPECT_FALSE(value.describe().empty());
    }
  }
}

TEST(GgufSharedFiles, ModelsAndVocabulariesOpenInLittleMemory) {
  PUMICE_REQUIRE_SHARED(shared, ".");
  size_t n_files = 0;
  for (const char* folder : {"models", "tokenizers", "reference/families", "reference/quants"}) {
    if (!std::filesystem::exists(shared / folder)) continue;
    for (const auto& path : gguf_files(shared / folder)) {
      const size_t before = heap_bytes;
      const Result<GgufFile> file = GgufFile::open(path);
      EXPECT_LT(heap_bytes - before, 64u << 10) << path;
      ASSERT_TRUE(file.ok()) << file.error().message;
      EXPECT_TRUE(file->get<std::string_view>("general.architecture").ok());
      ++n_files;
    }
  }
  EXPECT_GT(n_files, 0u);
}

TEST(GgufSharedFiles, AVocabularyHasAllItsTokens) {
  PUMICE_REQUIRE_SHARED(path, "tokenizers/ggml-vocab-llama-spm.gguf");
  const Result<GgufFile> file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const GgufStrings tokens = *file->get_strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens.size(), 32000u);
  EXPECT_EQ(*tokens.begin(), "<unk>");
  EXPECT_EQ(std::distance(tokens.begin(), tokens.end()), 32000);
  EXPECT_EQ(file->get_vector<float>("tokenizer.ggml.scores", 1 << 20)->size(), 32000u);
}

TEST(GgufSharedFiles, AModelCutAnywhereIsAnError) {
  PUMICE_REQUIRE_SHARED(path, "models/stories260K.gguf");
  const std::string whole = test::read_file(path);
  const Result<GgufFile> opened = GgufFile::open(path);
  ASSERT_TRUE(opened.ok());
  // Names lie in the mapping as data does: the first one's place in the file gives the data's.
  const GgufTensor& first = opened->tensors()[0];
  const auto* name = reinterpret_cast<const std::byte*>(first.name.data());
  const size_t header_bytes = whole.find(first.name) + static_cast<size_t>(first.data - name);
  const test::TemporaryFile cut(whole);
  const auto accepted_at = [&](size_t size) {
    std::filesystem::resize_file(cut.path(), size);
    return GgufFile::open(cut.path()).ok();
  };
  for (size_t size = whole.size() - 1; size > header_bytes; size -= size / 64 + 1) {
    ASSERT_FALSE(accepted_at(size)) << size;
  }
  ASSERT_TRUE(accepted_at(header_bytes));  // a header without data is valid
  for (size_t size = header_bytes - 1; size > 0; size -= std::min<size_t>(size, 7)) {
    ASSERT_FALSE(accepted_at(size)) << size;
  }
}

/// One byte of the header changed: any outcome but a crash, and what opens can be read.
TEST(GgufSharedFiles, AModelWithADamagedHeaderNeverCrashes) {
  PUMICE_REQUIRE_SHARED(path, "models/stories260K.gguf");
  const std::string whole = test::read_file(path);
  const size_t header_bytes = whole.find("blk.0.attn_q.weight") + 200;
  const test::TemporaryFile damaged(whole);
  std::fstream out(damaged.path(), std::ios::binary | std::ios::in | std::ios::out);
  for (size_t at = 4; at < header_bytes; at += 5) {
    for (const char flip : {'\x01', '\x80', '\xFF'}) {
      out.seekp(static_cast<std::streamoff>(at)).put(static_cast<char>(whole[at] ^ flip)).flush();
      const Result<GgufFile> file = GgufFile::open(damaged.path());
      if (file.ok()) {
        for (const GgufValue& value : file->metadata()) EXPECT_FALSE(value.describe().empty());
      }
    }
    out.seekp(static_cast<std::streamoff>(at)).put(whole[at]);
  }
}

}  // namespace
}  // namespace pumice
