#include "cache/prefix_store.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <system_error>

#include "base/file.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "cache/prefix_store_file.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostKnown = size_t{1} << 18;  // names that are remembered
constexpr size_t kFolderDigits = 32;
/// What nobody has finished for so long is left of a writer that died.
constexpr std::chrono::hours kUnfinishedFor{1};

struct FoundFile {
  fs::path path;
  std::chrono::system_clock::time_point used;
  uint64_t n_bytes = 0;
};

bool is_hex_name(const fs::path& path, size_t n_digits) {
  const std::string name = to_utf8(path.filename());
  return name.size() == n_digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Folders with such names; whatever cannot be read has none.
std::vector<fs::path> folders_in(const fs::path& folder, size_t n_digits) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(entry->symlink_status(ignored));
    if (is_folder && is_hex_name(entry->path(), n_digits)) found.push_back(entry->path());
  }
  return found;
}

}  // namespace

PrefixStore::PrefixStore(PrefixStoreOptions options, PageKinds kinds)
    : options_(std::move(options)),
      kinds_(std::move(kinds)),
      folder_(options_.folder / prefix_store_folder(options_.binding)) {}

Result<std::unique_ptr<PrefixStore>> PrefixStore::open(const PrefixStoreOptions& options,
                                                       PageKinds kinds) {
  if (options.binding.page_bytes == 0 || options.limit_bytes < 2 * options.binding.page_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "prefix store {}: a limit of {} bytes must hold two pages of {}",
                      to_utf8(options.folder), options.limit_bytes, options.binding.page_bytes);
  }
  std::unique_ptr<PrefixStore> store(new PrefixStore(options, std::move(kinds)));
  std::error_code error;
  fs::create_directories(store->folder_, error);
  if (error || !fs::is_directory(store->folder_)) {
    return make_error(ErrorCode::kBadFile, "prefix store {}: {}", to_utf8(options.folder),
                      error ? error.message() : "not a folder");
  }
  store->reader_ = std::thread([raw = store.get()] { raw->read_until_closed(); });
  store->writer_ = std::thread([raw = store.get()] { raw->write_until_closed(); });
  return store;
}

PrefixStore::~PrefixStore() {
  {
    const std::lock_guard lock(mutex_);
    closes_ = true;
    for (const auto& reading : to_read_) reading->cancel();
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

fs::path PrefixStore::path_of(const BlockHash& hash, uint32_t kind) const {
  return folder_ / stored_page_path(hash, kind);
}

PrefixStoreStats PrefixStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

/// With mutex_ held. Bounded: what is forgotten is written again, to find that it is there.
void PrefixStore::remember(uint64_t key) {
  if (known_.size() >= kMostKnown) known_.clear();
  known_.insert(key);
}

void PrefixStore::warn_once(bool& warned, const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(warned, true)) return;
  }
  options_.logger.warning("prefix store {}: {}", to_utf8(options_.folder), line);
}

// ---- writing

bool PrefixStore::wants(const BlockHash& hash, uint32_t kind) const {
  const std::lock_guard lock(mutex_);
  return !known_.contains(stored_page_key(hash, kind));
}

bool PrefixStore::write(Page page) {
  {
    const std::lock_guard lock(mutex_);
    if (closes_ || waiting_bytes_ + page.bytes.size() > options_.most_waiting_bytes) {
      ++stats_.dropped_pages;
      return false;
    }
    remember(stored_page_key(page.hash, page.kind));
    waiting_bytes_ += page.bytes.size();
    to_write_.push_back(std::move(page));
  }
  changed_.notify_all();
  return true;
}

void PrefixStore::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return to_write_.empty() && !writing_; });
}

void PrefixStore::write_until_closed() {
  look_around(options_.limit_bytes);
  while (true) {
    Page page;
    {
      std::unique_lock lock(mutex_);
      writing_ = false;
      if (to_write_.empty()) changed_.notify_all();
      changed_.wait(lock, [&] { return closes_ || !to_write_.empty(); });
      if (to_write_.empty()) return;
      page = std::move(to_write_.front());
      to_write_.pop_front();
      waiting_bytes_ -= page.bytes.size();
      writing_ = true;
    }
    write_page(page);
    bool is_full = false;
    {
      const std::lock_guard lock(mutex_);
      // Others write there too: what they did is seen by looking again.
      is_full =
          stats_.bytes > options_.limit_bytes || written_since_look_ > options_.limit_bytes / 16;
    }
    if (is_full) look_around(options_.limit_bytes);
  }
}

