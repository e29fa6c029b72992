// For a program that ends in the midst of things.
#pragma once

namespace pumice {

/// Removes the temporaries of every OutputFile that is not finished. The last call before _exit:
/// files that other threads begin or finish from here on wait for ever. Where another thread hangs
/// in opening or removing one (a server of files that is gone), it gives up after a moment and
/// removes none; the next OutputFile for the same path does. From any thread, but not from a signal
/// handler.
void remove_unfinished_files();

}  // namespace pumice
