// Another's judgement of JSON under a schema.
#pragma once

#include <string>

namespace pumice::test {

/// Why a text is not JSON of the schema (draft 7); empty: it is.
std::string schema_problem(const std::string& schema, const std::string& text);

}  // namespace pumice::test
