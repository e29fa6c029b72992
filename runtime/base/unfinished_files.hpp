// For a program that ends in the midst of things.
#pragma once

namespace pumice {

/// Removes the temporaries of every OutputFile that is not finished. The last call before _exit:
/// files that other threads begin or finish from here on wait for ever. Gives up after a second
/// where another thread is stuck in opening one. From any thread, but not from a signal handler.
void remove_unfinished_files();

}  // namespace pumice
