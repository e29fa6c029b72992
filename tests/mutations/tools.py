"""Bugs to seed into runtime/format/, runtime/text/, bench/ and tools/: see run.py."""

MUTATIONS = [
    # What others hand in is bounded and looked at.
    ("JSON may be nested as deep as it likes", "runtime/base/json.cpp",
     "if (open_.size() == kMaxJsonDepth)", "if (open_.size() == 1u << 30)", "test_base:ReadJson.RefusesNesting*"),
    ("dimensions may overflow as long as the product is not zero", "runtime/format/gguf.cpp",
     "if (!product) return bad(\"{}: the dimensions overflow\", field);\n      n_elements = *product;",
     "if ((n_elements *= tensor.dims[d]) == 0) return bad(\"{}: the dimensions overflow\", field);", "test_gguf:GgufTensors.*"),
    ("reading settings waits for whoever writes a pipe", "tools/settings.cpp",
     "File::Mode::kRead, error)", "File::Mode::kWriteInPlace, error)",
     "cli_usage:Settings.test_a_settings_file_is_a_regular_one_of_modest_size"),
    # An error is one: no silent fallback.
    ("--math i8 computes floats without a word", "shaders/linear/linear.cpp",
     "if (obstacle.empty()) return {};", "return {};",
     "cli_run:Arithmetic.test_8_bit_products_are_refused_where_there_are_none_whatever_the_weights"),
    ("--explain forgets up of ungated models", "runtime/models/parts.cpp",
     "if (!is<op::Add, op::Combine>(*reader)) return Part::kGateUp;", "", "test_bench_host:Explain.*"),
    ("NaN passes --max-nmse", "tools/logits.cpp",
     "!(nmse <= *max_nmse)", "nmse > *max_nmse", "cli_logits:Logits.test_a_reference_of_no_numbers_is_beyond_every_bound"),
    ("output that does not arrive is no error", "tools/main.cpp",
     "if (status.ok()) status = output;", "(void)output;",
     "cli_streams:Streams.test_standard_output_that_is_full_is_an_error_of_every_command"),
    ("a plan that does not fit is a success", "tools/info_fit.cpp",
     "  if (fit.fits()) return {};\n", "  return {};\n", "cli_fit:Fit.test_a_model_larger_than_the_memory_is_planned_without_being_loaded"),
    ("a self-test cut short blames its kernels", "runtime/host/self_test.cpp",
     "  last_->running_modules.clear();\n", "", "cli_interrupt:AtOnce.test_a_self_test_cut_short_blames_no_kernel"),
    # What somebody typed or wrote is theirs.
    ("/save replaces any file", "tools/chat.cpp",
     "path == file_ ? Existing::kReplace : Existing::kRefuse", "Existing::kReplace", "cli_chat:Chat.test_nobodys_file_is_replaced"),
    ("everybody may read what was typed", "runtime/base/file_posix.cpp",
     "O_NONBLOCK, 0600);", "O_NONBLOCK, 0644);", "cli_chat:OnATerminal.test_lines_are_remembered_by_the_next_chat"),
    ("a variable beats a flag", "tools/settings.cpp",
     "if (option->count() > 0 || is_excluded_by_a_flag(command, *option)) continue;", "if (is_excluded_by_a_flag(command, *option)) continue;\n    option->clear();",
     "cli_usage:Settings.test_a_flag_beats_what_cannot_be_used"),
    ("the start of a stop string is given at once", "runtime/text/text_stream.cpp",
     "n_held = std::max(n_held, stop.n_matched);", "n_held = std::min(n_held, stop.n_matched);", "test_text:TextStreamTest.*"),
]
