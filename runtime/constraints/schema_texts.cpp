#include "constraints/schema_texts.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/printable.hpp"
#include "constraints/regex.hpp"

namespace pumice::schema {
namespace {

uint32_t limit(size_t count) {
  return count == kNoLimit ? kUnbounded
                           : static_cast<uint32_t>(std::min<size_t>(count, kUnbounded - 1));
}

/// JSON has these as they are; the others need an escape.
bool is_plain(size_t byte) { return byte >= 0x20 && byte != '"' && byte != '\\'; }

constexpr std::array<std::pair<char, char>, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

/// One of `bytes` as it stands in a JSON string.
Expression written_byte(ExpressionSet& set, const ByteSet& bytes) {
  ByteSet plain = bytes;
  ByteSet letters;
  std::vector<Expression> ways;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (bytes[byte] && !is_plain(byte)) plain.reset(byte);
    if (bytes[byte] && byte < 0x20) ways.push_back(set.literal(fmt::format("u{:04x}", byte)));
  }
  for (const auto& [byte, letter] : kShortEscapes) {
    if (bytes[static_cast<unsigned char>(byte)]) letters.set(static_cast<unsigned char>(letter));
  }
  ways.push_back(set.bytes(letters));
  return set.either(set.bytes(plain), set.concat(set.literal("\\"), set.any_of(ways)));
}

/// One character of a JSON string, written in any way: \uXXXX too, of a character or of two halves of one, never of a
/// half alone.
Expression written_character(ExpressionSet& set) {
  const auto one_of = [&](std::string_view letters) {
    ByteSet bytes;
    for (const char c : letters) bytes.set(static_cast<unsigned char>(c));
    return set.bytes(bytes);
  };
  const Expression hex = one_of("0123456789abcdefABCDEF"), d = one_of("dD"),
                   backslash_u = set.literal("\\u");
  const Expression high = set.concat(std::array{d, one_of("89abAB"), hex, hex});
  const Expression low = set.concat(std::array{d, one_of("cdefCDEF"), hex, hex});
  const Expression alone =
      set.either(set.concat(std::array{one_of("0123456789abcefABCEF"), hex, hex, hex}),
                 set.concat(std::array{d, one_of("01234567"), hex, hex}));
  const std::array<CodePointRange, 3> plain = {{{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}}};
  return set.any_of(std::array{
      set.code_points(plain), set.concat(set.literal("\\"), one_of("\"\\/bfnrt")),
      set.concat(backslash_u, alone), set.concat(std::array{backslash_u, high, backslash_u, low})});
}

}  // namespace

SchemaTexts::SchemaTexts(ExpressionSet& set)
    : set_(set), all_(set.repeat(set.character(), 0)), character_(written_character(set)) {}

Result<Expression> SchemaTexts::pattern(std::string_view regex) {
  return parse_regex(set_, regex, RegexAnchors::kSearch);
}

Result<std::pair<Expression, Expression>> SchemaTexts::format(std::string_view name) {
  const FormatRegexes regexes = format_regexes(name);
  if (regexes.some.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "the format \"{}\" is not supported",
                      printable(name));
  }
  PUMICE_TRY(const Expression some, parse_regex(set_, regexes.some));
  PUMICE_TRY(const Expression most, parse_regex(set_, regexes.most));
  return std::pair{limited(some, 0, regexes.max_length), most};
}

Expression SchemaTexts::limited(Expression texts, size_t min, size_t max) {
  if (min == 0 && max == kNoLimit) return texts;
  return set_.both(texts, set_.repeat(set_.character(), limit(min), limit(max)));
}

Expression SchemaTexts::quoted(Expression texts, size_t min, size_t max) {
  const Expression quote = set_.literal("\"");
  const Expression any = set_.repeat(character_, limit(min), limit(max));
  const Expression inner = texts == all_ ? any : set_.both(written(texts), any);
  return set_.concat(std::array{quote, inner, quote});
}

/// Each byte by its ways of being written: those are a prefix code, and so union, sequence and repetition carry over,
/// and a complement is that of the written form among all that is written.
Expression SchemaTexts::written(Expression texts) {
  const Expression any_written = set_.repeat(written_byte(set_, ByteSet().set()), 0);
  return set_.replace_bytes(texts, any_written,
                            [this](const ByteSet& bytes) { return written_byte(set_, bytes); });
}

std::string SchemaTexts::quoted(std::string_view text) { return nlohmann::json(text).dump(); }

}  // namespace pumice::schema
