#include "tools/serve/service/answer_reader.hpp"

#include <algorithm>

namespace pumice::serve {

AnswerReader::AnswerReader(std::shared_ptr<const Tokenizer> tokenizer, const AnswerForm* form,
                           std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)), detokenizer_(*tokenizer_), stops_(std::move(stops)) {
  if (form != nullptr) {
    machine_.emplace(AnswerGrammar::create(form->format, tokenizer_.get()), form->options);
    reasons_ = form->options.begins_reasoning;
  }
  sees_tokens_ = !stops_.empty() || (machine_ && !machine_->grammar().marks.empty());
}

void AnswerReader::read(const host::Event& event, std::vector<AnswerEvent>& pieces) {
  const size_t n_before = pieces.size();
  if (event.token && sees_tokens_) {
    const std::string text = detokenizer_.feed(*event.token);
    n_seen_ += text.size();
    behind_ += text;
    const char mark = machine_ ? machine_->grammar().mark_of(*event.token) : '\0';
    if (mark != 0) marks_.emplace_back(n_seen_, mark);
  }
  const bool ends = event.kind == host::Event::Kind::kFinished;
  feed(event.text, ends, pieces);
  for (size_t i = n_before; i < pieces.size(); ++i) {
    if (pieces[i].kind != AnswerEvent::Kind::kFinish) {
      reasons_ = pieces[i].kind == AnswerEvent::Kind::kReasoning;
    }
  }
}

void AnswerReader::feed(std::string_view text, bool ends, std::vector<AnswerEvent>& pieces) {
  behind_.erase(0, std::min(behind_.size(), text.size()));
  if (!machine_) {
    if (!text.empty()) append_event({.text = std::string(text)}, pieces);
    if (ends) pieces.push_back({.kind = AnswerEvent::Kind::kFinish});
    return;
  }
  std::string marked;
  while (!marks_.empty() && marks_.front().first <= n_given_ + text.size()) {
    const size_t n = marks_.front().first - std::min(marks_.front().first, n_given_);
    marked += text.substr(0, n);
    marked += marks_.front().second;
    text.remove_prefix(n);
    n_given_ += n;
    marks_.pop_front();
  }
  marked += text;
  n_given_ += text.size();
  machine_->feed(marked, pieces);
  if (ends) machine_->finish(pieces);
}

std::string AnswerReader::stop_string() const {
  std::string found;
  for (const std::string& stop : stops_) {
    if (stop.size() > found.size() && std::string_view(behind_).starts_with(stop)) found = stop;
  }
  return found;
}

}  // namespace pumice::serve