void PrefixStore::write_page(const Page& page) {
  const fs::path path = path_of(page.hash, page.kind);
  std::error_code error;
  (void)file_info(path, Links::kStay, error);
  if (!error) return;  // somebody has written it
  const std::vector<std::byte> bytes =
      stored_page_bytes(options_.binding, page.kind, page.tokens, page.bytes);
  std::random_device random;
  const fs::path temporary =
      path.parent_path() /
      from_utf8(fmt::format("{}.{:08x}{:08x}-{}.unfinished", to_utf8(path.filename()), random(),
                            random(), n_names_++));
  fs::create_directories(path.parent_path(), error);
  File file = File::open(temporary, File::Mode::kCreate, error);
  if (!error) file.write_at(0, bytes, error);
  // A server may say only now that it has no room.
  if (file.is_open()) {
    const std::error_code closed = file.close();
    if (!error) error = closed;
  }
  if (!error) error = replace_file(temporary, path);
  if (error) {
    remove_file(temporary);
    std::error_code missing;
    (void)file_info(path, Links::kStay, missing);
    if (!missing) return;  // somebody was first, and reads it: Windows may not replace it then
    warn_once(warned_of_writes_, fmt::format("cannot write: {}", error.message()));
    const std::lock_guard lock(mutex_);
    ++stats_.dropped_pages;
    known_.erase(stored_page_key(page.hash, page.kind));
    return;
  }
  written_since_look_ += bytes.size();
  const std::lock_guard lock(mutex_);
  ++stats_.written_pages;
  stats_.written_bytes += bytes.size();
  stats_.bytes += bytes.size();
}

/// What is there, of all processes; and what was used longest ago goes if that is more than
/// `most_bytes`, down to a little less, so that this is rarely done.
void PrefixStore::look_around(uint64_t most_bytes) {
  std::vector<FoundFile> files;
  std::unordered_set<uint64_t> known;
  uint64_t n_bytes = 0;
  const auto now = std::chrono::system_clock::now();
  for (const fs::path& bound : folders_in(options_.folder, kFolderDigits)) {
    const bool is_own = bound.filename() == folder_.filename();
    for (const fs::path& part : folders_in(bound, 2)) {
      std::error_code error;
      for (fs::directory_iterator entry(part, error), end; !error && entry != end;
           entry.increment(error)) {
        std::error_code gone;
        const std::string name = to_utf8(entry->path().filename());
        const FileInfo info = file_info(entry->path(), Links::kStay, gone);
        if (gone || !info.is_regular()) continue;
        const FoundFile file{entry->path(), info.modified, info.size_bytes};
        if (is_unfinished_stored_page(name)) {
          if (now - file.used > kUnfinishedFor) remove_file(file.path);
          continue;
        }
        const std::optional<uint64_t> key = stored_page_key(name);
        if (!key) continue;
        if (is_own && known.size() < kMostKnown) known.insert(*key);
        n_bytes += file.n_bytes;
        files.push_back(file);
      }
    }
  }
  uint64_t n_removed = 0;
  if (n_bytes > most_bytes) {
    std::ranges::sort(files, {}, &FoundFile::used);
    const uint64_t wanted = most_bytes - most_bytes / 10;
    for (const FoundFile& file : files) {
      if (n_bytes <= wanted) break;
      if (!is_stored_page(file.path)) continue;
      // Another process may have been first: it is gone all the same.
      remove_file(file.path);
      n_bytes -= file.n_bytes;
      ++n_removed;
      if (const auto key = stored_page_key(to_utf8(file.path.filename()))) known.erase(*key);
    }
  }
  written_since_look_ = 0;
  const std::lock_guard lock(mutex_);  // ends before `known` does, which is large
  for (const Page& page : to_write_) known.insert(stored_page_key(page.hash, page.kind));
  known_.swap(known);
  stats_.bytes = n_bytes;
  stats_.removed_files += n_removed;
}

// ---- reading

std::shared_ptr<PrefixStore::Reading> PrefixStore::read(std::vector<uint32_t> tokens,
                                                        std::vector<BlockHash> hashes,
                                                        std::vector<KindMask> known,
                                                        std::function<void()> wake) {
  PUMICE_CHECK(tokens.size() == hashes.size() * options_.binding.block_tokens &&
                   known.size() == hashes.size(),
               "the tokens of each block, and what is known of it");
  auto reading = std::make_shared<Reading>();
  reading->tokens_ = std::move(tokens);
  reading->hashes_ = std::move(hashes);
  reading->known_ = std::move(known);
  reading->wake_ = std::move(wake);
  {
    const std::lock_guard lock(mutex_);
    to_read_.push_back(reading);
  }
  changed_.notify_all();
  return reading;
}

void PrefixStore::read_until_closed() {
  while (true) {
    std::shared_ptr<Reading> reading;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closes_ || !to_read_.empty(); });
      if (closes_) return;
      reading = std::move(to_read_.front());
      to_read_.pop_front();
    }
    try {
      read_prefix(*reading);
    } catch (const std::bad_alloc&) {  // then it is computed
      reading->prefix_.pages.clear();
    }
    reading->done_.store(true, std::memory_order_release);
    if (!reading->cancelled_) reading->wake_();
  }
}

