// What interrupt.cpp needs of the system: a handler of signals, a thread that waits for what it
// says, and the end in the midst of things. A file for each system.
#pragma once

#include <optional>

namespace pumice::tools::signals {

/// interrupt.cpp's, called where a signal arrives, whatever the program does there: it touches
/// atomics and calls `tell`, nothing else. `is_final`: not by Ctrl-C.
void arrived(bool is_final);

/// False: there is no way to tell anything, and signals keep doing what they do by default.
bool open();
/// Runs `watch` for ever on a thread that no signal interrupts. False where none can be started.
bool start_thread(void (*watch)());

/// What the system's calls that wait do when a signal comes, where it has a say in that.
enum class Waits { kGoOn, kFail };
/// From here on signals that the parent does not ignore for us are handled by `arrived`.
void handle(Waits waits);

/// To the watching thread; from a handler too.
void tell(char what);
/// The next thing told; nothing if none comes in time. A negative time waits for ever.
std::optional<char> next_told(double seconds);

/// Leaves the terminal as it was when the program began, says that it was interrupted and ends it,
/// with whatever other threads are doing.
[[noreturn]] void leave();

}  // namespace pumice::tools::signals
