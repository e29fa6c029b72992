"""Bugs to seed into reading and writing files: see run.py."""

OUTPUT = "test_base:OutputFileTest.*"

MUTATIONS = [
    # Nobody's file is lost, and nothing is left behind.
    ("temporary left after an error", "runtime/base/output_file.cpp",
     "    ::unlink(temporary_.c_str());\n    unfinished", "    unfinished", OUTPUT),
    ("a live writer's temporary is taken for a left-over", "runtime/base/output_file.cpp",
     "::flock(left, LOCK_EX | LOCK_NB) == 0", "::flock(left, LOCK_EX | LOCK_NB) >= -1", OUTPUT),
    ("an input under another name is overwritten", "runtime/base/output_file.cpp",
     "if (!fs::equivalent(output, input, error) || error) continue;", "if (output != input) continue;", OUTPUT),
    # A file that lacks something is an error.
    ("a model that ends early is read as what was there before", "runtime/format/input_file.cpp",
     "    if (n == 0) {", "    if (n == 0) return {};\n    if (n == 0) {", "test_gguf:GgufTensors.*"),
    ("a model whose parts lack tensors is opened", "runtime/format/gguf.cpp",
     "if (*n_tensors != tensors_.size()) {", "if (*n_tensors < tensors_.size()) {", "test_gguf:GgufParts.*"),
]
