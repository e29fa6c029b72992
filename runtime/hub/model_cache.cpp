#include "hub/model_cache.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/ascii.hpp"
#include "base/file_error.hpp"
#include "base/json.hpp"
#include "base/output_file.hpp"
#include "base/path.hpp"
#include "hub/download.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kNotes = ".notes.json";  // no model's: is_safe_path has no hidden names
constexpr const char* kLock = ".lock";
constexpr size_t kMaxNotesBytes = 4 << 20;
constexpr int kMaxFolderDepth = 8;

/// {"names": {tag: [file, …]}, "files": {file: {"sha256", "size_bytes"}}}, where nothing else is
/// certain about what stands in it. Both are empty if the notes are missing or damaged.
Json read_notes(const fs::path& folder) {
  const Json none = {{"names", Json::object()}, {"files", Json::object()}};
  Result<Json> notes = read_json_file(folder / kNotes, kMaxNotesBytes);
  for (const char* const key : {"names", "files"}) {
    if (!notes.ok() || !notes->is_object() || !notes->contains(key) || !(*notes)[key].is_object()) {
      return none;
    }
  }
  return std::move(notes).value();
}

Status write_notes(const fs::path& folder, const Json& notes) {
  return write_cache_file(folder / kNotes, notes.dump(1) + "\n");
}

std::string note_key(const ModelName& name) { return lower_case(name.tag); }

/// Of a regular file, reached without links; nothing else counts.
std::optional<FileInfo> info_of(const fs::path& path) {
  std::error_code error;
  const FileInfo info = file_info(path, Links::kStay, error);
  if (error || !info.is_regular()) return std::nullopt;
  return info;
}

/// The regular files below `folder` as paths in it, hidden ones left out.
std::vector<RemoteFile> files_below(const fs::path& folder) {
  std::vector<RemoteFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry.depth() > kMaxFolderDepth) entry.disable_recursion_pending();
    const std::string path = to_generic_utf8(entry->path().lexically_relative(folder));
    const std::optional<FileInfo> info = info_of(entry->path());
    if (!info || !is_safe_path(path)) continue;
    files.push_back({.path = path, .size_bytes = info->size_bytes, .sha256 = {}});
  }
  return files;
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string name = to_utf8(entry->path().filename());
    const bool is_folder = fs::is_directory(entry->symlink_status(ignored));
    if (is_folder && is_repository_part(name)) names.push_back(name);
  }
  return names;
}

bool is_real_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

/// Size and time from the files.
void measure(CachedModel& model) {
  model.pulled = {};
  for (const std::vector<fs::path>* const paths : {&model.files, &model.unfinished}) {
    for (const fs::path& path : *paths) {
      const std::optional<FileInfo> info = info_of(path);
      if (!info) continue;
      model.size_bytes += info->size_bytes;
      model.pulled = std::max(model.pulled, info->modified);
    }
  }
}

CachedModel cached_model(const ModelName& repository, const fs::path& folder,
                         const ModelFiles& model) {
  CachedModel cached{.name = repository, .quant = model.quant, .complete = true};
  cached.name.tag = model.quant;
  for (const RemoteFile& file : model.files) cached.files.push_back(folder / from_utf8(file.path));
  measure(cached);
  return cached;
}

Error cannot_remove(const fs::path& path, std::error_code error) {
  return make_error(ErrorCode::kBadFile, "{}: cannot be removed: {}", to_utf8(path),
                    error.message());
}

/// Removes empty folders from `folder` upwards, as far as `top`, which stays.
void remove_empty_folders(fs::path folder, const fs::path& top) {
  for (; folder != top && !remove_empty_folder(folder); folder = folder.parent_path()) {
  }
}

}  // namespace

fs::path ModelCache::folder_of(const ModelName& name) const {
  return directory_ / name.user / name.repo;
}

fs::path ModelCache::path_of(const ModelName& name, const std::string& file) const {
  return folder_of(name) / from_utf8(file);
}

Result<RepositoryLock> ModelCache::lock(const ModelName& name,
                                        const std::function<void()>& waiting) const {
  const fs::path path = folder_of(name) / kLock;
  for (bool told = false;;) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return cannot_write(to_utf8(path.parent_path()), error);
    File file = File::open(path, File::Mode::kReadWrite, error);
    if (error == std::errc::no_such_file_or_directory) continue;  // `remove` took the folder
    if (error) return cannot_write(to_utf8(path), error);
    if (!file.try_lock(error)) {
      if (error) return cannot_write(to_utf8(path), error);
      if (!std::exchange(told, true)) waiting();
      if (error = file.lock(); error) return cannot_write(to_utf8(path), error);
    }
    // Whoever held it may have removed the file.
    if (file.info(error).has_name && !error) return RepositoryLock(std::move(file));
  }
}

std::optional<CachedModel> ModelCache::noted(const ModelName& name) const {
  const fs::path folder = folder_of(name);
  const Json notes = read_notes(folder);
  const std::string key = note_key(name);
  if (!notes["names"].contains(key)) return std::nullopt;
  const Json& files = notes["names"][key];
  if (!files.is_array()) return std::nullopt;
  std::vector<RemoteFile> noted;
  for (const Json& file : files) {
    if (!file.is_string()) return std::nullopt;
    const auto path = file.get<std::string>();
    const std::optional<FileInfo> info = info_of(folder / from_utf8(path));
    if (!info) return std::nullopt;
    noted.push_back({.path = path, .size_bytes = info->size_bytes, .sha256 = {}});
  }
  const std::vector<ModelFiles> models = models_of(noted);  // which have safe paths
  if (models.size() != 1) return std::nullopt;
  return cached_model(name, folder, models[0]);
}

