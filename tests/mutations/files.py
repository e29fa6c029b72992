"""Bugs to seed into reading and writing files: see run.py."""

OUTPUT = "test_base:OutputFileTest.*"

MUTATIONS = [
    ("temporary left after an error", "runtime/base/output_file.cpp",
     "    ::unlink(temporary_.c_str());\n    unfinished", "    unfinished", OUTPUT),
    ("a device or pipe is replaced by a file", "runtime/base/output_file.cpp",
     "if (exists && (is_descriptor || !S_ISREG(status.st_mode))) {", "if (exists && is_descriptor) {", OUTPUT),
    ("a link is replaced by a file", "runtime/base/output_file.cpp",
     "PUMICE_TRY(file.target_, follow_links(path));", "file.target_ = path;", OUTPUT),
    ("permissions are not kept", "runtime/base/output_file.cpp",
     "if (::fchmod(file.descriptor_, status.st_mode & 07777) != 0)", "if (false)", OUTPUT),
    ("what a killed writer left stays", "runtime/base/output_file.cpp",
     "  file.remove_leftovers();\n", "", OUTPUT),
    ("a live writer's temporary is taken for a left-over", "runtime/base/output_file.cpp",
     "::flock(left, LOCK_EX | LOCK_NB) == 0", "::flock(left, LOCK_EX | LOCK_NB) >= -1", OUTPUT),
    ("of two writers who may not replace, both do", "runtime/base/output_file.cpp",
     "existing_ == Existing::kRefuse ? rename_to_new", "existing_ != Existing::kRefuse ? rename_to_new", OUTPUT),
    ("an input under another name is overwritten", "runtime/base/output_file.cpp",
     "if (!fs::equivalent(output, input, error) || error) continue;", "if (output != input) continue;", OUTPUT),
    ("a protected file is replaced", "runtime/base/output_file.cpp",
     "if (exists && ::access(file.target_.c_str(), W_OK) != 0) return file.failed(errno);", "", OUTPUT),
    ("a model that ends early is read as what was there before", "runtime/format/input_file.cpp",
     "    if (n == 0) {", "    if (n == 0) return {};\n    if (n == 0) {", "test_gguf:GgufTensors.*"),
    ("a header is taken for whole after its first piece", "runtime/format/gguf.cpp",
     "if (parser.needs_more()) continue;", "", "test_gguf:GgufTensors.*"),
    ("a tensor is read from the first part, wherever it lies", "runtime/format/gguf.cpp",
     "tensor.part == 0 ? *this", "tensor.part < 3 ? *this", "test_gguf:GgufParts.*"),
    ("a part under another's name is taken", "runtime/format/gguf.cpp",
     "if (*part != expected) {", "if (part->count != expected.count) {", "test_gguf:GgufParts.*"),
    ("a model whose parts lack tensors is opened", "runtime/format/gguf.cpp",
     "if (*n_tensors != tensors_.size()) {", "if (*n_tensors < tensors_.size()) {", "test_gguf:GgufParts.*"),
]
