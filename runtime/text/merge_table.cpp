#include "text/merge_table.hpp"

#include <limits>
#include <string>

namespace pumice {

Result<MergeTable> MergeTable::create(const Vocabulary& vocabulary,
                                      const std::vector<std::string_view>& merges) {
  if (merges.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.merges is missing; a byte-pair tokenizer needs it");
  }
  if (merges.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(ErrorCode::kBadFile, "tokenizer.ggml.merges has {} entries, at most 2^31 - 1",
                      merges.size());
  }
  MergeTable table;
  table.merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view text = merges[rank];
    const size_t space = text.find(' ', 1);  // the left half may begin with one
    if (space == text.npos || space + 1 == text.size()) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.merges[{}] is not two tokens with a space between them",
                        rank);
    }
    const auto left = vocabulary.find(text.substr(0, space));
    const auto right = vocabulary.find(text.substr(space + 1));
    joined.assign(text.substr(0, space)).append(text.substr(space + 1));
    const auto merged = vocabulary.find(joined);
    if (!left || !right || !merged || vocabulary.type(*merged) == TokenType::kControl) continue;
    table.merges_.try_emplace(uint64_t{*left} << 32 | *right,
                              Merged{-static_cast<int32_t>(rank), *merged});
  }
  return table;
}

}  // namespace pumice
