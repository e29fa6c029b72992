// A conversation as bytes, to be gone on with later, in another process perhaps: its tokens, how
// they are sampled, and the state (keys and values) of those that are cached, bound to one model,
// and the state to one layout and arithmetic.
//
//     offset 0   header, 176 bytes: "PUMICESQ", version, size of all, checksum, what it is bound
//                to, counts, sampling
//     then       token ids, logit biases (token, float), salt, note
//     then       pages of the first `state_tokens` positions, page_bytes each, in the order of
//                PageKinds::prefix_entries
//
// Little-endian; the checksum is XXH3-64 of everything, itself as 0. Nothing is allocated before
// the sizes have been found to be those of the bytes there are. What state means cannot be checked:
// bytes come from whom one trusts, as models do. The salt is in them.
//
// No device; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cache/page_kind.hpp"
#include "cache/prompt_cache_file.hpp"
#include "engine/requests.hpp"
#include "sampling/options.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// What is to be known of a conversation in order to go on with it.
struct SavedSequence {
  std::vector<TokenId> tokens;
  uint32_t n_prompt = 0;  ///< of them, from the start; the others are output, as penalties count
  SamplerOptions sampling = {};
  uint64_t next_output_index = 0;  ///< of the token that comes next, as its seed counts
  std::string salt = {};
  /// GenerationRequest::adapter, of the engine that has it: the bytes are bound to the adapter's file.
  uint32_t adapter = 0;
  std::string note = {};  ///< the caller's bytes, which come back as they are
  /// Positions whose state is saved, or was restored. Set by Engine::save and restore.
  uint32_t state_tokens = 0;
};

/// A request that goes on where it ended. Text goes on too if it gets the tokenizer, stop strings
/// and delivery that the saved one had.
GenerationRequest continuation(SavedSequence sequence, uint32_t max_new_tokens);

struct RestoreOptions {
  /// Of what another KV type or arithmetic computed take the tokens alone; they are computed again.
  bool tokens_only = false;
};

/// What saved bytes must agree with.
struct SavedBinding {
  std::array<uint64_t, 2> model = {};  ///< Model::fingerprint, and the adapter's
  uint32_t n_vocab = 0;
  PromptCacheBinding state;  ///< KvCache::binding
};

/// What could not be restored is not saved. Errors: kInvalidArgument.
Status check_saved_sequence(const SavedSequence& sequence, uint32_t n_vocab);

/// All but the pages, for which there is room at the end, and the checksum.
std::vector<std::byte> write_saved_sequence(const SavedSequence& sequence,
                                            const SavedBinding& binding, size_t n_pages);
/// The bytes are complete.
void seal_saved_sequence(std::span<std::byte> bytes);

/// Whether it says so of itself; nothing else is checked.
bool is_of_model(std::span<const std::byte> bytes, const SavedBinding& binding);

struct OpenedSequence {
  SavedSequence sequence;
  std::span<const std::byte> pages;  ///< of the bytes given; none if only tokens can be used
};
/// Errors: kBadFile saying what is wrong: not a saved conversation, another version, cut off,
/// damaged, of another model; of another KV type, layout or arithmetic, unless `tokens_only`.
Result<OpenedSequence> open_saved_sequence(std::span<const std::byte> bytes,
                                           const SavedBinding& binding, const PageKinds& kinds,
                                           const RestoreOptions& options = {});

}  // namespace pumice
