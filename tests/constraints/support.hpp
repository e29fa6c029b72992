// What the tests of constraints share: small vocabularies, and a recogniser of another make to compare with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constraints/grammar.hpp"
#include "constraints/matcher.hpp"
#include "constraints/vocabulary_trie.hpp"

namespace pumice::testing {

/// "<unk>", "<s>", "</s>" (the end), "<think>" (user-defined), "<ctl>" (control), then `texts`.
struct SmallVocabulary {
  static constexpr TokenId kEnd = 2, kThink = 3, kControl = 4, kFirst = 5;
  explicit SmallVocabulary(const std::vector<std::string>& texts);

  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const VocabularyTrie> trie;
};

/// The texts that most tests use: letters, brackets, pieces of them, twins, bytes of a character.
const std::vector<std::string>& small_texts();

/// The ids that a matcher allows now.
std::vector<TokenId> allowed(Matcher& matcher);

/// A language as a tree, read by brute force: sets of stacks of what is still to come.
struct Language {
  enum class Kind { kBytes, kSequence, kChoice, kRepeat, kRule, kToken };
  struct Node {
    Kind kind;
    std::string bytes = {};  // kBytes: one of these; kToken: unused
    std::vector<uint32_t> parts = {};
    uint32_t min = 0, max = 0;  // kRepeat
    uint32_t rule = 0;          // kRule
    TokenId token = 0;          // kToken
    bool negated = false;
  };
  std::vector<Node> nodes;
  std::vector<uint32_t> rules;  // nodes

  Symbol build(GrammarBuilder& builder, uint32_t node, const std::vector<Symbol>& declared) const;
  Result<Grammar> grammar() const;  // of rule 0
};

class Recogniser {
 public:
  using Stack =
      std::vector<std::pair<uint32_t, uint32_t>>;  // (node, times so far), the next one last
  explicit Recogniser(const Language& language);

  bool alive() const { return !stacks_.empty(); }
  bool accepts() const { return stacks_.contains({}); }
  void feed(uint8_t byte);
  /// As the tokens of `vocabulary` have it: by text, or as a terminal of the grammar.
  Recogniser after(const VocabularyTrie& vocabulary, TokenId token) const;
  /// There were too many ways to read what was fed: what it says is not to be believed.
  bool gave_up() const { return gave_up_; }
  bool operator==(const Recogniser& other) const { return stacks_ == other.stacks_; }

 private:
  static constexpr size_t kMostStacks = 1000;

  void add(Stack stack, std::set<Stack>& to);

  const Language* language_;
  bool gave_up_ = false;
  std::set<Stack> stacks_;  // each empty, or with bytes or a token on top
};

/// Rules that recur only behind a byte, and all of which derive something.
Language random_language(std::mt19937& random);

}  // namespace pumice::testing
