"""Bugs to seed into reading and writing files: see run.py."""

OUTPUT = "test_base:OutputFileTest.*"
FILE = "test_base:FileTest.*"

MUTATIONS = [
    # Nobody's file is lost, and nothing is left behind.
    ("temporary left after an error", "runtime/base/output_file.cpp",
     "  remove_file(temporary_);\n  unfinished", "  unfinished", OUTPUT),
    ("a live writer's temporary is taken for a left-over", "runtime/base/output_file.cpp",
     " && left.try_lock(ignored)) {", ") {", OUTPUT),
    ("an input under another name is overwritten", "runtime/base/output_file.cpp",
     "if (!fs::equivalent(output, input, error) || error) continue;", "if (output != input) continue;", OUTPUT),
    ("the unnamed file keeps its name", "runtime/base/file_posix.cpp",
     "if (file.is_open()) ::unlink(name.c_str());", "", FILE),
    ("offsets have 32 bits", "runtime/base/file_posix.cpp",
     "static_cast<off_t>(offset + done));\n    if (n < 0 && errno == EINTR) continue;\n    if (n < 0) error",
     "static_cast<int32_t>(offset + done));\n    if (n < 0 && errno == EINTR) continue;\n    if (n < 0) error", FILE),
    # A file that lacks something is an error.
    ("a model that ends early is read as what was there before", "runtime/format/input_file.cpp",
     "if (n == out.size()) return {};", "return {};", "test_gguf:GgufTensors.*"),
    ("a model whose parts lack tensors is opened", "runtime/format/gguf.cpp",
     "if (*n_tensors != tensors_.size()) {", "if (*n_tensors < tensors_.size()) {", "test_gguf:GgufParts.*"),
]
