#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraints/expression.hpp"

namespace pumice {

Expression ExpressionSet::replace_bytes(Expression e, Expression any_written,
                                        const std::function<Expression(const ByteSet&)>& written) {
  std::unordered_map<Expression, Expression> made;
  const auto replace = [&](auto&& self, Expression at) -> Expression {
    if (at == kEverything) return any_written;
    if (index(at) <= index(kEverything)) return at;
    if (const auto known = made.find(at); known != made.end()) return known->second;
    if (is(at, Kind::kConcat)) {  // nests to the right, as deep as the sequence is long
      std::vector<Expression> parts;
      Expression rest = at;
      for (; is(rest, Kind::kConcat); rest = Expression{nodes_[index(rest)][2]}) {
        parts.push_back(self(self, Expression{nodes_[index(rest)][1]}));
      }
      parts.push_back(self(self, rest));
      return made[at] = concat(parts);
    }
    // Copied, because making nodes moves them.
    const std::span<const uint32_t> node = nodes_[index(at)];
    const std::vector<uint32_t> words(node.begin(), node.end());
    if (Kind{words[0]} == Kind::kBytes) return made[at] = written(byte_set(at));
    if (Kind{words[0]} == Kind::kRepeat)
      return made[at] = repeat(self(self, Expression{words[1]}), words[2], words[3]);
    if (Kind{words[0]} == Kind::kNot)
      return made[at] = both(any_written, complement(self(self, Expression{words[1]})));
    std::vector<Expression> operands;
    for (size_t i = 1; i < words.size(); ++i) operands.push_back(self(self, Expression{words[i]}));
    return made[at] = join(Kind{words[0]}, operands);
  };
  return replace(replace, e);
}

}  // namespace pumice
