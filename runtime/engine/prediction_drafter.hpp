// Guesses of the blocks that a model's file carries for it ("multi-token prediction"; Gloeckle et al.
// 2024, DeepSeek-V3): the first of them reads a token and the model's hidden row at the one before,
// and says what comes next. Further guesses of a chain are given its own hidden rows instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafting_engine.hpp"

namespace pumice {

/// The block's keys and values lie apart from the model's, in an engine of its own. It computes what
/// came since its last guess, and what it computed from its own hidden rows again, from the model's.
/// Of a text whose beginning came to the model from its cache, it knows the rest only: its guesses
/// are then worse, never the text. Not thread-safe; waits for the device.
class PredictionDrafter {
 public:
  /// Hidden rows of a text that are kept at most, beside those of the step that brings more: 8192
  /// floats wide, 16 MiB.
  static constexpr uint32_t kMostRows = 512;

  /// `engine`: of the block's program (build_prediction) with hidden rows (with_hidden_rows), for
  /// greedy requests, one at a time.
  PredictionDrafter(std::unique_ptr<Engine> engine, const Logger& logger)
      : engine_(std::move(engine), "the model's prediction block", logger) {}

  /// Have the request's drafter be this, which it keeps alive. Its model must give hidden rows.
  static void draft(const std::shared_ptr<PredictionDrafter>& drafter, GenerationRequest& request);

 private:
  /// A request's tokens and hidden rows from position `first` on. Of row i the block's reads token
  /// i + 1.
  struct Text {
    uint32_t first = 0;
    std::vector<TokenId> tokens;
    std::vector<float> rows;  // of the last of them: those before are in the block's cache
    uint32_t n_gone = 0;      // rows that are not kept any more
    size_t width = 0;
    std::string salt;  // of a text that is known from its start; else of this one alone

    void forget_until(uint32_t index);
  };
  std::string new_salt() { return "text " + std::to_string(n_salts_++); }
  void add(Text& text, uint32_t position, TokenId token, std::span<const float> row);
  Guess guess(Text& text, std::span<const TokenId> tokens, uint32_t most);
  Guess run(Text& text, std::vector<TokenId> next, uint32_t most);

  DraftingEngine engine_;
  uint64_t n_salts_ = 0;
};

}  // namespace pumice
