// Files made by others: malformed ones with a verdict in their name, vocabularies, models.
#include <atomic>
#include <cstdlib>
#include <new>

#include "test_files.hpp"
#include "tests/shared_data.hpp"

namespace {
std::atomic<size_t> heap_bytes{0};  // ever allocated with operator new
}

// Not inlined: GCC 12 takes memory of one that was, freed by one that was not, for mismatched.
[[gnu::noinline]] void* operator new(size_t n) {
  heap_bytes += n;
  void* memory = std::malloc(n);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

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
  PUMICE_REQUIRE_SHARED(models, "models/stories260K.gguf");
  const std::filesystem::path shared = models.parent_path().parent_path();
  size_t n_files = 0;
  for (const char* folder : {"models", "tokenizers", "reference/families", "reference/quants"}) {
    if (!std::filesystem::exists(shared / folder)) continue;
    for (const auto& path : gguf_files(shared / folder)) {
      const size_t before = heap_bytes;
      const Result<GgufFile> file = GgufFile::open(path);
      ASSERT_TRUE(file.ok()) << file.error().message;
      // The header, read in pieces that grow: at most four times as much as there is of it.
      EXPECT_LT(heap_bytes - before, 4 * file->header_bytes() + (128u << 10)) << path;
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

/// Opens a copy that ends where its allocation ends, so that a sanitizer sees any read beyond it.
/// Everything the file then offers is looked at.
bool opens(std::string_view bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  const Result<GgufFile> file = GgufFile::from_memory(std::as_bytes(std::span(exact)), "copy");
  if (!file.ok()) return false;
  unsigned sum = 0;
  for (const GgufValue& value : file->metadata()) {
    EXPECT_FALSE(value.describe().empty());
    if (const auto strings = value.as_strings(); strings.ok()) {
      for (const std::string_view text : *strings) sum += text.empty() ? 0u : unsigned(text.back());
    }
  }
  for (const GgufTensor& tensor : file->tensors()) {
    std::byte last;
    if (file->has_tensor_data() && file->read(tensor, tensor.n_bytes - 1, {&last, 1}).ok()) {
      sum += std::to_integer<unsigned>(last);
    }
  }
  EXPECT_NE(sum, 0u);
  return true;
}

size_t header_bytes_of(const std::filesystem::path& path) {
  return GgufFile::open(path).value().header_bytes();
}

TEST(GgufSharedFiles, AModelCutAnywhereIsAnError) {
  PUMICE_REQUIRE_SHARED(path, "models/stories260K.gguf");
  const std::string whole = test::read_file(path);
  const size_t header_bytes = header_bytes_of(path);
  ASSERT_TRUE(opens(whole));
  for (size_t size = whole.size() - 1; size > header_bytes; size -= size / 64 + 1) {
    ASSERT_FALSE(opens(std::string_view(whole).substr(0, size))) << size;
  }
  ASSERT_TRUE(opens(std::string_view(whole).substr(0, header_bytes)));  // a header is valid
  for (size_t size = header_bytes - 1; size > 0; --size) {
    ASSERT_FALSE(opens(std::string_view(whole).substr(0, size))) << size;
  }
}

TEST(GgufSharedFiles, AModelWithADamagedHeaderNeverCrashes) {
  PUMICE_REQUIRE_SHARED(path, "models/stories260K.gguf");
  std::string bytes = test::read_file(path);
  bytes.resize(header_bytes_of(path));
  size_t n_opened = 0;
  constexpr char kFlips[] = {'\x01', '\x80', '\xFF'};
  for (size_t at = 4; at < bytes.size(); at += 4) {
    const char original = bytes[at];
    bytes[at] = static_cast<char>(original ^ kFlips[at / 4 % 3]);
    n_opened += opens(bytes) ? 1 : 0;
    bytes[at] = original;
  }
  EXPECT_GT(n_opened, 0u);
}

}  // namespace
}  // namespace pumice
