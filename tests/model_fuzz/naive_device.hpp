// A device that keeps at each position of each block what KV is there: a number that depends on
// salt, kind and tokens up to that position; and in a recurrent kind's page the same as its
// state. A row looks at all positions before its own that its kinds see, as attention does, so a
// block that was shared, copied or given away wrongly is seen by whoever reads it.
#pragma once

#include <map>
#include <span>
#include <stdexcept>

#include "scheduler/scheduler.hpp"
#include "tests/model_fuzz/naive_cache.hpp"

namespace pumice::model_fuzz {

/// The product and the reference, or the product and its contract, disagree.
struct Divergence : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline uint64_t chained(uint64_t value, uint32_t token) {
  value = (value ^ (token + 1)) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}
inline uint64_t first_value(const std::string& salt) {
  uint64_t value = 77;
  for (const char c : salt) value = chained(value, static_cast<unsigned char>(c));
  return value;
}
/// The "model": a prefix has one next token.
inline uint32_t token_after(uint64_t value) { return static_cast<uint32_t>((value >> 7) % 3); }
inline uint32_t token_after(const Tokens& tokens, const std::string& salt) {
  uint64_t value = first_value(salt);
  for (const uint32_t token : tokens) value = chained(value, token);
  return token_after(value);
}

class NaiveDevice {
 public:
  NaiveDevice(uint32_t block_tokens, std::vector<NaiveKind> kinds)
      : block_tokens_(block_tokens), kinds_(std::move(kinds)) {}

  /// A chunk as it is submitted: the tables of that moment and the tokens known by then.
  struct Row {
    StepChunk chunk;
    std::vector<std::vector<PageId>> blocks;        // by kind
    std::vector<std::pair<PageId, PageId>> states;  // by kind: read and written
    Tokens tokens;                                  // and the draft behind them
    std::string salt;
  };

  void copy(const PageCopy& copy) {
    const std::vector<uint64_t> source = block(copy.source);
    std::copy_n(source.begin(), copy.n_tokens, block(copy.target).begin());
  }

  /// Computes a chunk; gives what its sampling rows say.
  Tokens run(const Row& row) {
    const size_t first = row.chunk.first_position;
    const size_t end = first + row.chunk.n_tokens;
    uint64_t value = first_value(row.salt);
    Tokens sampled;
    for (size_t p = 0; p < end; ++p) {
      if (p == first) read_states(row, value);
      value = chained(value, p < row.tokens.size() ? row.tokens[p] : fed_back(row, p));
      for (size_t g = 0; g < kinds_.size(); ++g) {
        if (!kinds_[g].recurrent) run_position(row, g, p, of_group(value, g));
      }
      if (p + row.chunk.n_samples < end) continue;
      sampled.push_back(token_after(value));
      sampled_[{row.chunk.request, p + 1}] = sampled.back();
    }
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (kinds_[g].recurrent) block(row.states[g].second)[0] = of_group(value, g);
    }
    return sampled;
  }

 private:
  static uint64_t of_group(uint64_t value, size_t kind) { return value + kind * 0x1234567; }
  [[noreturn]] static void wrong(const Row& row, const char* what, size_t position, size_t kind) {
    throw Divergence("request " + std::to_string(row.chunk.request) + " " + what + " at " +
                     std::to_string(position) + " of group " + std::to_string(kind));
  }

  void run_position(const Row& row, size_t kind, size_t position, uint64_t value) {
    const size_t first = row.chunk.first_position;
    const size_t window = kinds_[kind].window;
    if (position < first && window != 0 && position + window <= first) return;  // out of sight
    if (row.blocks[kind].size() <= position / block_tokens_) {
      wrong(row, "has no block", position, kind);
    }
    const PageId at = row.blocks[kind][position / block_tokens_];
    if (at == kNoPage) wrong(row, "sees no block", position, kind);
    uint64_t& held = block(at)[position % block_tokens_];
    if (position < first && held != value) wrong(row, "reads wrong content", position, kind);
    held = value;
  }

  void read_states(const Row& row, uint64_t value) {
    for (size_t g = 0; g < kinds_.size(); ++g) {
      if (!kinds_[g].recurrent || row.chunk.first_position == 0) continue;
      if (row.states[g].first == row.states[g].second) {
        wrong(row, "writes the state that it reads", row.chunk.first_position, g);
      }
      if (block(row.states[g].first)[0] != of_group(value, g)) {
        wrong(row, "reads a wrong state", row.chunk.first_position, g);
      }
    }
  }

  /// The token that the step before has sampled, which only the device knows.
  uint32_t fed_back(const Row& row, size_t position) const {
    const auto it = sampled_.find({row.chunk.request, position});
    if (it == sampled_.end()) {
      throw Divergence("request " + std::to_string(row.chunk.request) +
                       " computes a token that nobody knows");
    }
    return it->second;
  }
  std::vector<uint64_t>& block(PageId id) {
    std::vector<uint64_t>& values = blocks_[id];
    values.resize(block_tokens_);
    return values;
  }

  uint32_t block_tokens_;
  std::vector<NaiveKind> kinds_;
  std::map<PageId, std::vector<uint64_t>> blocks_;
  std::map<std::pair<RequestId, size_t>, uint32_t> sampled_;  // by position
};

}  // namespace pumice::model_fuzz
