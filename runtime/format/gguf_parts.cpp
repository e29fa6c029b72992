#include "format/gguf_parts.hpp"

#include <fmt/core.h>

#include "base/path.hpp"

namespace pumice {

Result<GgufPart> part_of(const GgufFile& file) {
  PUMICE_TRY(const auto count, file.get_or<uint32_t>("split.count", 0));
  if (count <= 1) return GgufPart();
  PUMICE_TRY(const auto index, file.get<uint32_t>("split.no"));
  if (count > GgufPart::kMaxCount) {
    return make_error(ErrorCode::kBadFile, "split.count: {} is more than the supported {}", count,
                      GgufPart::kMaxCount);
  }
  if (index >= count) {
    return make_error(ErrorCode::kBadFile, "split.no: there is no part {} of {} (the first is 0)",
                      index, count);
  }
  return GgufPart{.number = index + 1, .count = count};
}

std::string part_suffix(const GgufPart& part) {
  return fmt::format("-{:05}-of-{:05}.gguf", part.number, part.count);
}

Result<std::filesystem::path> path_of_part(const std::filesystem::path& path, const GgufPart& own,
                                           uint32_t number) {
  const std::string name = to_utf8(path);
  const std::string suffix = part_suffix(own);
  if (!name.ends_with(suffix)) {
    return make_error(ErrorCode::kBadFile,
                      "{}: is part {} of {} of a model, so its name must end in {} for the other "
                      "parts to be found",
                      name, own.number, own.count, suffix);
  }
  return from_utf8(name.substr(0, name.size() - suffix.size()) + part_suffix({number, own.count}));
}

}  // namespace pumice
