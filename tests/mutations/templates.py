"""Bugs to seed into chat templates: see run.py."""

RENDERS = "test_text:ChatTemplate.*"
HOSTILE = "test_text:HostileTemplate.*"
FOLDER = "runtime/text/jinja/"

MUTATIONS = [
    # Renders what Jinja2 does.
    ("lines of tags keep their spaces", FOLDER + "lexer.cpp",
     "const bool begins_line = line > 0 || line_starting_;", "const bool begins_line = false;", RENDERS),
    ("variables of a loop's body outlive it", FOLDER + "interpreter.cpp",
     "    const ScopePtr inner = child(scope);\n    inner->set(\"loop\", state.value());",
     "    const ScopePtr inner = scope;\n    inner->set(\"loop\", state.value());", RENDERS),
    ("text is not escaped before safe text", FOLDER + "operators.cpp",
     "const bool is_safe = a.is_safe() || b.is_safe();", "const bool is_safe = a.is_safe();", RENDERS),
    ("none is mapped", FOLDER + "sequence_filters.cpp",
     "if (!is_true(input)) return Values(interpreter.budget());", "", RENDERS),
    # A template of an enemy ends, in bounded memory, and when it is told to.
    ("macros call themselves without end", FOLDER + "interpreter.cpp",
     "constexpr int kMaxRunDepth = 800;", "constexpr int kMaxRunDepth = 800'000'000;", HOSTILE),
    ("expressions nest without end", FOLDER + "expression_parser.cpp",
     "PUMICE_TRY_STATUS(stream_.check_depth(children_depth + 1));", "", HOSTILE),
    ("nobody pays for a list itself", FOLDER + "value.cpp",
     "const Paid<ListData> paid = items.get_allocator();",
     "static Budget nobody;\n  const Paid<ListData> paid(nobody);", HOSTILE),
    ("nothing stops a rendering", "runtime/text/chat_template.cpp", "jinja::Budget budget(options.stopped);", "jinja::Budget budget;", HOSTILE),
]
