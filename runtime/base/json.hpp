// The one reader of JSON. Everything that comes from a file, a server or standard input is read
// here, so that what is said below holds of all of it; the structure test keeps other code from
// calling the library's own parser.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.hpp"

namespace pumice {

/// Arrays and objects within one another. What people write goes about 20 deep (schemas of tools);
/// code that walks a value, prints it or turns it into a template's is recursive, and 128 calls fit
/// on the smallest stack of a thread.
constexpr size_t kMaxJsonDepth = 128;

/// One JSON value with white space around it and nothing else. Strict where readers differ, so that
/// no value means something else to another program: a name that stands twice in an object, a
/// number beyond a double, a whole number beyond 64 bits and text that is not UTF-8 are errors.
/// Needs memory of about 30 times the text's at worst. Errors (kBadFile): all of these, text longer
/// than `max_bytes`, and nesting beyond kMaxJsonDepth; the message gives the byte, counted from 1,
/// and is meant to stand after the name of what was read and a colon.
Result<nlohmann::json> read_json(std::string_view text, size_t max_bytes);
/// Likewise, with the members of objects in the text's order.
Result<nlohmann::ordered_json> read_ordered_json(std::string_view text, size_t max_bytes);

/// The value in a regular file. Errors as above, and kBadFile for what is no regular file or cannot
/// be read.
Result<nlohmann::json> read_json_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace pumice
