#include "engine/saved_sequence.hpp"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

namespace pumice {
namespace {

static_assert(std::endian::native == std::endian::little, "bytes are written as memory is");

constexpr std::array<char, 8> kMagic = {'P', 'U', 'M', 'I', 'C', 'E', 'S', 'Q'};
constexpr uint32_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t block_tokens = 0;
  uint64_t n_bytes = 0;
  uint64_t checksum = 0;
  std::array<uint64_t, 2> model = {};
  ModelFingerprint state;
  uint64_t layout = 0;
  uint64_t kinds = 0;
  uint64_t page_bytes = 0;
  uint32_t n_kinds = 0;
  uint32_t n_tokens = 0;
  uint32_t n_prompt = 0;
  uint32_t state_tokens = 0;
  uint32_t n_biases = 0;
  uint32_t salt_bytes = 0;
  uint64_t next_output_index = 0;
  uint64_t seed = 0;
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  uint32_t note_bytes = 0;
  std::array<uint32_t, 4> reserved = {};
};
static_assert(sizeof(Header) == 176);

struct Bias {
  uint32_t token = 0;
  float added = 0;
};

/// Between header and pages. No sum of such counts overflows.
uint64_t middle_bytes(const Header& header) {
  return uint64_t{header.n_tokens} * sizeof(TokenId) + uint64_t{header.n_biases} * sizeof(Bias) +
         header.salt_bytes + header.note_bytes;
}

/// Copies one thing after the other.
struct Copier {
  template <typename T>
  void write(std::span<const T> values) {
    if (values.empty()) return;
    std::memcpy(to.data() + at, values.data(), values.size_bytes());
    at += values.size_bytes();
  }
  template <typename T>
  void read(std::span<T> values) {
    if (values.empty()) return;
    std::memcpy(values.data(), from.data() + at, values.size_bytes());
    at += values.size_bytes();
  }
  std::span<std::byte> to = {};
  std::span<const std::byte> from = {};
  size_t at = 0;
};

uint64_t checksum_of(std::span<const std::byte> bytes, Header header) {
  header.checksum = 0;
  const uint64_t seed = XXH3_64bits(&header, sizeof(header));
  const auto rest = bytes.subspan(sizeof(header));
  return XXH3_64bits_withSeed(rest.data(), rest.size(), seed);
}

Error not_one() { return make_error(ErrorCode::kBadFile, "not a saved session"); }

Error refused(std::string_view reason) {
  return make_error(ErrorCode::kBadFile, "saved conversation: {}", reason);
}

/// That these are whole bytes of ours.
Status check_whole(std::span<const std::byte> bytes, const Header& header) {
  if (header.version != kVersion) {
    return make_error(ErrorCode::kBadFile, "saved conversation: version {}, this program reads {}",
                      header.version, kVersion);
  }
  if (header.n_bytes != bytes.size()) {
    return make_error(ErrorCode::kBadFile, "saved conversation: {} of {} bytes are there",
                      bytes.size(), header.n_bytes);
  }
  if (header.checksum != checksum_of(bytes, header)) {
    return refused("damaged: its checksum does not match");
  }
  return {};
}

bool same_state(const Header& header, const PromptCacheBinding& binding) {
  return header.state == binding.model && header.layout == binding.layout &&
         header.block_tokens == binding.block_tokens && header.page_bytes == binding.page_bytes &&
         header.n_kinds == binding.n_kinds && header.kinds == binding.kinds;
}

/// Where the pages begin, if the counts fit the bytes.
Result<size_t> pages_offset(const Header& header, uint64_t n_bytes) {
  const uint64_t rest = n_bytes - sizeof(Header);
  const uint32_t most_state = header.n_tokens - (header.n_tokens > 0 ? 1 : 0);
  if (middle_bytes(header) > rest || header.n_prompt > header.n_tokens ||
      header.state_tokens > most_state) {
    return refused("its counts do not make its size");
  }
  return static_cast<size_t>(sizeof(Header) + middle_bytes(header));
}

Result<SavedSequence> read_sequence(const Header& header, std::span<const std::byte> bytes,
                                    uint32_t n_vocab) {
  SavedSequence sequence{.tokens = std::vector<TokenId>(header.n_tokens),
                         .n_prompt = header.n_prompt,
                         .sampling = {.temperature = header.temperature,
                                      .top_k = header.top_k,
                                      .top_p = header.top_p,
                                      .min_p = header.min_p,
                                      .repeat_penalty = header.repeat_penalty,
                                      .frequency_penalty = header.frequency_penalty,
                                      .presence_penalty = header.presence_penalty,
                                      .seed = header.seed,
                                      .logit_bias = {}},
                         .next_output_index = header.next_output_index,
                         .salt = std::string(header.salt_bytes, '\0'),
                         .note = std::string(header.note_bytes, '\0')};
  std::vector<Bias> biases(header.n_biases);
  Copier copier{.from = bytes, .at = sizeof(Header)};
  copier.read(std::span(sequence.tokens));
  copier.read(std::span(biases));
  copier.read(std::span(sequence.salt));
  copier.read(std::span(sequence.note));
  for (const Bias& bias : biases) sequence.sampling.logit_bias.emplace_back(bias.token, bias.added);
  const Status valid = check_saved_sequence(sequence, n_vocab);
  if (!valid.ok()) return refused(valid.error().message);
  return sequence;
}

}  // namespace

