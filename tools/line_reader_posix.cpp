#include "tools/line_reader.hpp"

#include <fmt/core.h>
#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <fstream>
#include <iostream>
#include <memory>
#include <new>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/output_file.hpp"
#include "tools/interrupt.hpp"
#include "tools/terminal.hpp"

namespace pumice::tools {
namespace {

constexpr int kEnd = -1;
constexpr int kInterrupted = -2;
constexpr int kResized = -3;
constexpr wchar_t kKillLine = 0x15;  // Ctrl-U
constexpr wchar_t kRedraw = 0x1E;    // Ctrl-^, which is bound to that

constexpr int kMostHistoryLines = 1000;
constexpr std::streamoff kMostHistoryBytes = 1 << 20;

/// Columns that a text takes.
int width_of(std::wstring_view text) {
  int width = 0;
  for (const wchar_t character : text) {
    const int columns = wcwidth(character);
    width += columns < 0 ? 2 : columns;  // ^X
  }
  return width;
}

}  // namespace

/// libedit, whose callbacks get it back.
struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string prompt;
  int columns = terminal_columns(Stream::kOutput);  // as libedit knows them
  bool cancelled = false;
  bool returns_next = false;

  Editor();
  ~Editor();
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  void add(const char* text) {
    HistEvent event;
    ::history(history, &event, H_ENTER, text);
  }
  int next_byte(bool may_redraw);
  int next_character(wchar_t* character);
  void redraw();

  static Editor& of(EditLine* line) {
    Editor* editor = nullptr;
    el_get(line, EL_CLIENTDATA, &editor);
    return *editor;
  }
};

LineReader::Editor::Editor()
    : line(el_init("pumice", stdin, stdout, stderr)), history(history_init()) {
  if (line == nullptr || history == nullptr) throw std::bad_alloc();
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kMostHistoryLines);
  el_set(line, EL_CLIENTDATA, this);
  el_set(line, EL_HIST, ::history, history);
  el_set(
      line, EL_PROMPT, +[](EditLine* of_line) { return of(of_line).prompt.data(); });
  el_wset(
      line, EL_GETCFN,
      +[](EditLine* of_line, wchar_t* character) { return of(of_line).next_character(character); });
  el_set(
      line, EL_ADDFN, "pumice-redraw", "Draw the line for another width",
      +[](EditLine* of_line, int) -> unsigned char {
        of(of_line).redraw();
        return CC_NORM;
      });
  el_set(line, EL_EDITOR, "emacs");
  constexpr const char* kKeys[][2] = {
      {"^R", "em-inc-search-prev"}, {"\\e[1~", "ed-move-to-beg"},      {"\\e[H", "ed-move-to-beg"},
      {"\\e[7~", "ed-move-to-beg"}, {"\\e[4~", "ed-move-to-end"},      {"\\e[F", "ed-move-to-end"},
      {"\\e[8~", "ed-move-to-end"}, {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5C", "em-next-word"},
      {"\\e[1;5D", "ed-prev-word"}, {"\\e\\e[C", "em-next-word"},      {"\\e\\e[D", "ed-prev-word"},
  };
  for (const auto& [key, function] : kKeys) el_set(line, EL_BIND, key, function, nullptr);
  el_source(line, nullptr);  // the user's ~/.editrc
  el_set(line, EL_BIND, "^^", "pumice-redraw", nullptr);
}

LineReader::Editor::~Editor() {
  el_end(line);
  history_end(history);
}

/// The next byte of the terminal; or why there is none.
int LineReader::Editor::next_byte(bool may_redraw) {
  for (;;) {
    const int now = terminal_columns(Stream::kOutput);
    if (may_redraw && now > 0 && now != columns) return kResized;
    pollfd ready{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, 100);  // a signal that another thread took does not wake this one
    if (InterruptGuard::interrupted()) return InterruptGuard::forgive() ? kInterrupted : kEnd;
    if (n <= 0) {
      if (n < 0 && errno != EINTR) return kEnd;
      continue;
    }
    unsigned char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 1 && byte == 0) continue;  // a Ctrl-D from before the editor took the terminal
    if (got == 1) return byte;
    if (got == 0 || errno != EINTR) return kEnd;
  }
}

