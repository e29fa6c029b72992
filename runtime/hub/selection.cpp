#include "hub/selection.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/ascii.hpp"
#include "base/printable.hpp"

namespace pumice {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q8_0"};
constexpr size_t kMostNamesInErrors = 12;
constexpr size_t kSplitDigits = 5;
constexpr size_t kSplitBytes = 1 + kSplitDigits + 4 + kSplitDigits;  // "-00001-of-00003"

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Which part of how many a name without its suffix is: {0, 0} if it is whole.
std::pair<unsigned, unsigned> split_of(std::string_view stem) {
  if (stem.size() < kSplitBytes) return {0, 0};
  const std::string_view end = stem.substr(stem.size() - kSplitBytes);
  const std::string_view number = end.substr(1, kSplitDigits);
  const std::string_view count = end.substr(kSplitBytes - kSplitDigits);
  if (end.front() != '-' || end.substr(1 + kSplitDigits, 4) != "-of-") return {0, 0};
  if (!std::ranges::all_of(number, is_digit) || !std::ranges::all_of(count, is_digit))
    return {0, 0};
  std::pair<unsigned, unsigned> split = {0, 0};
  std::from_chars(number.data(), number.data() + number.size(), split.first);
  std::from_chars(count.data(), count.data() + count.size(), split.second);
  return split;
}

bool is_quant(std::string_view word) {
  constexpr std::string_view kPlain[] = {"F16", "F32", "BF16", "FP16", "MXFP4", "MXFP4_MOE"};
  if (std::ranges::find(kPlain, word) != std::end(kPlain)) return true;
  if (word.starts_with('I') || word.starts_with('T')) word.remove_prefix(1);
  if (word.size() < 2 || word[0] != 'Q' || !is_digit(word[1])) return false;
  return word.size() == 2 || word[2] == '_';
}

/// The quant in a name such as "Llama-3-UD-Q4_K_XL" or "model_q8_0".
std::string quant_of(std::string_view label) {
  const std::string name = upper_case(file_name(label));
  for (size_t end = name.size(); end > 0;) {
    const size_t before = name.find_last_of("-.", end - 1);
    const size_t begin = before == name.npos ? 0 : before + 1;
    for (size_t at = begin; at < end;) {
      const std::string word = name.substr(at, end - at);
      if (is_quant(word)) {
        const bool is_dynamic = at >= 3 && name.substr(at - 3, 3) == "UD-";
        return is_dynamic ? "UD-" + word : word;
      }
      const size_t underscore = name.find('_', at);
      at = underscore < end ? underscore + 1 : end;
    }
    end = begin == 0 ? 0 : begin - 1;
  }
  return {};
}

/// Whether `word` stands in `label` between punctuation. Words go on after '_': Q4_0 is not in
/// "Q4_0_4_4", but "model_Q4_0" has it.
bool has_word(std::string_view label, std::string_view word, bool only_at_end) {
  constexpr std::string_view kBefore = "-._/";
  constexpr std::string_view kBehind = "-./";
  for (size_t at = label.find(word); at != label.npos; at = label.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || kBefore.find(label[at - 1]) != kBefore.npos;
    const bool ends =
        end == label.size() || (!only_at_end && kBehind.find(label[end]) != kBehind.npos);
    if (begins && ends) return true;
  }
  return false;
}

bool names_file(const ModelFiles& model, const std::string& file) {
  return std::ranges::any_of(model.files, [&](const RemoteFile& remote) {
    const std::string path = lower_case(remote.path);
    return path == file || file_name(path) == file;
  });
}

/// How well a model answers to a tag in lower case: 0 not at all, more is better.
int match(const ModelFiles& model, const std::string& tag) {
  if (tag.ends_with(kSuffix)) return names_file(model, tag) ? 1 : 0;
  const std::string label = lower_case(model.label);
  if (lower_case(model.quant) == tag) return 3;
  if (has_word(label, tag, true)) return 2;
  return has_word(label, tag, false) ? 1 : 0;
}

std::vector<const ModelFiles*> best_matches(std::span<const ModelFiles> models,
                                            std::string_view tag) {
  std::vector<const ModelFiles*> best;
  int best_match = 1;
  const std::string wanted = lower_case(tag);
  for (const ModelFiles& model : models) {
    const int found = match(model, wanted);
    if (found > best_match) best.clear();
    if (found < best_match) continue;
    best_match = found;
    best.push_back(&model);
  }
  return best;
}

std::string listed(const std::set<std::string>& names) {
  std::string text;
  size_t n = 0;
  for (const std::string& name : names) {
    if (n++ == kMostNamesInErrors) return text + ", …";
    text += (text.empty() ? "" : ", ") + printable(name, 60);
    if (text.size() > 400) return text + ", …";
  }
  return text;
}

std::string quants_of(std::span<const ModelFiles> models) {
  std::set<std::string> names;
  for (const ModelFiles& model : models) {
    names.insert(model.quant.empty() ? std::string(file_name(model.files[0].path)) : model.quant);
  }
  return listed(names);
}

}  // namespace

