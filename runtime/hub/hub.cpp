#include "hub/hub.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <system_error>

#include "base/file_error.hpp"
#include "base/path.hpp"
#include "base/printable.hpp"
#include "hub/download.hpp"
#include "hub/http.hpp"
#include "hub/listing.hpp"
#include "hub/selection.hpp"

namespace pumice {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListingBytes = 16 << 20;
constexpr size_t kMaxTokenBytes = 512;

/// What an answer of the server means for the user. Hugging Face also answers 401 for what does not
/// exist, if nobody is logged in.
Error refusal(int status, const ModelName& name, const HubOptions& options) {
  const std::string page = fmt::format("{}/{}", options.endpoint, name.repository());
  if (status == 404) {
    return make_error(ErrorCode::kBadFile, "{}: there is no such model; is the name right?", page);
  }
  if (status != 401 && status != 403) {
    return make_error(ErrorCode::kBadFile, "{}: the server answered HTTP {}", page, status);
  }
  if (options.token.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "{}: there is no such model, or it is private or gated (HTTP {}): check the "
                      "name, accept its licence on that page, and set HF_TOKEN to a token from "
                      "{}/settings/tokens",
                      page, status, options.endpoint);
  }
  return make_error(
      ErrorCode::kBadFile,
      "{}: no access with this HF_TOKEN (HTTP {}): accept the model's licence on that "
      "page, and check that the token is valid and may read it",
      page, status);
}

/// Whether nobody on the way can read what is sent to the address.
bool is_private_way(std::string_view url) {
  if (!url.starts_with("http://")) return true;
  url.remove_prefix(std::string_view("http://").size());
  const std::string_view host = url.substr(0, url.find('/'));
  const std::string_view name = host.substr(0, host.rfind(':'));
  const bool is_address = name.find_first_not_of("0123456789.") == name.npos;
  return name == "localhost" || host == "localhost" || host.starts_with("[::1]") ||
         (is_address && name.starts_with("127."));
}

bool is_token(std::string_view token) {
  return token.size() <= kMaxTokenBytes &&
         std::ranges::all_of(token, [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

Result<Hub> Hub::create(HubOptions options) {
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (!is_plain_http_url(options.endpoint)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HF_ENDPOINT '{}' is not an address such as https://huggingface.co",
                      printable(options.endpoint));
  }
  if (!is_token(options.token)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HF_TOKEN contains characters that a token cannot have");
  }
  if (options.directory.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "no place for models: set HOME or XDG_CACHE_HOME");
  }
  return Hub(std::move(options));
}

Result<CachedModel> Hub::get(const ModelName& name, const PullEvents& events) const {
  if (std::optional<CachedModel> noted = cache_.noted(name)) return std::move(*noted);
  return pull(name, events);
}

Result<CachedModel> Hub::find_offline(const ModelName& name) const {
  if (std::optional<CachedModel> noted = cache_.noted(name)) return std::move(*noted);
  Result<CachedModel> found = cache_.find(name);
  if (found.ok()) return found;
  return make_error(ErrorCode::kBadFile,
                    "{} is not in the cache (see pumice list), and --offline forbids pulling it",
                    name.text());
}

Status Hub::check_space(const ModelName& name, const ModelFiles& model) const {
  uint64_t needed = 0;
  for (const RemoteFile& file : model.files) {
    if (cache_.has(name, file)) continue;
    std::error_code error;
    const fs::path part = unfinished_path(cache_.path_of(name, file.path), file);
    const uint64_t done = fs::file_size(part, error);
    needed += file.size_bytes - (error ? 0 : std::min(done, file.size_bytes));
  }
  std::error_code error;
  const fs::space_info space = fs::space(options_.directory, error);
  if (error || space.available >= needed) return {};
  const auto gigabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  return make_error(
      ErrorCode::kDoesNotFit,
      "{} needs {:.2f} GB more on the disk of {}, which has {:.2f} GB free; pumice rm "
      "removes models",
      name.text(), gigabytes(needed), to_utf8(options_.directory), gigabytes(space.available));
}

Status Hub::download(const DownloadSource& source, const ModelName& name, const std::string& commit,
                     const ModelFiles& model, const PullEvents& events) const {
  const uint64_t total = model.size_bytes();
  uint64_t before = 0;
  for (const RemoteFile& file : model.files) {
    if (!cache_.has(name, file)) {
      const fs::path target = cache_.path_of(name, file.path);
      std::error_code error;
      fs::create_directories(target.parent_path(), error);
      if (error) return cannot_write(to_utf8(target.parent_path()), error);
      const std::string url = fmt::format("{}/{}/resolve/{}/{}", options_.endpoint,
                                          name.repository(), commit, escape_url_path(file.path));
      PUMICE_TRY_STATUS(download_file(source, url, file, target, [&](uint64_t done) {
        events.progress(before + done, total);
      }));
      PUMICE_TRY_STATUS(cache_.note_file(name, file));
    }
    before += file.size_bytes;
  }
  return {};
}

Result<std::vector<CachedModel>> Hub::remove(const ModelName& name,
                                             const std::function<void()>& waiting) const {
  if (!cache_.contains(name)) {  // nothing is made only to be locked
    return make_error(ErrorCode::kBadFile, "{} is not in the cache; see pumice list", name.text());
  }
  PUMICE_TRY(const RepositoryLock lock, cache_.lock(name, waiting));
  return cache_.remove(name);
}

Result<CachedModel> Hub::pull(const ModelName& name, const PullEvents& events) const {
  if (options_.offline) return find_offline(name);
  if (!options_.token.empty() && !is_private_way(options_.endpoint)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "HF_TOKEN would be sent unencrypted to {}: use an https:// address, or unset "
                      "HF_TOKEN (models that are neither private nor gated need none)",
                      printable(options_.endpoint));
  }
  PUMICE_TRY(HttpClient client, HttpClient::open());
  const DownloadSource source{
      .client = &client,
      .token = options_.token,
      .timeout_s = options_.timeout_s,
      .refusal = [&](int status) { return refusal(status, name, options_); },
      .unchecked = events.unchecked};
  const std::string url =
      fmt::format("{}/api/models/{}?blobs=true", options_.endpoint, name.repository());
  PUMICE_TRY(const std::string answer, download_text(source, url, kMaxListingBytes));
  PUMICE_TRY(const Listing listing, parse_listing(answer));
  PUMICE_TRY(const ModelFiles model, select_model(models_of(listing.files), name));
  ModelName chosen = name;
  if (name.tag.empty()) chosen.tag = model.quant.empty() ? model.files[0].path : model.quant;
  events.begun(chosen, model.size_bytes());
  PUMICE_TRY(const RepositoryLock lock, cache_.lock(name, events.waiting));
  PUMICE_TRY_STATUS(check_space(name, model));
  PUMICE_TRY_STATUS(download(source, name, listing.commit, model, events));
  PUMICE_TRY_STATUS(cache_.note(name, model));
  PUMICE_TRY_STATUS(cache_.note(chosen, model));
  if (std::optional<CachedModel> noted = cache_.noted(chosen)) return std::move(*noted);
  return make_error(ErrorCode::kBadFile, "{}: its files were removed while it was pulled",
                    name.text());
}

}  // namespace pumice
