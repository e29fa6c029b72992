// One page of a prefix as a file: the bytes of one kind's share of a full block, with all the tokens
// that they depend on, bound to one model, layout, arithmetic and list of kinds.
//
//     offset 0   header, 88 bytes: "PUMICEPB", version, kind, what it is bound to
//                (PromptCacheBinding), number of tokens, checksum
//     then       token ids, from the first of the sequence to the last of the block
//     then       the page
//
// Little-endian; the checksum is XXH3-64 of everything, itself as 0. Each file stands for itself: which
// others are there decides nothing, so any may go at any time. Its name is a hash, and decides
// nothing either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/block_hash.hpp"
#include "cache/prompt_cache_file.hpp"

namespace pumice {

/// Whose file is at a path of the store, and whether it is of use.
enum class StoredPageState {
  kGood,
  kAbsent,   ///< nothing is there, or it cannot be read
  kOther,    ///< of other tokens (two prefixes of one hash), or bound to something else
  kDamaged,  ///< written by a store, and not whole
  kForeign,  ///< not written by a store
};

/// Of the folder below the store's in which the files of a binding are.
std::string prefix_store_folder(const PromptCacheBinding& binding);
/// Below that folder.
std::filesystem::path stored_page_path(const BlockHash& hash, uint32_t kind);
/// The hash of a file with such a name, and its kind folded in; nothing for any other name.
std::optional<uint64_t> stored_page_key(std::string_view file_name);
uint64_t stored_page_key(const BlockHash& hash, uint32_t kind);
/// One that is being written, or was when its writer died.
bool is_unfinished_stored_page(std::string_view file_name);

/// A file, whole.
std::vector<std::byte> stored_page_bytes(const PromptCacheBinding& binding, uint32_t kind,
                                         std::span<const uint32_t> tokens,
                                         std::span<const std::byte> page);

/// The page of just these tokens; `page` is written only where it is good.
StoredPageState read_stored_page(const std::filesystem::path& path,
                                 const PromptCacheBinding& binding, uint32_t kind,
                                 std::span<const uint32_t> tokens, std::vector<std::byte>& page);
/// Whether a store wrote it, or nobody wrote anything to it.
bool is_stored_page(const std::filesystem::path& path);

}  // namespace pumice
