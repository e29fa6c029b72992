// The embedder: texts in, vectors out. Beside the engine: a text is computed whole, in one pass
// over its tokens, with others as far as a step has room, and nothing of it is kept. Keys and
// values lie in the pages that engines have, each text's from its own first block on, until the
// next step.
//
// Threads: one thread at a time may call an embedder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/kv_memory.hpp"
#include "engine/submitter.hpp"
#include "models/decoder.hpp"
#include "models/model.hpp"
#include "models/state_layout.hpp"
#include "models/step_args.hpp"
#include "shaders/common/kv_layout.hpp"
#include "shaders/common/math.hpp"
#include "text/vocabulary.hpp"
#include "vk/memory.hpp"
#include "vk/pipeline.hpp"

namespace pumice {

struct EmbedderOptions {
  KvTypes kv_type = KvType::kF32;     ///< what keys and values are rounded to
  ops::Math math = ops::Math::kAuto;  ///< arithmetic of matrix products
  uint32_t text_tokens = 0;           ///< of the longest text; 0: what the model was trained for
  /// In a step, of several texts; a longer text has a step by itself. Memory grows with the larger
  /// of the two.
  uint32_t step_tokens = 512;
  /// A text's vector is the same to the bit whatever texts are beside it; slower, and always fp32.
  bool invariant = false;
};

/// The most tokens of a text: what the model was trained for, or as many as `wanted`, if that is
/// not 0 and no table of positions ends before.
uint32_t longest_text(const Program& program, uint32_t wanted = 0);

class Embedder {
 public:
  /// Told how many texts are done; false ends the call.
  using Progress = std::function<bool(size_t n_done)>;

  /// Of a model whose program embeds (models/embedding.hpp). Allocates all that steps need and
  /// compiles their pipelines (progress: done, total). Errors: kInvalidArgument, kDoesNotFit,
  /// kDeviceLost.
  static Result<std::unique_ptr<Embedder>> create(
      std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
      const EmbedderOptions& options, const vk::PipelineLibrary::Progress& progress = {});
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  /// Numbers of a vector.
  uint32_t width() const { return program().values[program().logits].width; }
  uint32_t text_tokens() const { return text_tokens_; }

  /// The vector of each text as the model gives it, not normalised; with Pooling::kNone those of
  /// its tokens, one after the other. Errors: kInvalidArgument (a text without tokens, or with one
  /// outside the vocabulary), kDoesNotFit (a text beyond text_tokens), each with the text's number
  /// from 1; kInternal (NaN or infinity), kCancelled (by `progress`), kDeviceLost.
  Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<TokenId>> texts,
                                                const Progress& progress = {});

  /// For tests: labels of every kernel recorded so far.
  const std::set<std::string>& variants() const { return variants_; }

 private:
  Embedder(std::shared_ptr<vk::PipelineLibrary> pipelines, std::shared_ptr<const Model> model,
           const EmbedderOptions& options);
  const Program& program() const { return model_->program; }
  Status allocate();
  Status check(std::span<const std::vector<TokenId>> texts) const;
  void fill_step(std::span<const std::vector<TokenId>> texts);
  Status run_step();

  std::shared_ptr<vk::PipelineLibrary> pipelines_;
  std::shared_ptr<vk::Device> device_;
  std::shared_ptr<const Model> model_;
  EmbedderOptions options_;
  uint32_t text_tokens_ = 0;
  uint32_t n_blocks_ = 0;  // of 16 tokens, of a step

  std::shared_ptr<const ModelWeights> weights_;
  std::optional<Decoder> decoder_;
  std::optional<KvMemory> kv_;
  std::vector<vk::Arena> arenas_;  // of what follows
  StepArgs args_;
  vk::BufferRange sampled_;                    // of no sequence: nothing is sampled
  std::vector<vk::BufferRange> block_tables_;  // by kind of the layout: uint64 [n_blocks_]
  vk::BufferRange rows_;                       // float [rows that are pooled][width]
  /// Of each text of the step, the rows that are pooled.
  struct PooledRows {
    size_t first = 0;
    size_t n = 0;
  };
  std::vector<PooledRows> pooled_;
  std::vector<ops::SequenceChunk> chunks_;  // the texts of the step
  Submitter submitter_;
  std::set<std::string> variants_;
};

}  // namespace pumice