GenerationRequest continuation(SavedSequence sequence, uint32_t max_new_tokens) {
  GenerationRequest request{.prompt = std::move(sequence.tokens),
                            .max_new_tokens = max_new_tokens,
                            .sampling = std::move(sequence.sampling),
                            .salt = std::move(sequence.salt),
                            .adapter = sequence.adapter,
                            .first_output_index = sequence.next_output_index};
  request.n_output_in_prompt = static_cast<uint32_t>(request.prompt.size()) - sequence.n_prompt;
  return request;
}

Status check_saved_sequence(const SavedSequence& sequence, uint32_t n_vocab) {
  if (sequence.n_prompt > sequence.tokens.size()) {
    return make_error(ErrorCode::kInvalidArgument, "n_prompt is {}, but there are {} tokens",
                      sequence.n_prompt, sequence.tokens.size());
  }
  for (const TokenId token : sequence.tokens) {
    if (token < n_vocab) continue;
    return make_error(ErrorCode::kInvalidArgument, "token {} is outside the vocabulary of {}",
                      token, n_vocab);
  }
  return sequence.sampling.validate(n_vocab);
}

std::vector<std::byte> write_saved_sequence(const SavedSequence& sequence,
                                            const SavedBinding& binding, size_t n_pages) {
  const SamplerOptions& sampling = sequence.sampling;
  Header header{.block_tokens = binding.state.block_tokens,
                .model = binding.model,
                .state = binding.state.model,
                .layout = binding.state.layout,
                .kinds = binding.state.kinds,
                .page_bytes = binding.state.page_bytes,
                .n_kinds = binding.state.n_kinds,
                .n_tokens = static_cast<uint32_t>(sequence.tokens.size()),
                .n_prompt = sequence.n_prompt,
                .state_tokens = sequence.state_tokens,
                .n_biases = static_cast<uint32_t>(sampling.logit_bias.size()),
                .salt_bytes = static_cast<uint32_t>(sequence.salt.size()),
                .next_output_index = sequence.next_output_index,
                .seed = sampling.seed,
                .temperature = sampling.temperature,
                .top_k = sampling.top_k,
                .top_p = sampling.top_p,
                .min_p = sampling.min_p,
                .repeat_penalty = sampling.repeat_penalty,
                .frequency_penalty = sampling.frequency_penalty,
                .presence_penalty = sampling.presence_penalty,
                .note_bytes = static_cast<uint32_t>(sequence.note.size())};
  header.n_bytes = sizeof(Header) + middle_bytes(header) + n_pages * binding.state.page_bytes;
  std::vector<Bias> biases;
  for (const auto& [token, added] : sampling.logit_bias) biases.push_back({token, added});
  std::vector<std::byte> bytes(header.n_bytes);
  Copier copier{.to = bytes};
  copier.write(std::span<const Header>(&header, 1));
  copier.write(std::span<const TokenId>(sequence.tokens));
  copier.write(std::span<const Bias>(biases));
  copier.write(std::span<const char>(sequence.salt));
  copier.write(std::span<const char>(sequence.note));
  return bytes;
}

void seal_saved_sequence(std::span<std::byte> bytes) {
  Header header;
  PUMICE_CHECK(bytes.size() >= sizeof(header), "sealing what has no header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.checksum = checksum_of(bytes, header);
  std::memcpy(bytes.data(), &header, sizeof(header));
}

bool is_of_model(std::span<const std::byte> bytes, const SavedBinding& binding) {
  Header header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header.magic == kMagic && header.model == binding.model;
}

Result<OpenedSequence> open_saved_sequence(std::span<const std::byte> bytes,
                                           const SavedBinding& binding, const PageKinds& kinds,
                                           const RestoreOptions& options) {
  Header header;
  if (bytes.size() < sizeof(header)) return not_one();
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) return not_one();
  PUMICE_TRY_STATUS(check_whole(bytes, header));
  if (header.model != binding.model) return refused("it belongs to another model");
  const bool has_state = same_state(header, binding.state);
  if (!has_state && !options.tokens_only) {
    return refused(
        "its state has another KV type, layout or arithmetic; tokens_only computes it again from "
        "the tokens");
  }
  PUMICE_TRY(const size_t offset, pages_offset(header, bytes.size()));
  OpenedSequence opened;
  PUMICE_TRY(opened.sequence, read_sequence(header, bytes, binding.n_vocab));
  if (!has_state) return opened;
  opened.pages = bytes.subspan(offset);
  const size_t n_pages = kinds.prefix_entries(header.state_tokens).size();
  if (opened.pages.size() % header.page_bytes != 0 ||
      opened.pages.size() / header.page_bytes != n_pages) {
    return refused("its pages do not match its state");
  }
  opened.sequence.state_tokens = header.state_tokens;
  return opened;
}

}  // namespace pumice