uint64_t ModelFiles::size_bytes() const {
  uint64_t sum = 0;
  for (const RemoteFile& file : files) sum += file.size_bytes;
  return sum;
}

std::vector<ModelFiles> all_models_of(std::span<const RemoteFile> files) {
  struct Parts {
    unsigned n_parts = 0;  // 0: a whole file
    std::map<unsigned, RemoteFile> by_number;
  };
  std::map<std::pair<std::string, unsigned>, Parts> found;
  for (const RemoteFile& file : files) {
    const std::string name = lower_case(file_name(file.path));
    const bool is_model = name.ends_with(kSuffix) && name.find("mmproj") == name.npos &&
                          name.find("imatrix") == name.npos;
    if (!is_model || !is_safe_path(file.path)) continue;
    std::string label = file.path.substr(0, file.path.size() - kSuffix.size());
    const std::pair<unsigned, unsigned> split = split_of(label);
    if (split.second > 0) label.resize(label.size() - kSplitBytes);
    Parts& parts = found[{label, split.second}];
    parts.n_parts = split.second;
    parts.by_number.emplace(split.first, file);
  }
  std::vector<ModelFiles> models;
  for (const auto& [key, parts] : found) {
    const bool is_whole = parts.n_parts == 0 || (parts.by_number.size() == parts.n_parts &&
                                                 parts.by_number.begin()->first == 1 &&
                                                 parts.by_number.rbegin()->first == parts.n_parts);
    ModelFiles model{
        .label = key.first, .quant = quant_of(key.first), .files = {}, .is_whole = is_whole};
    for (const auto& [number, file] : parts.by_number) model.files.push_back(file);
    models.push_back(std::move(model));
  }
  return models;
}

std::vector<ModelFiles> models_of(std::span<const RemoteFile> files) {
  std::vector<ModelFiles> models = all_models_of(files);
  std::erase_if(models, [](const ModelFiles& model) { return !model.is_whole; });
  return models;
}

Result<ModelFiles> select_model(std::span<const ModelFiles> models, const ModelName& name) {
  if (models.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "{} has no GGUF model; look for a repository that has, "
                      "often one with GGUF in its name",
                      name.repository());
  }
  std::vector<const ModelFiles*> found;
  if (!name.tag.empty()) {
    found = best_matches(models, name.tag);
  } else {
    for (const std::string_view tag : kPreferred) {
      if (found.empty()) found = best_matches(models, tag);
    }
    if (found.empty()) return models[0];
  }
  if (found.size() == 1) return *found[0];
  if (found.empty()) {
    return make_error(ErrorCode::kBadFile, "{} has no '{}'; it has {}", name.repository(),
                      printable(name.tag), quants_of(models));
  }
  std::set<std::string> names;
  for (const ModelFiles* const model : found) names.insert(model->files[0].path);
  return make_error(ErrorCode::kBadFile, "{} has several such models; name one as {}:FILE, of {}",
                    name.text(), name.repository(), listed(names));
}

}  // namespace pumice
