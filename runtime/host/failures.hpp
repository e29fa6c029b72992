// Kinds of failure that only users of a shared host meet, beside those of ErrorCode.
#pragma once

#include "base/result.hpp"

namespace pumice::host {

/// No conversation or request of that number, or no longer.
constexpr auto kNotFound = static_cast<ErrorCode>(64);
/// Another thread is in such a call, or a conversation has a request.
constexpr auto kBusy = static_cast<ErrorCode>(65);
/// The host's memory is used up.
constexpr auto kOutOfMemory = static_cast<ErrorCode>(66);

}  // namespace pumice::host
