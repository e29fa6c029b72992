#include "text/text_stream.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kComplete) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

/// For each prefix but the empty one, the length of its longest proper prefix that also ends it.
std::vector<size_t> borders_of(std::string_view text) {
  std::vector<size_t> borders(text.size(), 0);
  size_t border = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) border = borders[border - 1];
    if (text[i] == text[border]) ++border;
    borders[i] = border;
  }
  return borders;
}

}  // namespace

Status validate_stop_strings(std::span<const std::string> stop_strings) {
  if (stop_strings.size() > kMaxStopStrings) {
    return make_error(ErrorCode::kInvalidArgument, "{} stop strings: at most {}",
                      stop_strings.size(), kMaxStopStrings);
  }
  for (const std::string& text : stop_strings) {
    if (text.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "a stop string is empty");
    }
    if (text.size() > kMaxStopBytes) {
      return make_error(ErrorCode::kInvalidArgument, "a stop string of {} bytes: at most {}",
                        text.size(), kMaxStopBytes);
    }
    if (!is_utf8(text)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "a stop string is not valid UTF-8, so no text could contain it");
    }
  }
  return {};
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer,
                       std::vector<std::string> stop_strings)
    : tokenizer_(std::move(tokenizer)), detokenizer_(*tokenizer_) {
  const Status valid = validate_stop_strings(stop_strings);
  PUMICE_CHECK(valid.ok(), valid.error().message);
  for (std::string& text : stop_strings) {
    std::vector<size_t> borders = borders_of(text);
    stops_.push_back({.text = std::move(text), .borders = std::move(borders)});
  }
}

void TextStream::Stop::step(char c) {
  while (n_matched > 0 && c != text[n_matched]) n_matched = borders[n_matched - 1];
  if (c == text[n_matched]) ++n_matched;
}

std::string TextStream::feed(TokenId token) {
  if (stopped_) return {};
  return add(detokenizer_.feed(token));
}

std::string TextStream::flush() {
  if (stopped_) return {};
  std::string text = add(detokenizer_.flush());
  if (!stopped_) text += std::exchange(held_, {});
  return text;
}

std::string TextStream::add(std::string_view text) {
  std::string out = std::exchange(held_, {});
  for (const char c : text) {
    out += c;
    size_t n_stop = 0;
    for (Stop& stop : stops_) {
      stop.step(c);
      if (stop.n_matched == stop.text.size()) n_stop = std::max(n_stop, stop.text.size());
    }
    if (n_stop == 0) continue;
    stopped_ = true;
    out.resize(out.size() - n_stop);
    return out;
  }
  // Stop strings are whole characters, so what is held back begins at a character too.
  size_t n_held = 0;
  for (const Stop& stop : stops_) n_held = std::max(n_held, stop.n_matched);
  held_ = out.substr(out.size() - n_held);
  out.resize(out.size() - n_held);
  return out;
}

}  // namespace pumice
