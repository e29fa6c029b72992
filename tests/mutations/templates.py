"""Bugs to seed into chat templates: see run.py."""

RENDERS = "test_text:ChatTemplate.*"
HOSTILE = "test_text:HostileTemplate.*"
FOLDER = "runtime/text/jinja/"

MUTATIONS = [
    ("lines of tags keep their spaces", FOLDER + "lexer.cpp",
     "const bool begins_line = line > 0 || line_starting_;", "const bool begins_line = false;", RENDERS),
    ("the newline behind a tag stays", FOLDER + "lexer.cpp",
     "} else if (sign != '+' && trims && next_is(\"\\n\")) {", "} else if (false) {", RENDERS),
    ("the last newline stays", FOLDER + "lexer.cpp", "if (text.ends_with('\\n')) text.pop_back();", "", RENDERS),
    ("powers join from the right", FOLDER + "expression_parser.cpp",
     "return binary(&ExpressionParser::operand, {{\"**\", BinaryOp::kPower}});",
     "return binary(&ExpressionParser::operand, {{\"***\", BinaryOp::kPower}});", RENDERS),
    ("variables of a loop's body outlive it", FOLDER + "interpreter.cpp",
     "    const std::shared_ptr<Scope> inner = child(scope);\n    inner->set(budget_, \"loop\", state.value());",
     "    const std::shared_ptr<Scope> inner = scope;\n    inner->set(budget_, \"loop\", state.value());", RENDERS),
    ("lists can be appended to", FOLDER + "methods.cpp",
     "    \"append\",", "    \"append_\",", RENDERS),
    ("division rounds towards zero", FOLDER + "operators.cpp",
     "return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;", "return quotient;", RENDERS),
    ("integers wrap", FOLDER + "operators.cpp",
     "if (__builtin_add_overflow(a, b, &result)) return overflow();",
     "if (__builtin_add_overflow(a, b, &result)) return Value(result);", RENDERS),
    ("a generator gives its items again", FOLDER + "value.cpp",
     "list->consumed = list->kind == ListKind::kGenerator;", "", RENDERS),
    ("strings are sliced by bytes", FOLDER + "code_points.cpp",
     "return step.kind == Utf8Kind::kComplete ? step.length : 1;", "return 1;", RENDERS),
    ("a range may be of any length", FOLDER + "functions.cpp",
     "if (count > kMaxRange) {", "if (count > 100 * kMaxRange) {", RENDERS),
    ("what is undefined has attributes", FOLDER + "operators.cpp",
     "  if (object.is_undefined()) return fail(\"{}\", *object.undefined()->why);\n  if (object.object()",
     "  if (object.is_undefined()) return object;\n  if (object.object()", RENDERS),
    ("macros call themselves without end", FOLDER + "interpreter.cpp",
     "constexpr int kMaxRunDepth = 800;", "constexpr int kMaxRunDepth = 800'000'000;", HOSTILE),
    ("methods do not count as depth", FOLDER + "value.cpp",
     "return object() == nullptr ? 0 : object()->depth();", "return 0;", HOSTILE),
    ("expressions nest without end", FOLDER + "expression_parser.cpp",
     "PUMICE_TRY_STATUS(stream_.check_depth(children_depth + 1));", "", HOSTILE),
    ("the caller's values count as the template's", "runtime/text/chat_template.cpp",
     "value_of(callers, context, 1)", "value_of(budget, context, 1)", HOSTILE),
]
