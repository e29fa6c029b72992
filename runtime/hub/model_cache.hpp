// Models that were downloaded: a folder for each repository, user/repo, with its files under the
// names that they have there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "hub/model_name.hpp"
#include "hub/selection.hpp"

namespace pumice {

struct CachedModel {
  ModelName name;                            ///< finds this model: the tag is its quant or a file
  std::string quant;                         ///< empty: not in its name
  std::vector<std::filesystem::path> files;  ///< that are there; of all the first is opened
  std::vector<std::filesystem::path> unfinished;  ///< downloads of the same files
  uint64_t size_bytes = 0;                        ///< of both on the disk
  std::chrono::system_clock::time_point pulled;
  bool complete = false;  ///< all of `files` are there; otherwise `pull` continues
};

/// Holds a lock on a repository's folder. Move-only.
class RepositoryLock {
 public:
  /// `file` is locked.
  explicit RepositoryLock(File file) : file_(std::move(file)) {}

 private:
  File file_;
};

/// Any number of processes may use one folder; what changes a repository's needs its lock. Damaged
/// notes count as none.
class ModelCache {
 public:
  explicit ModelCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Where a file of a repository is, or is to be.
  std::filesystem::path path_of(const ModelName& name, const std::string& file) const;

  /// Waits for another process that changes this repository, after calling `waiting` once.
  /// Makes the folder. Errors: cannot_write's.
  Result<RepositoryLock> lock(const ModelName& name, const std::function<void()>& waiting) const;

  /// What `note` said of exactly this name, tag and all, if its files are there. Needs no lock.
  std::optional<CachedModel> noted(const ModelName& name) const;
  /// The model that select_model would choose among the complete ones of the repository.
  /// Errors: its.
  Result<CachedModel> find(const ModelName& name) const;
  /// Whether `file` is there as the server has it, as far as its checksum when it came says.
  bool has(const ModelName& name, const RemoteFile& file) const;
  /// That `file` is there, with this checksum. Needs the lock. Errors: cannot_write's.
  Status note_file(const ModelName& name, const RemoteFile& file) const;
  /// That `model` is what `name` asks for. Needs the lock. Errors: cannot_write's.
  Status note(const ModelName& name, const ModelFiles& model) const;

  /// Whether anything of its repository is there.
  bool contains(const ModelName& name) const { return !list_repository(name).empty(); }
  /// By name. Unfinished downloads are among them.
  std::vector<CachedModel> list() const;
  /// Removes the model that `name` selects, complete or not; without a tag all of its repository,
  /// and never what is outside the folder. Needs the lock. Errors: select_model's; kBadFile if
  /// there is none or a file cannot be removed.
  Result<std::vector<CachedModel>> remove(const ModelName& name) const;

 private:
  std::filesystem::path folder_of(const ModelName& name) const;
  struct Listed {
    ModelFiles model;
    CachedModel cached;
  };
  std::vector<Listed> list_repository(const ModelName& name) const;

  std::filesystem::path directory_;
};

}  // namespace pumice