void PrefixStore::note_bad(const fs::path& path, bool is_ours) {
  if (is_ours) {
    remove_file(path);
    warn_once(warned_of_damage_, fmt::format("{} is damaged; files like it are removed",
                                             printable(to_utf8(path), 200)));
  } else {
    warn_once(warned_of_foreign_, fmt::format("{} was not written by a prefix store; files like it "
                                              "are left alone",
                                              printable(to_utf8(path), 200)));
  }
  const std::lock_guard lock(mutex_);
  ++(is_ours ? stats_.damaged_files : stats_.foreign_files);
}

/// The longest position that every kind can be restored at, by what is known and what has a name in
/// the store. Where a file then turns out to be of no use, once more without it.
void PrefixStore::read_prefix(Reading& reading) {
  const auto n_blocks = static_cast<uint32_t>(reading.hashes_.size());
  const uint32_t block_tokens = options_.binding.block_tokens;
  const uint64_t most_pages = options_.most_read_bytes / options_.binding.page_bytes;
  enum class There : uint8_t { kUnknown, kNo, kStored, kRead, kCached };
  std::vector<There> there(size_t{n_blocks} * kinds_.size(), There::kUnknown);
  const auto state = [&](uint32_t block, uint32_t kind) -> There& {
    return there[size_t{block} * kinds_.size() + kind];
  };
  const auto has = [&](uint32_t block, uint32_t kind) {
    There& known = state(block, kind);
    if (known == There::kUnknown && PageKinds::has(reading.known_[block], kind)) {
      known = There::kCached;
    }
    if (known == There::kUnknown) {
      std::error_code error;
      (void)file_info(path_of(reading.hashes_[block], kind), Links::kStay, error);
      known = error ? There::kNo : There::kStored;
    }
    return known != There::kNo;
  };
  const auto has_all = [&](uint32_t n) {
    const auto entries = kinds_.prefix_entries(n * block_tokens);
    return std::ranges::all_of(entries, [&](const PageKinds::PrefixEntry& entry) {
      return PageKinds::has(kinds_.full(), entry.kind) || has(entry.block, entry.kind);
    });
  };
  std::vector<Prefix::Page>& pages = reading.prefix_.pages;
  while (!reading.cancelled_) {
    uint32_t n = 0;
    const auto has_full = [&](uint32_t block) {
      for (uint32_t kind = 0; kind < kinds_.size(); ++kind) {
        if (PageKinds::has(kinds_.full(), kind) && !has(block, kind)) return false;
      }
      return true;
    };
    while (n < n_blocks && has_full(n)) ++n;
    while (n > 0 && !kinds_.plain() && !has_all(n)) --n;
    std::vector<PageKinds::PrefixEntry> wanted;
    for (const PageKinds::PrefixEntry& entry : kinds_.prefix_entries(n * block_tokens)) {
      if (state(entry.block, entry.kind) != There::kCached) wanted.push_back(entry);
    }
    if (wanted.size() > most_pages) {
      // Of a plain cache the beginning is of use by itself.
      if (!kinds_.plain()) return pages.clear();
      wanted.resize(most_pages);
    }
    bool is_whole = true;
    for (const PageKinds::PrefixEntry& entry : wanted) {
      if (reading.cancelled_) return;
      There& known = state(entry.block, entry.kind);
      if (known == There::kRead) continue;
      const fs::path path = path_of(reading.hashes_[entry.block], entry.kind);
      const auto tokens = std::span<const uint32_t>(reading.tokens_)
                              .first((size_t{entry.block} + 1) * block_tokens);
      Prefix::Page page{entry.block, entry.kind, {}};
      const StoredPageState read =
          read_stored_page(path, options_.binding, entry.kind, tokens, page.bytes);
      if (read == StoredPageState::kGood) {
        touch_file(path);  // it goes last
        known = There::kRead;
        pages.push_back(std::move(page));
        continue;
      }
      known = There::kNo;
      is_whole = false;
      if (read == StoredPageState::kDamaged || read == StoredPageState::kForeign) {
        note_bad(path, read == StoredPageState::kDamaged);
      }
      if (read != StoredPageState::kForeign && read != StoredPageState::kOther) {
        const std::lock_guard lock(mutex_);
        known_.erase(stored_page_key(reading.hashes_[entry.block], entry.kind));
      }
      break;
    }
    if (!is_whole) continue;
    if (kinds_.plain()) break;
    std::erase_if(pages, [&](const Prefix::Page& page) {
      return std::ranges::none_of(wanted, [&](const PageKinds::PrefixEntry& entry) {
        return entry.block == page.block && entry.kind == page.kind;
      });
    });
    break;
  }
  std::ranges::sort(pages, {},
                    [](const Prefix::Page& page) { return std::pair(page.block, page.kind); });
  const std::lock_guard lock(mutex_);
  stats_.read_pages += pages.size();
  stats_.read_bytes += pages.size() * options_.binding.page_bytes;
  for (const Prefix::Page& page : pages) {
    remember(stored_page_key(reading.hashes_[page.block], page.kind));
  }
}

}  // namespace pumice
