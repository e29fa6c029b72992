#include "tests/constraints/support.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace pumice::testing {

SmallVocabulary::SmallVocabulary(const std::vector<std::string>& texts) {
  VocabularyData data{.model = "llama"};
  const auto add = [&](std::string_view text, TokenType type) {
    data.tokens.push_back(text);
    data.scores.push_back(-static_cast<float>(data.tokens.size()));
    data.types.push_back(static_cast<int32_t>(type));
  };
  add("<unk>", TokenType::kUnknown);
  add("<s>", TokenType::kControl);
  add("</s>", TokenType::kControl);
  add("<think>", TokenType::kUserDefined);
  add("<ctl>", TokenType::kControl);
  for (const std::string& text : texts) {
    add(text, text.starts_with("<0x") ? TokenType::kByte : TokenType::kNormal);
  }
  data.unknown_id = 0;
  data.bos_id = 1;
  data.eos_id = kEnd;
  data.add_space_prefix = false;
  tokenizer = std::make_unique<Tokenizer>(Tokenizer::create(data).value());
  trie = VocabularyTrie::create(*tokenizer).value();
}

const std::vector<std::string>& small_texts() {
  static const std::vector<std::string> kTexts = {
      "a",
      "b",
      "c",
      "d",
      "ab",
      "ba",
      "aa",
      "abc",
      "bca",
      "aab",
      "cab",
      "(",
      ")",
      "((",
      "))",
      "()",
      "a)",
      "(a",
      ",",
      ",a",
      "a,",
      "a,b",
      "\"",
      "\"a",
      "a\"",
      "\",",
      "[",
      "]",
      "<0x61>",
      "<0xC3>",
      "<0xA9>",
      "\xC3\xA9",
      "\xC3\xA9"
      "a",
      "<0x22>",
      "abcabcabcabc",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "dd",
      "\\",
      "\\\"",
      "\xE2\x96\x81"};
  return kTexts;
}

std::vector<TokenId> allowed(Matcher& matcher) {
  const uint32_t n = matcher.constraint().vocabulary().n_tokens();
  std::vector<uint32_t> mask(n / 32 + 2, 0xFFFFFFFF);
  const Status made = matcher.mask(mask);
  PUMICE_CHECK(made.ok(), made.ok() ? "" : made.error().message);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 32 * mask.size(); ++id) {
    if (has_bit(mask, id)) ids.push_back(id);
  }
  return ids;
}

Symbol Language::build(GrammarBuilder& builder, uint32_t node,
                       const std::vector<Symbol>& declared) const {
  const Node& at = nodes[node];
  std::vector<Symbol> parts;
  for (const uint32_t part : at.parts) parts.push_back(build(builder, part, declared));
  switch (at.kind) {
    case Kind::kBytes: {
      ByteSet set;
      for (const char c : at.bytes) set.set(static_cast<uint8_t>(c));
      return builder.lexeme(builder.expressions().bytes(set));
    }
    case Kind::kSequence:
      return builder.sequence(parts);
    case Kind::kChoice:
      return builder.choice(parts);
    case Kind::kRepeat:
      return builder.repeat(parts[0], at.min, at.max);
    case Kind::kRule:
      return declared[at.rule];
    case Kind::kToken:
      return builder.tokens({at.token}, at.negated);
  }
  return builder.empty();
}

Result<Grammar> Language::grammar() const {
  GrammarBuilder builder;
  std::vector<Symbol> declared;
  for (size_t i = 0; i < rules.size(); ++i) declared.push_back(builder.declare("rule"));
  for (size_t i = 0; i < rules.size(); ++i)
    builder.define(declared[i], build(builder, rules[i], declared));
  return std::move(builder).build(declared[0]);
}

Recogniser::Recogniser(const Language& language) : language_(&language) {
  add({{language.rules[0], 0}}, stacks_);
}

void Recogniser::add(Stack stack, std::set<Stack>& to) {
  // Everything that the stack may become before a byte comes, each once.
  std::set<Stack> seen{stack};
  std::vector<Stack> open{std::move(stack)};
  const auto reach = [&](Stack next) {
    if (seen.insert(next).second) open.push_back(std::move(next));
  };
  while (!open.empty()) {
    gave_up_ = gave_up_ || seen.size() > kMostStacks || to.size() > kMostStacks;
    if (gave_up_) return;
    Stack at = std::move(open.back());
    open.pop_back();
    if (at.empty()) {
      to.insert(at);
      continue;
    }
    const auto [index, times] = at.back();
    const Language::Node& node = language_->nodes[index];
    if (node.kind == Language::Kind::kBytes || node.kind == Language::Kind::kToken) {
      to.insert(at);
      continue;
    }
    at.pop_back();
    switch (node.kind) {
      case Language::Kind::kSequence:
        for (size_t i = node.parts.size(); i-- > 0;) at.push_back({node.parts[i], 0});
        reach(at);
        break;
      case Language::Kind::kChoice:
        for (const uint32_t part : node.parts) {
          Stack next = at;
          next.push_back({part, 0});
          reach(std::move(next));
        }
        break;
      case Language::Kind::kRule:
        at.push_back({language_->rules[node.rule], 0});
        reach(at);
        break;
      case Language::Kind::kRepeat:
        if (times >= node.min) reach(at);
        if (times < node.max) {
          at.push_back({index, node.max == kUnbounded ? std::min(times + 1, node.min) : times + 1});
          at.push_back({node.parts[0], 0});
          reach(at);
        }
        break;
      default:
        break;
    }
  }
}