/// For libedit: 1, or 0 at the end.
int LineReader::Editor::next_character(wchar_t* character) {
  if (std::exchange(returns_next, false)) {
    *character = L'\n';
    return 1;
  }
  const int first = next_byte(true);
  if (first == kEnd) return 0;
  *character = static_cast<wchar_t>(first);
  if (first == kResized) *character = kRedraw;
  if (first == kInterrupted) {
    cancelled = returns_next = true;
    *character = kKillLine;
  }
  if (first < 0xC2 || first > 0xF4) return 1;
  const int n_more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  *character = first & (0x3F >> n_more);
  for (int i = 0; i < n_more; ++i) {
    const int byte = next_byte(false);
    if (byte < 0) return 0;
    *character = *character << 6 | (byte & 0x3F);
  }
  return 1;
}

/// Terminals break lines anew when they become narrower or wider: where the line being edited
/// begins is told by the width of what stands before the cursor.
void LineReader::Editor::redraw() {
  columns = std::max(terminal_columns(Stream::kOutput), 1);
  const LineInfoW* const edited = el_wline(line);
  const std::wstring_view before(edited->buffer,
                                 static_cast<size_t>(edited->cursor - edited->buffer));
  const int n_rows_above = (static_cast<int>(prompt.size()) + width_of(before)) / columns;
  std::string sequence = "\r";
  if (n_rows_above > 0) sequence += fmt::format("\033[{}A", n_rows_above);
  sequence += "\033[J";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, sequence.data(), sequence.size());
  el_resize(line);
  el_set(line, EL_REFRESH);
}

LineReader::LineReader(std::filesystem::path history)
    : history_(std::move(history)), interactive_(is_terminal(Stream::kInput)) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // libedit's: what a character is, and how wide
  editor_ = std::make_unique<Editor>();
  if (!history_.empty()) load_history();
}

LineReader::~LineReader() = default;

void LineReader::load_history() const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(history_, error)) return;
  std::ifstream file(history_, std::ios::binary | std::ios::ate);
  const std::streamoff n_bytes = file.tellg();
  const bool is_cut = n_bytes > kMostHistoryBytes;
  if (!file.seekg(is_cut ? n_bytes - kMostHistoryBytes : 0)) return;
  std::vector<std::string> lines;
  std::string line;
  if (is_cut) std::getline(file, line);  // the rest of one
  while (std::getline(file, line)) lines.push_back(line);
  const size_t n_old = lines.size() - std::min(lines.size(), size_t{kMostHistoryLines});
  std::string kept;
  for (size_t i = n_old; i < lines.size(); ++i) {
    editor_->add(lines[i].c_str());
    kept += lines[i] + "\n";
  }
  if (n_old > kMostHistoryLines || is_cut) (void)write_file(history_, kept);
}

void LineReader::remember(const std::string& line) {
  if (line == last_) return;
  last_ = line;
  editor_->add(line.c_str());
  if (history_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(history_.parent_path(), error);
  File file = File::open(history_, File::Mode::kAppend, error);
  if (error || !file.info(error).is_regular()) return;
  const std::string ended = last_ + "\n";
  file.write(std::as_bytes(std::span(ended)), error);
}

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }
  const InterruptGuard guard;
  editor_->prompt = prompt;
  editor_->cancelled = false;
  if (const int columns = terminal_columns(Stream::kOutput); columns != editor_->columns) {
    el_resize(editor_->line);
    editor_->columns = columns;
  }
  int n_bytes = 0;
  const char* const typed = el_gets(editor_->line, &n_bytes);
  cancelled_ = editor_->cancelled;
  if (typed == nullptr || n_bytes <= 0) return std::nullopt;
  if (cancelled_) return "";
  std::string line(typed, static_cast<size_t>(n_bytes));
  if (line.ends_with('\n')) line.pop_back();
  if (!line.empty()) remember(line);
  return line;
}

struct EchoOff::Mode {
  termios before{};
};

EchoOff::EchoOff() {
  Mode mode;
  // In the background it would stop the program.
  if (tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &mode.before) != 0) return;
  termios quiet = mode.before;
  quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
  if (tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0) before_ = std::make_unique<Mode>(mode);
}

EchoOff::~EchoOff() {
  if (before_ != nullptr) tcsetattr(STDIN_FILENO, TCSANOW, &before_->before);
}

}  // namespace pumice::tools