Result<CachedModel> ModelCache::find(const ModelName& name) const {
  const fs::path folder = folder_of(name);
  const std::vector<ModelFiles> models = models_of(files_below(folder));
  PUMICE_TRY(const ModelFiles model, select_model(models, name));
  return cached_model(name, folder, model);
}

bool ModelCache::has(const ModelName& name, const RemoteFile& file) const {
  const std::optional<FileInfo> info = info_of(path_of(name, file.path));
  const Json notes = read_notes(folder_of(name));
  if (!info || file.sha256.empty() || !notes["files"].contains(file.path)) return false;
  const Json noted = {{"sha256", file.sha256}, {"size_bytes", file.size_bytes}};
  return notes["files"][file.path] == noted && info->size_bytes == file.size_bytes;
}

Status ModelCache::note_file(const ModelName& name, const RemoteFile& file) const {
  Json notes = read_notes(folder_of(name));
  notes["files"][file.path] = {{"sha256", file.sha256}, {"size_bytes", file.size_bytes}};
  return write_notes(folder_of(name), notes);
}

Status ModelCache::note(const ModelName& name, const ModelFiles& model) const {
  Json notes = read_notes(folder_of(name));
  Json& paths = notes["names"][note_key(name)] = Json::array();
  for (const RemoteFile& file : model.files) paths.push_back(file.path);
  return write_notes(folder_of(name), notes);
}

std::vector<ModelCache::Listed> ModelCache::list_repository(const ModelName& name) const {
  const fs::path folder = folder_of(name);
  if (!is_real_folder(folder.parent_path()) || !is_real_folder(folder)) return {};
  std::map<std::string, std::vector<fs::path>> there;  // file of the repository → where it is
  std::map<std::string, std::vector<fs::path>> unfinished;  // and its downloads
  std::vector<RemoteFile> files;
  for (RemoteFile& file : files_below(folder)) {
    const std::string target = to_generic_utf8(target_of_unfinished(from_utf8(file.path)));
    (target.empty() ? there[file.path] : unfinished[target])
        .push_back(folder / from_utf8(file.path));
    if (!target.empty()) file.path = target;
    files.push_back(std::move(file));
  }
  std::vector<Listed> listed;
  std::map<std::string, int> n_of_quant;
  for (ModelFiles& model : all_models_of(files)) {
    CachedModel cached{.name = name, .quant = model.quant, .complete = model.is_whole};
    for (const RemoteFile& file : model.files) {
      for (const fs::path& path : there[file.path]) cached.files.push_back(path);
      for (const fs::path& path : unfinished[file.path]) cached.unfinished.push_back(path);
      cached.complete = cached.complete && !there[file.path].empty();
    }
    measure(cached);
    ++n_of_quant[model.quant];
    listed.push_back({std::move(model), std::move(cached)});
  }
  for (Listed& entry : listed) {
    const bool is_clear = !entry.model.quant.empty() && n_of_quant[entry.model.quant] == 1;
    entry.cached.name.tag = is_clear ? entry.model.quant : entry.model.files[0].path;
  }
  return listed;
}

std::vector<CachedModel> ModelCache::list() const {
  std::vector<CachedModel> all;
  for (const std::string& user : folders_in(directory_)) {
    for (const std::string& repo : folders_in(directory_ / user)) {
      for (Listed& entry : list_repository({.user = user, .repo = repo, .tag = {}})) {
        all.push_back(std::move(entry.cached));
      }
    }
  }
  std::ranges::sort(all, {}, [](const CachedModel& model) { return model.name.text(); });
  return all;
}

Result<std::vector<CachedModel>> ModelCache::remove(const ModelName& name) const {
  const fs::path folder = folder_of(name);
  std::vector<Listed> listed = list_repository(name);
  if (listed.empty()) {
    return make_error(ErrorCode::kBadFile, "{} is not in the cache; see pumice list",
                      name.repository());
  }
  const size_t n_before = listed.size();
  if (!name.tag.empty()) {
    std::vector<ModelFiles> models;
    for (const Listed& entry : listed) models.push_back(entry.model);
    PUMICE_TRY(const ModelFiles chosen, select_model(models, name));
    std::erase_if(listed, [&](const Listed& entry) {
      return entry.model.files[0].path != chosen.files[0].path;
    });
  }
  std::vector<CachedModel> removed;
  for (Listed& entry : listed) {
    std::vector<fs::path> paths = entry.cached.files;
    std::ranges::copy(entry.cached.unfinished, std::back_inserter(paths));
    for (const fs::path& path : paths) {
      if (const std::error_code error = remove_file(path)) return cannot_remove(path, error);
      remove_empty_folders(path.parent_path(), folder);
    }
    removed.push_back(std::move(entry.cached));
  }
  if (removed.size() < n_before) return removed;
  for (const char* const own : {kNotes, kLock}) remove_file(folder / own);
  remove_empty_folders(folder, directory_);
  return removed;
}

}  // namespace pumice
