#include "tests/engine/synthetic_model.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "models/synthetic.hpp"

namespace pumice::test {
namespace {

Status write(const SyntheticModel& s, const std::filesystem::path& path) {
  const SyntheticShape shape{.name = "test",
                             .n_layers = s.n_layers,
                             .n_embd = s.n_embd,
                             .n_heads = s.n_heads,
                             .n_kv_heads = s.n_kv_heads,
                             .n_ff = s.n_ff,
                             .n_vocab = s.n_vocab,
                             .context_length = s.context_length,
                             .gain = 1.5f};  // attention has contrast
  PUMICE_TRY(const pumice::SyntheticModel model,
             pumice::SyntheticModel::create(shape, {.type = s.type, .seed = s.seed}));
  return write_synthetic_model(model, path);
}

}  // namespace

TemporaryFile write_synthetic_model(const SyntheticModel& shape) {
  static int counter = 0;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("pumice-test-" + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".gguf");
  const Status status = write(shape, path);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return TemporaryFile(path);
}

}  // namespace pumice::test