void Recogniser::feed(uint8_t byte) {
  std::set<Stack> next;
  for (Stack stack : stacks_) {
    if (stack.empty()) continue;
    const Language::Node& node = language_->nodes[stack.back().first];
    if (node.kind != Language::Kind::kBytes ||
        node.bytes.find(static_cast<char>(byte)) == std::string::npos)
      continue;
    stack.pop_back();
    add(std::move(stack), next);
  }
  stacks_ = std::move(next);
}

Recogniser Recogniser::after(const VocabularyTrie& vocabulary, TokenId token) const {
  const std::string_view text = vocabulary.text(token);
  Recogniser next = *this;
  for (const char c : text) next.feed(static_cast<uint8_t>(c));
  if (text.empty()) next.stacks_.clear();
  for (Stack stack : stacks_) {
    if (stack.empty()) continue;
    const Language::Node& node = language_->nodes[stack.back().first];
    if (node.kind != Language::Kind::kToken) continue;
    if (node.negated ? node.token == token || text.empty() : node.token != token) continue;
    stack.pop_back();
    next.add(std::move(stack), next.stacks_);
  }
  return next;
}

namespace {

class LanguageWriter {
 public:
  explicit LanguageWriter(std::mt19937& random) : random_(random) {}

  Language write() {
    const uint32_t n_rules = 1 + below(4);
    for (uint32_t i = 0; i < n_rules; ++i) {
      // "x rule" or something without rules: it recurs behind a byte only, and need not.
      std::vector<uint32_t> parts{node(2, n_rules), node(2, 0)};
      language_.rules.push_back(add({.kind = Language::Kind::kChoice, .parts = parts}));
    }
    return std::move(language_);
  }

 private:
  using Kind = Language::Kind;
  uint32_t below(uint32_t n) { return std::uniform_int_distribution<uint32_t>(0, n - 1)(random_); }
  uint32_t add(Language::Node node) {
    language_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(language_.nodes.size() - 1);
  }
  uint32_t bytes() {
    static constexpr std::string_view kSets[] = {"a", "b",  "c", "ab",   "abc",  "(", ")",
                                                 ",", "\"", "d", "\xC3", "\xA9", "[]"};
    return add({.kind = Kind::kBytes, .bytes = std::string(kSets[below(std::size(kSets))])});
  }
  uint32_t node(uint32_t depth, uint32_t n_rules) {
    switch (depth == 0 ? below(2) : below(8)) {
      case 0:
        if (n_rules > 0) {
          const uint32_t rule = add({.kind = Kind::kRule, .rule = below(n_rules)});
          std::vector<uint32_t> parts{bytes(), rule};
          if (below(2) == 0) parts.push_back(bytes());
          return add({.kind = Kind::kSequence, .parts = parts});
        }
        return bytes();
      case 1:
        return bytes();
      case 2:
      case 3: {
        std::vector<uint32_t> parts;
        for (uint32_t i = 0, n = below(4); i < n; ++i) parts.push_back(node(depth - 1, n_rules));
        return add({.kind = Kind::kSequence, .parts = parts});
      }
      case 4:
      case 5: {
        std::vector<uint32_t> parts;
        for (uint32_t i = 0, n = 1 + below(3); i < n; ++i)
          parts.push_back(node(depth - 1, n_rules));
        return add({.kind = Kind::kChoice, .parts = parts});
      }
      case 6: {
        const uint32_t min = below(3);
        const uint32_t max = below(2) == 0 ? kUnbounded : min + below(3);
        return add(
            {.kind = Kind::kRepeat, .parts = {node(depth - 1, n_rules)}, .min = min, .max = max});
      }
      default:
        if (below(3) != 0) return bytes();
        return add({.kind = Kind::kToken,
                    .token = below(2) == 0 ? SmallVocabulary::kControl : SmallVocabulary::kThink,
                    .negated = below(3) == 0});
    }
  }

  std::mt19937& random_;
  Language language_;
};

}  // namespace

Language random_language(std::mt19937& random) { return LanguageWriter(random).write(); }

}  // namespace pumice::testing
